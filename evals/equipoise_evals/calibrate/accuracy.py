"""Simulated accuracy comparisons through the production judge, looks and stopping included.

A question is a pair of chances of being answered rightly, one per arm. Most are certain (0 or 1, the same in both
arms); the rest are open, and differ from pass to pass as real discordant questions do.
"""

import numpy as np
from numpy.typing import NDArray

from equipoise_evals.judge import Measured, conclude
from equipoise_evals.judge.accuracy import OUTPUT_SHIFT_P
from equipoise_evals.judge.grades import GradedPass
from equipoise_evals.model import (
    ROLES,
    AccuracyPlan,
    AccuracyVerdict,
    Block,
    Frozen,
    Plan,
    QuestionPlan,
    Role,
    SamplingPlan,
    TreatmentEvidence,
    Verdict,
)

Floats = NDArray[np.float64]


class AccuracyWorld(Frozen):
    """One truth about answers.

    Attributes:
        questions: Questions asked.
        score: Share of right answers of the baseline.
        discordance: Expected share of questions that differ between a pass of each arm.
        difference: True difference of the scores, candidate minus baseline; at most ``discordance`` in size.
        launch_states: Share of open questions that follow a state of the whole launch (one of two, equally likely in
            either arm): what a kernel chosen at start does to outputs.
    """

    questions: int = 1_319
    score: float = 0.8
    discordance: float = 0.02
    difference: float = 0.0
    launch_states: float = 0.0


class AccuracyOutcome(Frozen):
    """How one simulated comparison ended.

    Attributes:
        word: The word on accuracy.
        passes: Passes per arm at the end.
        covered: Whether the interval held the true difference.
        suspected: Whether the 4-run test suspected a shift of outputs at p < 0.01.
        blocked: Whether the overall word blocked because of it.
    """

    word: str
    passes: int
    covered: bool
    suspected: bool
    blocked: bool


def accuracy_plan(plan: Plan, world: AccuracyWorld, passes_max: int) -> Plan:
    """The plan with an accuracy half over this world's questions, and no latency half."""
    accuracy = AccuracyPlan(
        questions=QuestionPlan(
            name="simulated",
            revision=None,
            test_sha256="",
            train_sha256="",
            population=world.questions,
            ids=tuple(range(world.questions)),
            shot_ids=(),
        ),
        sampling=SamplingPlan(),
        shots=0,
        concurrency=1,
        passes_max=passes_max,
        margin_pp=1.0,
    )
    return plan.model_copy(update={"accuracy": accuracy, "latency": None, "pairs_max": passes_max, "looks": ()})


def simulate_accuracy(world: AccuracyWorld, plan: Plan, rng: np.random.Generator) -> AccuracyOutcome:
    """Run passes until a look decides or the plan ends, and read how it ended."""
    if plan.accuracy is None:
        raise ValueError("the plan has no accuracy half")
    chances = _chances(world)
    states = rng.random((2, world.questions))
    treatment = TreatmentEvidence(activity="CPU", active=True, baseline_per_step={}, candidate_per_step={})
    passes: list[GradedPass] = []
    for number in range(1, plan.accuracy.passes_max + 1):
        passes += [_one_pass(world, chances[role], role, number, (states, rng)) for role in ROLES]
        if number in plan.accuracy.looks:
            verdict = conclude(Measured(invalid=None, treatment=treatment, passes=tuple(passes)), plan)
            accuracy = _word(verdict)
            if accuracy.word != "inconclusive":
                break
    interval, shift_p = accuracy.evidence.interval_pp, accuracy.evidence.output_shift_p
    return AccuracyOutcome(
        word=accuracy.word,
        passes=number,
        covered=interval.low <= 100 * world.difference <= interval.high,
        suspected=shift_p is not None and shift_p < OUTPUT_SHIFT_P,
        blocked=isinstance(verdict.overall, Block) and "output_shift" in verdict.overall.causes,
    )


def _word(verdict: Verdict) -> AccuracyVerdict:
    """The word on accuracy, which passes of both arms always have."""
    if verdict.accuracy is None:
        raise ValueError("accuracy has no word without a pass of both arms")
    return verdict.accuracy


def _chances(world: AccuracyWorld) -> dict[Role, Floats]:
    """Chance of a right answer per question and arm.

    Open questions are right with chance one half in the baseline, so each differs between two passes half the time;
    there are ``2 discordance`` of them. The difference is spread over them alone.
    """
    open_questions = min(world.questions, round(2 * world.discordance * world.questions))
    certain = world.questions - open_questions
    right = round(min(max(world.score * world.questions - open_questions / 2, 0), certain))
    baseline = np.concatenate([np.ones(right), np.zeros(certain - right), np.full(open_questions, 0.5)])
    candidate = baseline.copy()
    if open_questions:
        candidate[certain:] += world.difference * world.questions / open_questions
    return {"A": baseline, "B": np.clip(candidate, 0.0, 1.0)}


def _one_pass(
    world: AccuracyWorld, chances: Floats, role: Role, number: int, chance: tuple[Floats, np.random.Generator]
) -> GradedPass:
    states, rng = chance
    draws = rng.random(world.questions)
    is_open = (chances > 0) & (chances < 1)
    if world.launch_states:
        shared = np.flatnonzero(is_open)[: round(world.launch_states * int(is_open.sum()))]
        draws[shared] = states[rng.integers(2), shared]
    right = (draws < chances).tolist()
    return GradedPass(
        name=f"{role}{number}",
        role=role,
        origin=f"launch pair {number}",
        right=dict(enumerate(right)),
        texts={question: "right" if ok else "wrong" for question, ok in enumerate(right)},
        no_answer=0,
        missing=frozenset(),
    )
