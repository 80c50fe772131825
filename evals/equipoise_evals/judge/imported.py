"""A verdict on result files of other tools. It may block and never ships: nobody has shown what ran.

Runs of the two arms are paired in the order given. They are independent, so any pairing that does not look at the times
is valid, and a t interval over the pairs holds whatever the arms' variances are (Scheffe, 1943, of which pairing equal
numbers is the simple case); it gives away some power.
"""

import math
from collections import Counter
from collections.abc import Sequence

from equipoise_evals.judge.accuracy import judge_accuracy
from equipoise_evals.judge.canonical import canonical
from equipoise_evals.judge.contrasts import Contrasts, PairContrast, units_of
from equipoise_evals.judge.grades import GradedPass
from equipoise_evals.judge.latency import judge_latency
from equipoise_evals.judge.levels import look_levels
from equipoise_evals.judge.measure import Measured
from equipoise_evals.judge.overall import judge_overall
from equipoise_evals.judge.pooled import pooled
from equipoise_evals.judge.validity import missing_answers
from equipoise_evals.judge.words import words
from equipoise_evals.model import (
    ROLE_NAMES,
    ROLES,
    AccuracyPlan,
    ArmPair,
    ArmSpec,
    Cost,
    Inconclusive,
    Invalid,
    LatencyContrast,
    LatencyPlan,
    LatencyVerdict,
    ModelRef,
    Plan,
    QuestionPlan,
    Role,
    SamplingPlan,
    Verdict,
)
from equipoise_evals.model.imported import ImportedRun

FEWEST_RUNS = 3
"""Below this many runs of each arm an interval over runs is too wide to say anything."""
NOT_OURS = "not recorded"


class ImportRefused(ValueError):
    """These runs cannot be compared; the text says why."""


def judge_imported(
    baseline: Sequence[ImportedRun],
    candidate: Sequence[ImportedRun],
    *,
    margin_latency: float,
    margin_accuracy_pp: float,
) -> tuple[Verdict, Plan]:
    """The verdict on two arms' runs, and the plan that it amounts to.

    Raises:
        ImportRefused: Fewer than 3 runs of an arm, unequal numbers, a run given twice, several tools, or
            set-ups that differ.
    """
    runs: dict[Role, Sequence[ImportedRun]] = {"A": baseline, "B": candidate}
    require_comparable(runs)
    plan = _plan(runs, margin_latency, margin_accuracy_pp)
    passes = _passes(runs, plan.accuracy) if plan.accuracy else ()
    invalid = _failed(runs, plan) or (missing_answers(plan.accuracy, passes) if plan.accuracy else None)
    measured = Measured(invalid, None, passes=passes)
    accuracy = judge_accuracy(plan, plan.accuracy, measured) if plan.accuracy and invalid is None else None
    latency = _latency(runs, plan) if invalid is None else None
    overall = judge_overall(plan, invalid, None, accuracy=accuracy, latency=latency)
    said = words(overall, latency, accuracy)
    advice = said.what_to_do
    if isinstance(overall, Inconclusive):
        advice += " Results of other tools can block a candidate and never ship it: let Equipoise launch both engines."
    verdict = Verdict(
        overall=overall,
        headline=f"Unattested ({baseline[0].tool}): {said.headline}",
        how_sure=said.how_sure,
        what_to_do=advice,
        latency=latency,
        accuracy=accuracy,
        treatment=None,
        cost=Cost(device_seconds=0.0, launch_pairs=0),
        unattested=True,
    )
    return canonical(verdict), plan


def require_comparable(runs: dict[Role, Sequence[ImportedRun]]) -> None:
    """Raise ``ImportRefused`` unless these are enough runs, each given once, of one tool with one set-up."""
    for role in ROLES:
        if len(runs[role]) < FEWEST_RUNS:
            raise ImportRefused(
                f"{len(runs[role])} runs of the {ROLE_NAMES[role]}: at least {FEWEST_RUNS} of each arm are needed, "
                "since what one run shows may be its own"
            )
        given = Counter(run.source for run in runs[role])
        if twice := [source for source, times in given.items() if times > 1]:
            raise ImportRefused(
                f"{' and '.join(twice)} counted more than once for the {ROLE_NAMES[role]}: copies of a run say nothing "
                "of how runs differ; give another result file for each run"
            )
    if len(runs["A"]) != len(runs["B"]):
        raise ImportRefused(
            f"{len(runs['A'])} runs of the baseline and {len(runs['B'])} of the candidate: give as many"
        )
    everyone = (*runs["A"], *runs["B"])
    first = everyone[0]
    for run in everyone[1:]:
        if run.tool != first.tool:
            raise ImportRefused(
                f"{first.source} is of {first.tool} and {run.source} of {run.tool}: give files of one tool"
            )
        differing = [
            f"{name} {first.setup.get(name)!r} and {run.setup.get(name)!r}"
            for name in sorted(first.setup.keys() | run.setup.keys())
            if first.setup.get(name) != run.setup.get(name)
        ]
        if differing:
            raise ImportRefused(f"{first.source} and {run.source} have different set-ups: {'; '.join(differing)}")


def _plan(runs: dict[Role, Sequence[ImportedRun]], margin_latency: float, margin_accuracy_pp: float) -> Plan:
    first, count = runs["A"][0], len(runs["A"])
    batch = first.concurrency or 1  # a plan has one, also where the tool set no limit
    timed = all(run.tpot_ms is not None for role in ROLES for run in runs[role])
    ids = tuple(sorted({question for role in ROLES for run in runs[role] for question in run.right}))
    latency = LatencyPlan(
        batch_sizes=(batch,), primary_batch=batch, quads_per_pair=1, prompt_tokens=1, steps_per_block=8, warmup_steps=1,
        margin=margin_latency,
    )  # fmt: skip
    questions = QuestionPlan(
        name=first.tool, revision=None, test_sha256=str(first.setup.get("questions_sha256", NOT_OURS)),
        train_sha256=NOT_OURS, population=max(1, len(ids)), ids=ids or (0,), shot_ids=(),
    )  # fmt: skip
    accuracy = AccuracyPlan(
        questions=questions,
        sampling=SamplingPlan(),
        shots=0,
        concurrency=1,
        passes_max=count,
        margin_pp=margin_accuracy_pp,
    )
    return Plan(
        preset="imported",
        model=ModelRef(name=str(first.setup.get("model")), source="attached", path=NOT_OURS, revision=NOT_OURS),
        arms=ArmPair(
            baseline=ArmSpec(name="baseline", scratch="upstream"),
            candidate=ArmSpec(name="candidate", scratch="upstream"),
        ),
        declared_aa=False,
        pairs_max=count,
        looks=(count,),
        seed=1,
        accuracy=accuracy if ids else None,
        latency=latency if timed or not ids else None,
    )


def _failed(runs: dict[Role, Sequence[ImportedRun]], plan: Plan) -> Invalid | None:
    limit = plan.accuracy.missing_share_max if plan.accuracy else 0.01
    for role in ROLES:
        for run in runs[role]:
            if run.failed and (run.requests is None or run.failed > limit * run.requests):
                asked = "an unknown number of" if run.requests is None else run.requests
                return Invalid(
                    reason="missing_answers",
                    detail=f"{run.failed} of {asked} requests of {run.source} failed; at most {limit:.1%} may",
                )
    return None


def _passes(runs: dict[Role, Sequence[ImportedRun]], accuracy: AccuracyPlan) -> tuple[GradedPass, ...]:
    """The runs as passes; what one of them graded and another did not is missing there."""
    asked = frozenset(accuracy.questions.ids)
    return tuple(
        GradedPass(
            name=f"{role}{number}",
            role=role,
            origin=run.source,
            right=run.right,
            texts=run.texts,
            no_answer=None,
            missing=asked - run.right.keys(),
        )
        for role in ROLES
        for number, run in enumerate(runs[role], start=1)
    )


def _latency(runs: dict[Role, Sequence[ImportedRun]], plan: Plan) -> LatencyVerdict | None:
    """By the mean time per output token, held against the mean end-to-end latency; the first token is shown beside.

    Without the latter the time per output token stands for both, and the words name it alone.
    """
    if plan.latency is None:
        return None
    batch = plan.latency.primary_batch
    tpot = _contrasts(runs, "tpot_ms")
    if not tpot:
        return None
    contrasts: Contrasts = {
        ("busy", batch): tpot,
        ("period", batch): _contrasts(runs, "e2e_ms") or tpot,
        ("client_tpot", batch): [],
    }
    verdict = judge_latency(plan, plan.latency, Measured(None, None, contrasts, clock="imported"))
    first_token = units_of(_contrasts(runs, "ttft_ms"), plan.pairs_per_unit)
    stated = runs["A"][0].concurrency
    beside = (pooled(first_token, "client_ttft", stated, look_levels(plan, len(tpot)), None),) if first_token else ()
    return None if verdict is None else _as_stated(verdict, stated, beside)


def _as_stated(verdict: LatencyVerdict, concurrency: int | None, beside: tuple[LatencyContrast, ...]) -> LatencyVerdict:
    """With other contrasts beside, and no batch where the tool states none."""
    busy, period = (
        one.model_copy(update={"batch": concurrency}) for one in (verdict.evidence.busy, verdict.evidence.period)
    )
    evidence = verdict.evidence.model_copy(update={"busy": busy, "period": period, "secondary": beside})
    return verdict.model_copy(update={"evidence": evidence})


def _contrasts(runs: dict[Role, Sequence[ImportedRun]], metric: str) -> list[PairContrast]:
    """One contrast per pair of runs; none at all where a run does not state the metric."""
    found = []
    for number, pair in enumerate(zip(runs["A"], runs["B"], strict=True), start=1):
        a, b = (getattr(run, metric) for run in pair)
        if a is None or b is None:
            return []
        ratio = math.log(b / a)
        found.append(
            PairContrast(
                pair=number, log_ratio=ratio, median_log_ratio=ratio, baseline_us=1_000 * a, candidate_us=1_000 * b
            )
        )
    return found
