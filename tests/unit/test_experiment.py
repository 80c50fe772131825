"""The straight line over engines without processes: what it asks, in which order, and when it ends."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from equipoise_evals.decode.schedule import ABBA, BAAB, launch_order, planned_blocks
from equipoise_evals.experiment import (
    STRESS_BATCH,
    finished_pairs,
    is_decided,
    of_first_pairs,
    open_halves,
    pairs_at_once,
    pairs_expected,
    questions_record,
    run_comparison,
)
from equipoise_evals.gsm8k.measure import MOST_DIVERGENCES, STOPPED
from equipoise_evals.gsm8k.prompt import Prompt, build_prompts
from equipoise_evals.judge import judge
from equipoise_evals.model import (
    ROLES,
    AnswerRecord,
    BlockRecord,
    DivergenceRecord,
    Failed,
    GuardRecord,
    Invalid,
    KernelEvidence,
    LatencyInconclusive,
    LaunchHistory,
    LaunchRecord,
    PassRecord,
    Plan,
    Question,
    QuestionsRecord,
    Records,
    Role,
    SpentRecord,
    StopRecord,
    StressRecord,
    TreatmentRecord,
    Verdict,
)
from equipoise_evals.ports import Decoded, Engine, EngineFault, RequestFailed, World
from tests.fakes.launching import ListRecorder
from tests.integration.service.fake import Call, FakeLauncher, Hook, nothing
from tests.support import records as make


def silent(stage: str, done: int, total: int, detail: str = "") -> None:
    """Nobody listens."""


def prompts(n: int = 4, gold: str = "1") -> tuple[Prompt, ...]:
    return build_prompts([Question(id=i, question=f"q{i}", rationale="r", gold=gold) for i in range(n)], [])


async def run(hook: Hook = nothing, **changes: Any) -> tuple[Verdict, Records, Plan]:
    plan = make.plan(**({"accuracy": make.accuracy_plan(4)} | changes))
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder, hook), lambda: 0.0, recorder, silent)
    return await run_comparison(plan, prompts() if plan.accuracy else (), world), recorder.records(), plan


async def test_three_pairs_decide_a_clear_gain() -> None:
    verdict, records, plan = await run()
    assert verdict.overall.word == "ship"
    assert len(records.of(LaunchRecord)) == len(records.of(StopRecord)) == 2 * 3
    assert len(records.of(PassRecord)) == 2 * 2  # passes_max
    assert len(records.of(TreatmentRecord)) == 2  # the first pair only
    assert verdict == judge(records, plan)


async def test_blocks_run_as_planned() -> None:
    _, records, plan = await run()
    assert plan.latency is not None
    for pair in (1, 2, 3):
        ran = [(b.role, b.batch, b.sequence) for b in records.of(BlockRecord) if b.pair == pair]
        assert ran == [(b.role, b.batch, b.sequence) for b in planned_blocks(plan.latency, pair)]
    quads = {pair: tuple(b.role for b in list(planned_blocks(plan.latency, pair))[:4]) for pair in (1, 2)}
    assert set(quads.values()) == {ABBA, BAAB}


async def test_engines_that_ran_already_are_not_traced_and_say_whose_clock_it_was() -> None:
    arms = make.plan().arms
    attached = arms.model_copy(
        update={
            "baseline": arms.baseline.model_copy(update={"attach": "http://127.0.0.1:1"}),
            "candidate": arms.candidate.model_copy(update={"attach": "http://127.0.0.1:2"}),
        }
    )
    verdict, records, _ = await run(arms=attached, pairs_max=3)
    assert records.of(TreatmentRecord) == ()
    assert verdict.treatment is None
    assert verdict.overall.word == "inconclusive"
    assert {block.clock for block in records.of(BlockRecord)} == {"engine"}  # as the fake engines said


def test_either_arm_starts_first_and_a_seed_repeats() -> None:
    plan = make.plan()
    orders = [launch_order(plan, pair) for pair in range(1, 40)]
    assert [order[::-1] for order in orders[0:38:2]] == orders[1::2]  # each pair of two the other way round
    assert set(orders[0::2]) == {("A", "B"), ("B", "A")}
    assert orders == [launch_order(plan, pair) for pair in range(1, 40)]


async def test_an_inactive_treatment_ends_the_run_before_any_question_or_second_launch() -> None:
    arms = make.plan().arms
    same = arms.model_copy(update={"candidate": arms.candidate.model_copy(update={"scratch": "baseline"})})
    verdict, records, _ = await run(arms=same)
    assert verdict.overall.word == "treatment_inactive"
    assert {block.pair for block in records.of(BlockRecord)} == {1}
    assert not records.of(PassRecord)
    declared, records, _ = await run(arms=same, declared_aa=True, pairs_max=3)
    assert declared.overall.word in {"neutral", "inconclusive"}
    assert len(records.of(BlockRecord)) == 3 * 8


async def test_a_prefill_plan_warms_up_both_phases_and_times_prefills() -> None:
    seen: list[str] = []

    async def hear(call: Call) -> None:
        seen.append(call.method)

    latency = make.LATENCY.model_copy(update={"phase": "prefill"})
    verdict, records, _ = await run(hear, latency=latency, accuracy=None, pairs_max=3)
    assert verdict.latency is not None
    assert (verdict.latency.word, verdict.latency.evidence.phase) == ("faster", "prefill")
    # Attestation wants a decode step, so each engine decodes once a batch size; all blocks are prefills.
    assert seen.count("decode") == 3 * 2 * 2
    assert seen.count("prefill") == seen.count("decode") + len(records.of(BlockRecord))


async def test_no_engine_is_timed_after_it_was_traced() -> None:
    """A GPU's profiler stays attached to an engine that it has traced, and makes its steps longer."""
    seen: dict[int, list[str]] = {}

    async def hear(call: Call) -> None:
        seen.setdefault(call.pair, []).append(call.method)

    _, records, _ = await run(hear, pairs_max=3)
    assert {record.role for record in records.of(TreatmentRecord)} == {"A", "B"}
    assert "decode" not in seen[1][seen[1].index("count_kernels") :]
    assert seen[1].index("count_kernels") < seen[1].index("generate")  # no pass before the arms are known to differ
    assert not any("count_kernels" in of_pair for pair, of_pair in seen.items() if pair > 1)


async def test_evidence_that_does_not_appear_is_a_fault_before_any_question_is_asked() -> None:
    evidence = (KernelEvidence(name="fmha", change="appears"),)
    seen: list[Call] = []

    async def hear(call: Call) -> None:
        seen.append(call)

    with pytest.raises(EngineFault, match=r"kernel 'fmha' appears.*seen instead: 1 names differ") as failed:
        await run(hear, evidence=evidence)
    assert (failed.value.role, failed.value.stage) == ("B", "treatment")
    assert not [call for call in seen if call.method == "generate"]
    verdict, _, _ = await run(evidence=evidence, declared_aa=True, pairs_max=1, accuracy=None)
    assert verdict.overall.word == "inconclusive"  # a declared A/A asks for no evidence


async def test_each_pair_says_where_its_seconds_went() -> None:
    """A clock that ticks once a reading: every lap is one second, and two readings a pair are not asked for."""
    ticks = itertools.count()
    plan = make.plan(accuracy=make.accuracy_plan(4))
    recorder = ListRecorder()
    await run_comparison(plan, prompts(), World(FakeLauncher(recorder), lambda: float(next(ticks)), recorder, silent))
    spent = recorder.records().of(SpentRecord)
    assert [one.pair for one in spent] == [1, 2, 3]
    stages = ("launches", "warm_up", "blocks", "treatment", "gsm8k", "end")
    assert [tuple(one.stage_s) for one in spent] == [stages] * 3
    laps = [dict.fromkeys(stages, 1.0) | {"gsm8k": one.stage_s["gsm8k"]} for one in spent]
    assert [one.stage_s for one in spent] == laps  # passes read the clock themselves


async def test_tracing_has_its_seconds_also_where_it_ends_the_run() -> None:
    arms = make.plan().arms
    same = arms.model_copy(update={"candidate": arms.candidate.model_copy(update={"scratch": "baseline"})})
    ticks = itertools.count()
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder), lambda: float(next(ticks)), recorder, silent)
    await run_comparison(make.plan(accuracy=make.accuracy_plan(4), arms=same), prompts(), world)
    (spent,) = recorder.records().of(SpentRecord)
    assert spent.stage_s == dict.fromkeys(("launches", "warm_up", "blocks", "treatment", "end"), 1.0)  # a lap a reading


async def test_a_half_that_a_look_decided_is_measured_no_further() -> None:
    """Four equal answers are `identical` at the look at 2 passes; the speed is decided at the look at 3 pairs."""
    verdict, records, plan = await run(accuracy=make.accuracy_plan(4, passes_max=10))
    assert plan.accuracy is not None
    assert plan.accuracy.looks == (2, 4, 8, 10)
    assert verdict.overall.word == "ship"
    assert {one.pair for one in records.of(PassRecord)} == {1, 2}
    assert {block.pair for block in records.of(BlockRecord)} == {1, 2, 3}
    assert verdict == judge(records, plan)


async def test_a_pair_that_measured_one_half_only_counts_as_finished_when_a_run_goes_on() -> None:
    plan = make.plan(accuracy=make.accuracy_plan(4, passes_max=10))
    kill = Killed("decode", 2 * (4 + 8) + 4 + 3)  # four warm-ups and eight blocks a pair: in the blocks of the third
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder, kill), lambda: 0.0, recorder, silent)
    with pytest.raises(EngineFault, match="killed"):
        await run_comparison(plan, prompts(), world)
    verdict = await run_comparison(plan, prompts(), world)
    assert [launch.pair for launch in recorder.records().of(LaunchRecord)] == [1, 1, 2, 2, 3, 3, 3, 3]
    assert {one.pair for one in recorder.records().of(PassRecord)} == {1, 2}
    assert verdict.overall.word == "ship"


def test_what_stays_open_is_measured_on() -> None:
    """An undecided half stays; so does a decided one whose outputs are suspected, and both of an unjudged run."""
    plan = make.plan(accuracy=make.accuracy_plan(200, passes_max=10))
    passes = [make.one_pass(pair, role, [True] * 200) for pair in (1, 2) for role in ROLES]
    verdict = judge(make.together([make.questions(200)], make.launches(plan, 2), make.treatment(), passes), plan)
    assert verdict.accuracy is not None
    assert verdict.accuracy.word == "identical"
    assert open_halves(plan, verdict, 2) == plan.model_copy(update={"accuracy": None})
    evidence = verdict.accuracy.evidence.model_copy(update={"output_shift_p": 0.001})
    suspected = verdict.model_copy(update={"accuracy": verdict.accuracy.model_copy(update={"evidence": evidence})})
    assert open_halves(plan, suspected, 2) == plan
    unjudged = verdict.model_copy(update={"overall": Invalid(reason="disturbed", detail="levels")})
    assert open_halves(plan, unjudged, 2) == plan


def test_the_pairs_expected_are_those_of_the_half_that_needs_most_at_a_look() -> None:
    plan = make.plan(accuracy=make.accuracy_plan(200))
    blocks = make.blocks(plan, 1, np.random.default_rng(1))
    verdict = judge(make.together([make.questions(200)], make.launches(plan, 1), make.treatment(), blocks), plan)
    assert isinstance(verdict.latency, LatencyInconclusive)
    assert pairs_expected(verdict.model_copy(update={"latency": None, "accuracy": None}), plan) is None

    def expected(needed: int | None) -> int | None:
        latency = verdict.latency.model_copy(update={"pairs_needed": needed}) if verdict.latency else None
        return pairs_expected(verdict.model_copy(update={"latency": latency}), plan)

    assert [expected(needed) for needed in (2, 3, 7, 30, None)] == [3, 3, 8, 10, 10]


async def test_a_half_alone_runs_alone() -> None:
    _, records, _ = await run(accuracy=None)
    assert records.of(PassRecord) == ()
    verdict, records, _ = await run(latency=None, pairs_max=3)
    assert records.of(BlockRecord) == ()
    assert verdict.accuracy is not None
    assert verdict.accuracy.word == "identical"
    assert len(records.of(PassRecord)) == 4


async def test_a_guard_that_trips_at_the_end_is_an_engine_fault() -> None:
    seen: list[Call] = []

    async def trip(call: Call) -> None:
        seen.append(call)
        if call.method == "attest" and call.role == "A" and sum(c == call for c in seen) == 2:
            raise EngineFault("A", "guard", "dirty counters")

    with pytest.raises(EngineFault, match="dirty counters"):
        await run(trip)
    assert max(call.pair for call in seen) == 1


def test_a_disturbed_run_goes_on_and_other_reasons_end_it() -> None:
    plan = make.plan(pairs_max=3)
    records = make.together([make.questions()], make.launches(plan, 3), make.treatment(), make.equal_passes())
    open_verdict = judge(records, plan)
    for reason, decided in (("disturbed", False), ("attestation", True)):
        verdict = open_verdict.model_copy(
            update={
                "overall": judge(make.together([make.launch(1, "B", "baseline")]), plan).overall.model_copy(
                    update={"reason": reason}
                )
            }
        )
        assert is_decided(verdict, plan, 3) is decided


def test_a_regression_at_a_look_ends_the_run() -> None:
    plan = make.plan(accuracy=make.accuracy_plan(200))
    passes = [
        make.one_pass(pair, role, [i < (130 if role == "A" else 100) for i in range(200)])
        for pair in (1, 2)
        for role in ("A", "B")
    ]
    records = make.together([make.questions(200)], make.launches(plan, 2), make.treatment(), passes)
    verdict = judge(records, plan)
    assert verdict.accuracy is not None
    assert verdict.accuracy.word == "regression"
    assert is_decided(verdict, plan, 2)
    first = judge(of_first_pairs(records, 1), plan)
    assert first.accuracy is not None
    assert first.accuracy.word == "regression"
    assert not is_decided(first, plan, 1)  # one pass is no look


GENERATED = 4 * 2 * 2
"""Questions, arms and passes of ``run``."""


class Killed:
    """Ends the run at the ``at``-th call of one method, once."""

    def __init__(self, method: str, at: int) -> None:
        self.method, self.at = method, at
        self.seen = 0

    async def __call__(self, call: Call) -> None:
        if call.method == self.method:
            self.seen += 1
            if self.seen == self.at:
                raise EngineFault(call.role, "gsm8k", "killed")


async def cut_short_and_resumed(kill: Killed) -> tuple[Verdict, Records, Plan]:
    plan = make.plan(accuracy=make.accuracy_plan(4, concurrency=1))
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder, kill), lambda: 0.0, recorder, silent)
    with pytest.raises(EngineFault, match="killed"):
        await run_comparison(plan, prompts(), world)
    return await run_comparison(plan, prompts(), world), recorder.records(), plan


@pytest.mark.parametrize("at", range(1, GENERATED + 1))
async def test_a_pass_killed_at_any_answer_asks_no_answered_question_again(at: int) -> None:
    kill = Killed("generate", at)
    verdict, records, plan = await cut_short_and_resumed(kill)
    assert kill.seen == GENERATED + 1  # the answer that never came, and no other
    assert records.of(AnswerRecord) == ()
    assert [len(done.answers) for done in records.of(PassRecord)] == [4] * 4
    assert sum(done.resumed for done in records.of(PassRecord)) == (at - 1) % 4
    unbroken, _, _ = await run(accuracy=make.accuracy_plan(4, concurrency=1))
    assert (verdict.accuracy, verdict.latency) == (unbroken.accuracy, unbroken.latency)
    assert len(records.of(QuestionsRecord)) == 1
    assert verdict == judge(records, plan)


@pytest.mark.parametrize("at", [1, 7, 13, 22])
async def test_a_pair_killed_in_its_blocks_is_timed_again_whole(at: int) -> None:
    """Two warm-up decodes a batch size come before the 8 blocks of a pair: the kills meet warm-ups and blocks."""
    kill = Killed("decode", at)
    verdict, records, plan = await cut_short_and_resumed(kill)
    assert len(records.of(BlockRecord)) >= len(records.current_blocks()) == 3 * 8
    launches = [launch.pair for launch in records.of(LaunchRecord)]
    assert len(records.of(PassRecord)) == 4
    assert set(launches) == {1, 2, 3}
    unbroken, _, _ = await run()
    assert (verdict.accuracy, verdict.latency) == (unbroken.accuracy, unbroken.latency)
    assert verdict == judge(records, plan)


@pytest.mark.parametrize("at", [3, 4, 11, 12])
async def test_a_pair_whose_guards_were_not_looked_at_last_is_launched_again(at: int) -> None:
    """Each pair attests both engines after their start and again at its end: its third call and its fourth."""
    kill = Killed("attest", at)
    verdict, records, plan = await cut_short_and_resumed(kill)
    launches = [launch.pair for launch in records.of(LaunchRecord)]
    cut_short = 1 + (at - 1) // 4
    assert {pair: launches.count(pair) for pair in (1, 2, 3)} == {1: 2, 2: 2, 3: 2} | {cut_short: 4}
    assert {(guard.pair, guard.role) for guard in records.of(GuardRecord)} == {
        (pair, role) for pair in (1, 2, 3) for role in ROLES
    }
    assert verdict == judge(records, plan)


def guards(*pairs: int) -> Records:
    """What is left to see of pairs that are complete."""
    return Records(records=tuple(GuardRecord(pair=pair, role=role, state="idle") for pair in pairs for role in ROLES))


def at_once(most: int, plan: Plan, *complete: int) -> tuple[int, ...]:
    found = guards(*complete)
    return pairs_at_once(found, plan, finished_pairs(found, plan), most)


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


def test_pairs_that_make_one_unit_with_another_run_one_after_the_other() -> None:
    assert at_once(8, make.plan(accuracy=None, layout="crossover"), 1) == (2,)


async def test_a_gap_that_a_lost_machine_left_is_filled_and_nothing_else_is_launched() -> None:
    unbroken, found, plan = await run()
    kept = [record for record in found.records if getattr(record, "pair", 0) != 2]
    assert finished_pairs(Records(records=tuple(kept)), plan) == 1
    recorder = ListRecorder()
    for record in kept:
        recorder.append(record)
    world = World(FakeLauncher(recorder), lambda: 0.0, recorder, silent)
    verdict = await run_comparison(plan, prompts(), world)
    launches = [launch.pair for launch in recorder.records().of(LaunchRecord)]
    assert launches == [1, 1, 3, 3, 2, 2]
    assert verdict == judge(recorder.records(), plan)
    assert (verdict.accuracy, verdict.latency) == (unbroken.accuracy, unbroken.latency)


async def test_a_run_that_had_measured_everything_starts_no_engine() -> None:
    plan = make.plan(accuracy=make.accuracy_plan(4))
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder), lambda: 0.0, recorder, silent)
    verdict = await run_comparison(plan, prompts(), world)
    before = recorder.records()
    assert await run_comparison(plan, prompts(), world) == verdict
    assert recorder.records() == before


async def test_a_question_whose_request_failed_is_asked_again() -> None:
    plan = make.plan(accuracy=make.accuracy_plan(4, concurrency=1), latency=None, pairs_max=1)
    recorder = ListRecorder()
    recorder.append(AnswerRecord(pair=1, role="A", answer=Failed(question_id=2, error="HTTP 500")))
    recorder.append(AnswerRecord(pair=1, role="A", answer=make.answered(3, "#### 1")))
    asked = Killed("generate", -1)
    await run_comparison(plan, prompts(), World(FakeLauncher(recorder, asked), lambda: 0.0, recorder, silent))
    assert asked.seen == 4 * 2 - 1
    passes = {done.role: done for done in recorder.records().of(PassRecord)}
    assert (passes["A"].resumed, passes["B"].resumed) == (1, 0)
    assert all(answer.state == "answered" for answer in passes["A"].answers)


def with_parted_passes(n: int) -> ListRecorder:
    """A recorder that holds passes whose answers part at their second token, where the baseline's end."""
    recorder = ListRecorder()
    recorder.append(questions_record(prompts(n)))
    arms: dict[Role, tuple[int, ...]] = {"A": (1,), "B": (1, 5)}
    for role, ids in arms.items():
        done = make.one_pass(1, role, [True] * n)
        answers = tuple(answer.model_copy(update={"output_ids": ids}) for answer in done.answers)
        recorder.append(done.model_copy(update={"answers": answers}))
    return recorder


async def parted(hook: Hook = nothing) -> Records:
    """Records of a run that goes on after such passes."""
    plan = make.plan(accuracy=make.accuracy_plan(20), latency=None, pairs_max=1)
    recorder = with_parted_passes(20)
    await run_comparison(plan, prompts(20), World(FakeLauncher(recorder, hook), lambda: 0.0, recorder, silent))
    return recorder.records()


async def test_where_answers_part_both_engines_are_asked_again() -> None:
    records = await parted()
    found = records.of(DivergenceRecord)
    assert len(found) == MOST_DIVERGENCES
    assert {(one.pair, one.token_index, one.tokens) for one in found} == {(1, 1, (None, 5))}
    assert [one.question_id for one in found] == list(range(MOST_DIVERGENCES))
    assert all(one.choices["A"].logprobs == (-0.1, -2.5) and not one.errors for one in found)


async def test_equal_answers_are_not_asked_again() -> None:
    _, records, _ = await run()
    assert records.of(DivergenceRecord) == ()


async def test_an_engine_that_gives_no_log_probabilities_is_named_and_the_run_goes_on() -> None:
    async def refuse(call: Call) -> None:
        if (call.method, call.role) == ("choose", "B"):
            raise RequestFailed("HTTP 400")

    found = (await parted(refuse)).of(DivergenceRecord)
    assert found[0].errors == {"B": "HTTP 400"}
    assert set(found[0].choices) == {"A"}


async def test_a_resumed_run_asks_each_divergence_once() -> None:
    chosen: list[Call] = []
    kill = Killed("decode", 7)  # in the blocks of the first pair, after its passes

    async def count_and_kill(call: Call) -> None:
        if call.method == "choose":
            chosen.append(call)
        await kill(call)

    plan = make.plan(accuracy=make.accuracy_plan(3, passes_max=1))
    recorder = with_parted_passes(3)
    world = World(FakeLauncher(recorder, count_and_kill), lambda: 0.0, recorder, silent)
    with pytest.raises(EngineFault, match="killed"):
        await run_comparison(plan, prompts(3), world)
    await run_comparison(plan, prompts(3), world)
    assert len(chosen) == 3 * 2
    assert len(recorder.records().of(DivergenceRecord)) == 3


async def test_every_pass_but_the_first_follows_stress() -> None:
    calls: list[Call] = []

    async def note(call: Call) -> None:
        calls.append(call)

    verdict, records, plan = await run(note, stress=True)
    # passes_max is 2, pairs_max 10 and 3 pairs decide the speed: the third pair has neither a pass nor stress.
    assert [(one.pair, one.role) for one in records.of(StressRecord)] == [(2, role) for role in launch_order(plan, 2)]
    in_second = [call.method for call in calls if call.pair == 2 and call.method in {"stress", "generate", "decode"}]
    first = {name: in_second.index(name) for name in ("stress", "generate")}
    assert first["stress"] < first["generate"] == first["stress"] + 2
    assert {one.batch for one in records.of(StressRecord)} == {16}
    assert verdict.accuracy is not None
    assert verdict.accuracy.word == "identical"
    assert verdict.accuracy.evidence.notes[-1] == (
        "Every pass but the first was scored after its engine had been put under stress: 154 requests finished, 32 "
        "aborted, 0 failed; guard not applicable in the baseline, clean in the candidate."
    )


async def test_without_a_timed_batch_stress_takes_the_presets_largest() -> None:
    _, records, _ = await run(latency=None, pairs_max=2, stress=True)
    assert [one.batch for one in records.of(StressRecord)] == [STRESS_BATCH] * 2
    _, records, _ = await run(latency=None, pairs_max=2)
    assert records.of(StressRecord) == ()


async def test_stress_keeps_its_batch_once_the_speed_is_decided() -> None:
    """Three pairs decide the speed; passes, whose answers differ from arm to arm, go on to the fifth."""
    latency = make.LATENCY.model_copy(update={"batch_sizes": (1, 4), "primary_batch": 4})
    kept = [make.one_pass(pair, role, [pair % 2 == 0] * 4) for pair in (1, 2, 3, 4) for role in ROLES]
    recorder = ListRecorder()
    recorder.kept = [questions_record(prompts()), *kept]
    plan = make.plan(5, accuracy=make.accuracy_plan(4, passes_max=5), latency=latency, stress=True)
    await run_comparison(plan, prompts(), World(FakeLauncher(recorder), lambda: 0.0, recorder, silent))
    records = recorder.records()
    assert {block.pair for block in records.of(BlockRecord)} == {1, 2, 3}
    assert [(one.pair, one.batch) for one in records.of(StressRecord)] == [(5, 4)] * 2


async def test_a_fault_under_stress_ends_the_run_before_the_second_pass() -> None:
    async def trip(call: Call) -> None:
        if call.method == "stress" and call.role == "B":
            raise EngineFault("B", "stress", "after the phase aborts: dirty counters")

    recorder = ListRecorder()
    plan = make.plan(accuracy=make.accuracy_plan(4), stress=True)
    with pytest.raises(EngineFault, match="phase aborts"):
        await run_comparison(plan, prompts(), World(FakeLauncher(recorder, trip), lambda: 0.0, recorder, silent))
    assert {one.pair for one in recorder.records().of(PassRecord)} == {1}


class Disturbed:
    """Fake engines beside whose blocks there is foreign load, in these calls of ``decode`` that time a block."""

    def __init__(self, recorder: ListRecorder, calls: set[int]) -> None:
        self.launcher, self.calls, self.timed = FakeLauncher(recorder), calls, 0

    @asynccontextmanager
    async def launch_pair(self, plan: Plan, pair: int, order: tuple[Role, ...]) -> AsyncIterator[dict[Role, Engine]]:
        async with self.launcher.launch_pair(plan, pair, order) as engines:
            for engine in engines.values():
                setattr(engine, "decode", self.decoding(engine, plan))  # noqa: B010 - a fake's method is replaced
            yield engines

    def decoding(self, engine: Engine, plan: Plan) -> Callable[..., Awaitable[Decoded]]:
        decode = engine.decode

        async def decoded(batch: int, prompt_tokens: int, steps: int, seed: int) -> Decoded:
            done = await decode(batch, prompt_tokens, steps, seed)
            assert plan.latency is not None
            if steps != plan.latency.steps_per_block:
                return done
            self.timed += 1
            return done.model_copy(update={"disturbed": "a neighbour"}) if self.timed in self.calls else done

        return decoded


async def run_disturbed(calls: set[int], **fields: object) -> tuple[Verdict, Records]:
    plan = make.plan(accuracy=None, pairs_max=3, **fields)
    recorder = ListRecorder()
    launcher = Disturbed(recorder, calls)
    verdict = await run_comparison(plan, (), World(launcher, lambda: 0.0, recorder, silent))
    assert verdict == judge(recorder.records(), plan)
    return verdict, recorder.records()


async def test_a_quad_beside_foreign_load_is_run_again_and_its_last_run_counts() -> None:
    # The third block of the first quad; the repetition is blocks 5 to 8.
    verdict, records = await run_disturbed({3})
    blocks = records.of(BlockRecord)
    assert [block.disturbed for block in blocks[:4]] == [None, None, "a neighbour", None]
    first = [(block.pair, block.batch, block.quad, block.attempt) for block in blocks[:8]]
    assert first == [(1, 1, 1, 1)] * 4 + [(1, 1, 1, 2)] * 4
    assert [block.role for block in blocks[:4]] == [block.role for block in blocks[4:8]]
    assert len(blocks) == 3 * 8 + 4
    assert records.current_blocks() == blocks[4:]
    assert verdict.latency is not None
    assert verdict.latency.evidence.notes == ()


async def test_what_stays_disturbed_is_judged_and_said_and_repetitions_have_an_end() -> None:
    verdict, records = await run_disturbed(set(range(1, 1000)))
    # Two batch sizes of one quad each: two repetitions in each of three pairs.
    assert len(records.of(BlockRecord)) == 3 * (8 + 8)
    assert verdict.latency is not None
    assert verdict.latency.evidence.notes == (
        "24 of 24 blocks ran beside foreign load, also when repeated (a neighbour): the spread between launch pairs "
        "contains it.",
    )
    latency = make.LATENCY.model_copy(update={"quads_per_pair": 3})
    _, records = await run_disturbed(set(range(1, 1000)), latency=latency)
    assert len(records.of(BlockRecord)) == 3 * (2 * 3 * 4 + 2 * 4)


async def test_alternating_measures_one_engine_after_the_other() -> None:
    running: list[tuple[str, int]] = []

    async def note(call: Call) -> None:
        if not running or running[-1] != (call.role, call.pair):
            running.append((call.role, call.pair))

    verdict, records, plan = await run(note, layout="alternating", pairs_max=6)
    assert running == [(role, pair) for pair in range(1, 7) for role in launch_order(plan, pair)]
    assert (verdict.overall.word, verdict.cost.launch_pairs) == ("ship", 6)
    assert verdict.latency is not None
    assert verdict.latency.evidence.busy.units == 3
    # Each engine of a pair holds the device for the fake launcher's second, one after the other.
    assert verdict.cost.device_seconds == 6 * 2 * 1.0
    assert [block.role for block in records.of(BlockRecord) if block.pair == 1] == 4 * [
        launch_order(plan, 1)[0]
    ] + 4 * [launch_order(plan, 1)[1]]
    assert len(records.of(TreatmentRecord)) == 2
    assert verdict == judge(records, plan)


async def test_each_alternating_engine_counts_its_own_blocks() -> None:
    told: list[tuple[int, int]] = []

    def progress(stage: str, done: int, total: int, detail: str = "") -> None:
        if stage == "decode" and detail:
            told.append((done, total))

    plan = make.plan(6, layout="alternating", accuracy=None)
    recorder = ListRecorder()
    await run_comparison(plan, (), World(FakeLauncher(recorder), lambda: 0.0, recorder, progress))
    assert told == [(done, 4) for done in range(4)] * 2 * 6  # two batches of half a quad, two engines, six pairs


async def test_alternating_ends_at_an_inactive_treatment_once_the_second_engine_was_counted() -> None:
    arms = make.plan().arms
    same = arms.model_copy(update={"candidate": arms.candidate.model_copy(update={"scratch": "baseline"})})
    verdict, records, _ = await run(arms=same, layout="alternating", pairs_max=6)
    assert verdict.overall.word == "treatment_inactive"
    assert {block.pair for block in records.of(BlockRecord)} == {1}


async def test_alternating_holds_declared_evidence_against_both_traces_once_they_are_there() -> None:
    evidence = (KernelEvidence(name="fmha", change="appears"),)
    plan = make.plan(6, layout="alternating", evidence=evidence, accuracy=make.accuracy_plan(4))
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder), lambda: 0.0, recorder, silent)
    with pytest.raises(EngineFault, match=r"kernel 'fmha' appears") as failed:
        await run_comparison(plan, prompts(), world)
    assert (failed.value.role, failed.value.stage) == ("B", "treatment")
    assert [one.role for one in recorder.records().of(PassRecord)] == [launch_order(plan, 1)[0]]
    invalid = judge(recorder.records(), plan).overall
    assert isinstance(invalid, Invalid)
    assert invalid.reason == "evidence_missing"


@pytest.mark.parametrize("at", [3, 9, 15])
async def test_an_alternating_pair_cut_short_is_launched_again_whole(at: int) -> None:
    """A pair decodes a warm-up of two batches and 4 blocks in each engine: the kills meet either engine."""
    kill = Killed("decode", at)
    plan = make.plan(6, layout="alternating", accuracy=make.accuracy_plan(4))
    recorder = ListRecorder()
    world = World(FakeLauncher(recorder, kill), lambda: 0.0, recorder, silent)
    with pytest.raises(EngineFault, match="killed"):
        await run_comparison(plan, prompts(), world)
    verdict = await run_comparison(plan, prompts(), world)
    unbroken, _, _ = await run(layout="alternating", pairs_max=6)
    assert (verdict.accuracy, verdict.latency) == (unbroken.accuracy, unbroken.latency)
    assert len(recorder.records().current_blocks()) == 6 * 8


async def test_where_alternating_answers_part_only_the_engine_that_runs_is_asked_again() -> None:
    plan = make.plan(6, accuracy=make.accuracy_plan(3, passes_max=1), latency=None, layout="alternating")
    first, second = launch_order(plan, 1)
    recorder = with_parted_passes(3)
    kept = next(one for one in recorder.kept if isinstance(one, PassRecord) and one.role == "B")
    # The fake engines answer with token 1 alone, so that its answers part from the kept ones at their second token.
    recorder.kept = [recorder.kept[0], kept.model_copy(update={"role": first})]
    await run_comparison(plan, prompts(3), World(FakeLauncher(recorder), lambda: 0.0, recorder, silent))
    found = recorder.records().of(DivergenceRecord)
    assert len(found) == 3
    assert all(set(one.choices) == {second} and one.errors == {first: STOPPED} for one in found)


async def test_a_crossover_runs_both_engines_at_once_and_counts_both_device_sets() -> None:
    verdict, records, plan = await run(layout="crossover", pairs_max=6)
    assert verdict.overall.word == "ship"
    assert verdict.cost.device_seconds == 6 * 2 * 1.0
    assert verdict == judge(records, plan)
    early, _, _ = await run(layout="crossover", pairs_max=1)
    assert early.latency is None  # no unit yet


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"looks": (3,)}, "must be even"),
        ({"history": {"busy": LaunchHistory(d0=4, s0=0.001, histories=3, source="s")}}, "history"),
        ({"arms": "attached"}, "co_resident"),
    ],
)
def test_a_layout_that_cannot_be_had_is_no_plan(changes: dict[str, Any], says: str) -> None:
    if "arms" in changes:
        arms = make.plan().arms
        values = {
            name: getattr(arms, name).model_copy(update={"attach": "http://127.0.0.1:1"})
            for name in type(arms).model_fields
        }
        changes = {"arms": arms.model_copy(update=values)}
    with pytest.raises(ValueError, match=says):
        make.plan(10, layout="crossover", **changes)
