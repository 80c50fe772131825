"""Layouts: whatever the seed, arms, orders and devices are balanced, and every block is one engine's."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise_evals.decode.schedule import device_sets, launch_order, launches, pair_blocks
from equipoise_evals.model import ROLES, Layout, looks_up_to
from tests.support import records as make

LAYOUTS: tuple[Layout, ...] = ("co_resident", "alternating", "crossover")
SEEDS = st.integers(0, 2**31 - 1)


@given(seed=SEEDS, layout=st.sampled_from(LAYOUTS), pair=st.integers(1, 100), quads=st.integers(1, 3))
def test_each_arm_runs_as_many_blocks_at_each_batch_size(seed: int, layout: Layout, pair: int, quads: int) -> None:
    plan = make.plan(12, seed=seed, layout=layout)
    assert plan.latency is not None
    plan = plan.model_copy(update={"latency": plan.latency.model_copy(update={"quads_per_pair": quads})})
    blocks = pair_blocks(plan, pair)
    assert Counter((block.batch, block.role) for block in blocks) == {
        (batch, role): 2 * quads for batch in (1, 16) for role in ROLES
    }
    assert [block.sequence for block in blocks] == list(range(1, len(blocks) + 1))
    places = [(block.batch, block.quad, block.position) for block in blocks]
    assert sorted(places) == [
        (batch, quad, place) for batch in (1, 16) for quad in range(1, quads + 1) for place in range(1, 5)
    ]


@given(seed=SEEDS, layout=st.sampled_from(LAYOUTS), pair=st.integers(1, 100))
def test_every_engine_of_a_pair_is_launched_once(seed: int, layout: Layout, pair: int) -> None:
    plan = make.plan(12, seed=seed, layout=layout)
    groups = launches(plan, pair)
    assert sorted(role for group in groups for role in group) == ["A", "B"]
    assert tuple(role for group in groups for role in group) == launch_order(plan, pair)
    assert len(groups) == (2 if layout == "alternating" else 1)


@given(seed=SEEDS, first=st.integers(0, 40))
def test_alternating_launches_in_abba_order_and_finishes_one_engine_before_the_other(seed: int, first: int) -> None:
    plan = make.plan(12, seed=seed, layout="alternating")
    orders = [launch_order(plan, 2 * first + pair) for pair in (1, 2)]
    assert "".join(role for order in orders for role in order) in {"ABBA", "BAAB"}
    roles = [block.role for block in pair_blocks(plan, 2 * first + 1)]
    assert sum(a != b for a, b in pairwise(roles)) == 1
    assert all(set(device_sets(plan, pair).values()) == {0} for pair in range(1, 9))


@given(seed=SEEDS, first=st.integers(0, 20))
def test_crossover_swaps_devices_each_pair_and_crosses_them_with_the_order(seed: int, first: int) -> None:
    plan = make.plan(12, seed=seed, layout="crossover")
    four = range(4 * first + 1, 4 * first + 5)
    for pair in four:
        assert sorted(device_sets(plan, pair).values()) == [0, 1]
    for one, next_one in ((four[0], four[1]), (four[2], four[3])):
        assert device_sets(plan, one)["A"] != device_sets(plan, next_one)["A"]
        assert launch_order(plan, one) == launch_order(plan, next_one)
    seen = {(device_sets(plan, pair)["A"], launch_order(plan, pair)[0]) for pair in four}
    assert seen == {(device, role) for device in (0, 1) for role in ROLES}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_over_seeds_either_arm_comes_first_and_takes_the_first_devices(layout: Layout) -> None:
    plans = [make.plan(12, seed=seed, layout=layout) for seed in range(40)]
    assert {launch_order(plan, 1) for plan in plans} == {("A", "B"), ("B", "A")}
    assert len({device_sets(plan, 1)["A"] for plan in plans}) == (2 if layout == "crossover" else 1)


def test_without_a_latency_half_no_block_is_planned() -> None:
    assert pair_blocks(make.plan(12, latency=None, layout="alternating"), 1) == []


@given(seed=SEEDS, cycles=st.integers(1, 50))
def test_at_every_even_number_of_pairs_each_arm_ran_first_as_often_and_no_drift_is_left(seed: int, cycles: int) -> None:
    """The places of an arm's launches in the row of all launches have the same sum, so a linear drift cancels."""
    plan = make.plan(12, seed=seed, layout="alternating")
    pairs = range(1, 2 * cycles + 1)
    assert Counter(launch_order(plan, pair)[0] for pair in pairs) == {"A": cycles, "B": cycles}
    row = [role for pair in pairs for role in launch_order(plan, pair)]
    places = {role: sum(place for place, one in enumerate(row) if one == role) for role in ROLES}
    assert places["A"] == places["B"]


@given(seed=SEEDS, pairs=st.integers(0, 50).map(lambda cycles: 2 * cycles + 1))
def test_at_an_odd_number_of_pairs_a_drift_is_left(seed: int, pairs: int) -> None:
    plan = make.plan(12, seed=seed, layout="alternating")
    signs = [1 if launch_order(plan, pair)[0] == "A" else -1 for pair in range(1, pairs + 1)]
    assert abs(sum(signs)) == 1


@given(pairs_max=st.integers(1, 100), layout=st.sampled_from(LAYOUTS), with_history=st.booleans())
def test_looks_come_where_arms_are_balanced(pairs_max: int, layout: Layout, *, with_history: bool) -> None:
    history = with_history and layout != "crossover"
    looks = looks_up_to(pairs_max, layout=layout, with_history=history)
    together = {"co_resident": 1, "alternating": 2, "crossover": 2}[layout]
    first = 2 if history else {"co_resident": 3, "alternating": 4, "crossover": 6}[layout]
    assert all(look % together == 0 for look in looks)
    assert bool(looks) == (pairs_max >= first)
    assert not looks or (looks[0] == first and pairs_max - together < looks[-1] <= pairs_max)
    assert list(looks) == sorted(set(looks))
