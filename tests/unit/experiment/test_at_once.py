"""Launch pairs that may be measured at the same time, and what becomes of the gaps that a lost machine leaves."""

from equipoise_evals.experiment import finished_pairs, pairs_at_once, run_comparison
from equipoise_evals.judge import judge
from equipoise_evals.model import ROLES, GuardRecord, LaunchRecord, Plan, Records
from equipoise_evals.ports import World
from tests.fakes.launching import ListRecorder
from tests.integration.service.fake import FakeLauncher
from tests.support import records as make
from tests.support.experiment import prompts, run, silent


def guards(*pairs: int) -> Records:
    """What is left to see of pairs that are complete."""
    return Records(records=tuple(GuardRecord(pair=pair, role=role, state="idle") for pair in pairs for role in ROLES))


def at_once(most: int, plan: Plan, *complete: int) -> tuple[int, ...]:
    found = guards(*complete)
    return pairs_at_once(found, plan, finished_pairs(found), most)


def test_pairs_up_to_the_next_look_may_be_measured_at_once_but_for_the_first() -> None:
    speed = make.plan(accuracy=None)
    assert at_once(8, speed) == (1,)
    assert at_once(8, speed, 1) == (2, 3)
    assert at_once(1, speed, 1) == (2,)
    assert at_once(8, speed, 1, 3) == (2,)  # one that is complete already stays
    assert at_once(8, speed, 1, 2, 3) == (4,)
    assert at_once(8, speed, *range(1, 7)) == (7, 8)
    assert at_once(3, make.plan(20, accuracy=None, looks=(3,)), *range(1, 12)) == (12, 13, 14)
    # One that was measured and is not complete, since its arms do not differ, is not measured again and again.
    assert pairs_at_once(guards(), speed, 1, 8) == (2, 3)


def test_a_look_at_the_passes_comes_before_more_of_them_are_made() -> None:
    two, more = make.accuracy_plan(passes_max=2), make.accuracy_plan(passes_max=4)
    assert at_once(8, make.plan(accuracy=two), 1) == (2, 3)  # the third pair has no pass at all
    assert at_once(8, make.plan(accuracy=more), 1) == (2,)
    assert at_once(8, make.plan(accuracy=two, latency=None), 1) == (2,)


def test_pairs_of_which_one_balances_another_run_one_after_the_other() -> None:
    assert at_once(8, make.plan(accuracy=None, layout="crossover"), 1) == (2,)
    assert at_once(8, make.plan(accuracy=None, layout="alternating"), 1) == (2,)


async def test_a_gap_that_a_lost_machine_left_is_filled_and_nothing_else_is_launched() -> None:
    unbroken, found, plan = await run()
    kept = [record for record in found.records if getattr(record, "pair", 0) != 2]
    assert finished_pairs(Records(records=tuple(kept))) == 1
    recorder = ListRecorder()
    for record in kept:
        recorder.append(record)
    world = World(FakeLauncher(recorder), lambda: 0.0, recorder, silent)
    verdict = await run_comparison(plan, prompts(), world)
    launches = [launch.pair for launch in recorder.records().of(LaunchRecord)]
    assert launches == [1, 1, 3, 3, 2, 2]
    assert verdict == judge(recorder.records(), plan)
    assert (verdict.accuracy, verdict.latency) == (unbroken.accuracy, unbroken.latency)
