"""Which engines import beside which launch: the rest of the pair, and as many of later pairs as wanted, to the look."""

import pytest

from equipoise_evals.decode.schedule import launch_order, launches
from equipoise_evals.model import Layout, Plan
from equipoise_service.engines.ahead import following
from tests.fakes.launching import latency_plan


def plan_of(layout: Layout) -> Plan:
    return latency_plan(layout=layout, pairs_max=6, looks=(2, 4, 6))


@pytest.mark.parametrize("layout", ["co_resident", "alternating", "crossover"])
@pytest.mark.parametrize(("pair", "last"), [(1, 2), (2, 2), (3, 4), (5, 6)])
def test_engines_of_later_launches_come_in_order_up_to_the_next_look(layout: Layout, pair: int, last: int) -> None:
    plan = plan_of(layout)
    for place, group in enumerate(launches(plan, pair)):
        rest = [(pair, role) for later in launches(plan, pair)[place + 1 :] for role in later]
        of_later_pairs = [(number, role) for number in range(pair + 1, last + 1) for role in launch_order(plan, number)]
        assert list(following(plan, pair, group, 12)) == rest + of_later_pairs
        assert list(following(plan, pair, group, 1)) == rest + of_later_pairs[:1]
        assert list(following(plan, pair, group, 0)) == rest


def test_without_a_look_before_it_the_last_pair_is_the_end() -> None:
    plan = latency_plan(pairs_max=3, looks=())
    assert [pair for pair, _ in following(plan, 1, launches(plan, 1)[0], 12)] == [2, 2, 3, 3]
