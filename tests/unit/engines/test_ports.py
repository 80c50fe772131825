"""Ports: free, distinct, below the ephemeral range, and known by their owner."""

import os
import socket

import numpy as np

from equipoise_service.engines.ports import HIGHEST, LOWEST, PortChooser, describe_owner, is_free, listeners


def test_a4_17_ports_are_distinct_even_where_choosers_draw_alike() -> None:
    """A4-17: a forced equal seed still gives disjoint ports within one launcher."""
    chooser = PortChooser(np.random.default_rng(1))
    first = chooser.choose()
    chooser._rng = np.random.default_rng(1)
    second = chooser.choose()

    assert len({*first, *second}) == 4
    assert all(LOWEST <= port <= HIGHEST for port in (*first, *second))


def test_ports_lie_below_the_range_of_outgoing_connections() -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as limits:  # noqa: PTH123 - not a path of ours
        assert int(limits.read().split()[0]) > HIGHEST


def test_a_port_in_use_is_not_chosen_and_its_owner_is_named() -> None:
    chooser = PortChooser(np.random.default_rng(2))
    wanted = PortChooser(np.random.default_rng(2)).choose().http
    with socket.create_server(("127.0.0.1", wanted)):
        assert not is_free(wanted)
        assert wanted not in chooser.choose()
        assert listeners(wanted) == (os.getpid(),)
        assert describe_owner(os.getpid()).startswith(f"process {os.getpid()} (")
    assert is_free(wanted)


def test_a_port_given_back_may_be_chosen_again() -> None:
    chooser = PortChooser(np.random.default_rng(3))
    ports = chooser.choose()
    chooser.give_back(ports)
    chooser._rng = np.random.default_rng(3)

    assert chooser.choose() == ports


def test_an_owner_that_is_gone_or_not_ours_has_a_text_too() -> None:
    assert describe_owner(None) == "a process of another user"
    assert describe_owner(2**22 - 1) == f"process {2**22 - 1}"
