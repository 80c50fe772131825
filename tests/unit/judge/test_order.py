"""Blocks and starts in another order than the schedule's: each had shown its drift as the candidate's effect."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from equipoise_evals.decode.schedule import launch_order
from equipoise_evals.judge import judge
from equipoise_evals.model import BlockRecord, Invalid, LaunchRecord, Layout, Plan, Record, Role
from tests.support import records as make

LAYOUTS: tuple[Layout, ...] = ("co_resident", "alternating", "crossover")
OTHER: dict[Role, Role] = {"A": "B", "B": "A"}


def measured(plan: Plan, pairs: int = 6) -> list[Record]:
    return [*make.launches(plan, pairs), *make.blocks(plan, pairs, np.random.default_rng(3), effect=-0.02)]


def changed(
    records: list[Record],
    *,
    block: Callable[[BlockRecord], dict[str, object]] = lambda _: {},
    launch: Callable[[LaunchRecord], dict[str, object]] = lambda _: {},
) -> list[Record]:
    return [
        one.model_copy(update=block(one))
        if isinstance(one, BlockRecord)
        else one.model_copy(update=launch(one))
        if isinstance(one, LaunchRecord)
        else one
        for one in records
    ]


def why_invalid(plan: Plan, records: list[Record]) -> str:
    overall = judge(make.together(records, make.treatment()), plan).overall
    assert isinstance(overall, Invalid)
    assert overall.reason == "order_differs"
    return overall.detail


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_scheduled_order_and_its_mirror_image_are_judged(layout: Layout) -> None:
    plan = make.plan(accuracy=None, layout=layout)
    records = measured(plan)
    turned = changed(
        records,
        block=lambda one: {"role": OTHER[one.role]},
        launch=lambda one: {"started_first": not one.started_first},
    )
    for found in (records, turned):
        assert not isinstance(judge(make.together(found), plan).latency, Invalid | None)


@pytest.mark.parametrize("layout", ["co_resident", "crossover"])
def test_quads_in_the_order_aabb_do_not_cancel_a_drift(layout: Layout) -> None:
    plan = make.plan(accuracy=None, layout=layout)
    place = {("A", 1): 1, ("A", 2): 1, ("A", 3): 2, ("A", 4): 2, ("B", 1): 3, ("B", 2): 3, ("B", 3): 4, ("B", 4): 4}
    records = changed(measured(plan), block=lambda one: {"position": place[one.role, one.position]})
    assert "the blocks ran as 1:A 2:A 3:B 4:B and not as ABBA or BAAB" in why_invalid(plan, records)


def test_one_engine_at_a_time_has_half_a_quad_each() -> None:
    plan = make.plan(accuracy=None, layout="alternating")
    beside = make.plan(accuracy=None)
    records = [*make.launches(plan, 4), *make.blocks(beside, 4, np.random.default_rng(3))]
    assert "and not as AABB or BBAA" in why_invalid(plan, records)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_engine_first_in_pairs_of_which_one_turns_the_other_round_is_noted(layout: Layout) -> None:
    plan = make.plan(accuracy=None, layout=layout)
    records = changed(measured(plan), launch=lambda one: {"started_first": one.role == "A"})
    if layout == "alternating":  # there the blocks themselves say which engine ran first
        assert "turns" not in notes(plan, records)
        first = launch_order(plan, 1)[0]
        half = {True: {1: 1, 2: 2, 3: 1, 4: 2}, False: {1: 3, 2: 4, 3: 3, 4: 4}}
        records = changed(records, block=lambda one: {"position": half[one.role == first][one.position]})
        name = "baseline" if first == "A" else "candidate"
    else:
        name = "baseline"
    earlier, later = {"co_resident": (1, 2), "alternating": (1, 2), "crossover": (1, 3)}[layout]
    assert "turns" not in notes(plan, measured(plan))
    assert f"The {name} came first in launch pair {later} as in pair {earlier}" in notes(plan, records)


def notes(plan: Plan, records: Sequence[Record]) -> str:
    """What is noted beside the times."""
    verdict = judge(make.together(records), plan)
    assert verdict.latency is not None
    return " ".join(verdict.latency.evidence.notes)


def test_what_records_do_not_say_of_starts_is_not_compared() -> None:
    plan = make.plan(accuracy=None)
    both = changed(measured(plan), launch=lambda one: {"started_first": True})
    neither = changed(measured(plan), launch=lambda one: {"started_first": False})
    for records in (both, neither):
        assert "turns" not in notes(plan, records)


@pytest.mark.parametrize("odd", [{"batch": 4}, {"quad": 2}])
def test_a_quad_that_the_plan_does_not_have_is_said(odd: dict[str, object]) -> None:
    plan = make.plan(accuracy=None)
    records = changed(measured(plan), block=lambda one: odd if one.pair == 2 and one.batch == 16 else {})
    assert "the plan has no such quad" in why_invalid(plan, records)
