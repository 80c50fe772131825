"""The accuracy word, from graded passes: that of the last planned look, whatever came after it.

Questions without an answer are counted apart.
"""

from collections import Counter
from collections.abc import Sequence

from equipoise_evals.judge.grades import GradedPass
from equipoise_evals.judge.measure import Measured
from equipoise_evals.judge.outputs import compare_outputs, permutation_p
from equipoise_evals.judge.scores import Scores, compare_scores
from equipoise_evals.judge.validity import missing_in
from equipoise_evals.model import (
    ROLE_NAMES,
    ROLES,
    AccuracyEvidence,
    AccuracyInconclusive,
    AccuracyPlan,
    AccuracyVerdict,
    DecidedAccuracy,
    Identical,
    Improved,
    NonInferior,
    Plan,
    Regression,
    Role,
    StressRecord,
)
from equipoise_evals.stats.paired import tango_interval

FEW_QUESTIONS = 300
"""Below this many questions, even full agreement leaves the lower limit outside a margin of 1 pp."""

OUTPUT_SHIFT_P = 0.01
"""p of the 4-run test below which a shift of outputs is suspected."""

PASSES_WITHIN_REACH = 64


def judge_accuracy(plan: Plan, accuracy: AccuracyPlan, measured: Measured) -> AccuracyVerdict | None:
    """The word on accuracy, or None before both arms have a pass.

    Fewer questions lack an answer than are asked (``missing_answers``), so all passes have some in common.

    Passes after the last look reached change nothing before the next one, since no error is spent on them. Only
    whether a suspected shift of outputs is confirmed rests on all passes: that asks for launches, not for looks.
    """
    arms = [[graded for graded in measured.passes if graded.role == role] for role in ROLES]
    finished = min(map(len, arms))
    look = max((look for look in accuracy.looks if look <= finished), default=None)
    baseline, candidate = (arm[: look or finished] for arm in arms)
    if not finished:
        return None
    scores = compare_scores(plan.alpha, accuracy, baseline, candidate)
    evidence = _evidence(plan, accuracy, scores, (baseline, candidate), permutation_p(*arms))
    verdict = _word(accuracy, evidence) if look else _before_the_first_look(accuracy, evidence)
    notes = (*evidence.notes, *_would_not_hold(verdict, scores), *_stress(measured.stress))
    return verdict.model_copy(update={"evidence": evidence.model_copy(update={"notes": notes})})


def _evidence(
    plan: Plan,
    accuracy: AccuracyPlan,
    scores: Scores,
    arms: tuple[Sequence[GradedPass], Sequence[GradedPass]],
    permutation: float | None,
) -> AccuracyEvidence:
    baseline, candidate = arms
    asked, missing = len(accuracy.questions.ids), len(missing_in([*baseline, *candidate]))
    outputs = compare_outputs(baseline, candidate, seed=plan.seed)
    suspected = outputs.shift_p is not None and outputs.shift_p < OUTPUT_SHIFT_P
    return AccuracyEvidence(
        asked=asked,
        graded=scores.graded,
        compared=scores.compared,
        missing=missing,
        both_correct=scores.both,
        only_baseline=scores.only_baseline,
        only_candidate=scores.only_candidate,
        neither=scores.graded - scores.both - scores.only_baseline - scores.only_candidate,
        no_answer=(baseline[0].no_answer, candidate[0].no_answer),
        scores=scores.by_pass,
        score_sd_pp=scores.sd_pp,
        binomial_sd_pp=scores.binomial_sd_pp,
        margin_pp=accuracy.margin_pp,
        difference_pp=scores.difference_pp,
        interval_pp=scores.interval_pp,
        lower_pp=scores.lower_pp,
        method=scores.method,
        p_value=scores.p_value,
        sign_flip_p=scores.sign_flip_p,
        differing=scores.differing,
        passes=len(baseline),
        matches=outputs.matches,
        outputs_equal=outputs.cross_equal and missing == 0,
        control_equal=outputs.control_equal,
        output_shift_p=outputs.shift_p,
        launch_permutation_p=permutation,
        detectable_pp=scores.detectable_pp,
        notes=(*_few_questions(accuracy, scores.graded), *_suspicion(suspected, permutation)),
    )


def _few_questions(accuracy: AccuracyPlan, graded: int) -> tuple[str, ...]:
    if graded >= FEW_QUESTIONS:
        return ()
    low, _ = tango_interval(0, 0, graded, confidence=0.9)
    return (
        f"{graded} questions cannot reach the margin of {accuracy.margin_pp:g} pp: even with every answer agreeing, "
        f"the one-sided 95 % limit of a single look is {100 * low:.1f} pp. The word then rests on identical outputs.",
    )


def _suspicion(suspected: bool, permutation_p: float | None) -> tuple[str, ...]:
    if not suspected:
        return ()
    confirmed = (
        "fewer than 5 launches per arm cannot confirm it"
        if permutation_p is None
        else (f"launch by launch its p is {permutation_p:.3f}")
    )
    return (f"The arms' outputs differ more than an arm's outputs differ from themselves: suspected, {confirmed}.",)


def _would_not_hold(verdict: AccuracyVerdict, scores: Scores) -> tuple[str, ...]:
    """That a word rests on what the missing answers would have been, where it does."""
    low, lower = scores.worst_low_pp, scores.worst_lower_pp
    if isinstance(verdict, Improved) and low is not None and low <= 0:
        word, limit = "The improvement", f"the interval would then begin at {low:+.2f} pp"
    elif isinstance(verdict, NonInferior) and lower is not None and lower <= -verdict.evidence.margin_pp:
        word, limit = "That accuracy is not worse by the margin", f"the lower limit would then be {lower:+.2f} pp"
    else:
        return ()
    return (
        f"{word} would not hold if all missing answers had been right in the baseline and wrong in the candidate: "
        f"{limit}.",
    )


def _stress(stressed: Sequence[StressRecord]) -> tuple[str, ...]:
    """That later passes followed stress, how its requests ended, and what the guards said."""
    if not stressed:
        return ()
    ends: Counter[str] = Counter()
    guards: dict[Role, set[str]] = {}
    for record in stressed:
        for phase in record.phases:
            ends.update(finished=phase.finished, aborted=phase.aborted, failed=phase.failed)
            guards.setdefault(record.role, set()).add(phase.guard.replace("_", " "))
    said = ", ".join(
        f"{' and '.join(sorted(states))} in the {ROLE_NAMES[role]}" for role, states in sorted(guards.items())
    )
    return (
        f"Every pass but the first was scored after its engine had been put under stress: {ends['finished']} requests "
        f"finished, {ends['aborted']} aborted, {ends['failed']} failed; guard {said}.",
    )


def output_shift_confirmed(evidence: AccuracyEvidence, alpha: float) -> bool:
    """Whether the 4-run test suspects a shift of outputs and the launch-level permutation agrees."""
    shift, permutation = evidence.output_shift_p, evidence.launch_permutation_p
    return shift is not None and shift < OUTPUT_SHIFT_P and permutation is not None and permutation < alpha


def _before_the_first_look(accuracy: AccuracyPlan, evidence: AccuracyEvidence) -> AccuracyInconclusive:
    passes, decided = _passes_needed(accuracy, evidence)
    return AccuracyInconclusive(
        why=f"no look has been reached: the first comes after {accuracy.looks[0]} passes per arm",
        passes_needed=passes,
        decides_as=decided,
        evidence=evidence,
    )


def _word(accuracy: AccuracyPlan, evidence: AccuracyEvidence) -> AccuracyVerdict:
    if evidence.interval_pp.high < 0:
        return Regression(evidence=evidence)
    if evidence.outputs_equal and evidence.control_equal:
        return Identical(evidence=evidence)
    if evidence.interval_pp.low > 0:
        return Improved(evidence=evidence)
    if evidence.lower_pp > -evidence.margin_pp:
        return NonInferior(evidence=evidence)
    passes, decided = _passes_needed(accuracy, evidence)
    return AccuracyInconclusive(
        why=f"the one-sided lower limit of {evidence.lower_pp:+.2f} pp does not clear the margin of "
        f"-{accuracy.margin_pp:g} pp",
        passes_needed=passes,
        decides_as=decided,
        evidence=evidence,
    )


def _passes_needed(accuracy: AccuracyPlan, evidence: AccuracyEvidence) -> tuple[int | None, DecidedAccuracy | None]:
    """Passes at the look that would decide, and as what: the second for the A/A control, else by the discordance seen.

    More passes sharpen each question's own rate, so the gain is at most that of as many more questions; the answer is
    therefore a lower bound, and says so in the words.
    """
    if evidence.outputs_equal and evidence.control_equal is None:
        return 2, None
    for passes in range(evidence.passes + 1, PASSES_WITHIN_REACH + 1):
        if passes < accuracy.passes_max and passes not in accuracy.looks:
            continue
        b, c, n = (passes * x for x in (evidence.only_candidate, evidence.only_baseline, evidence.graded))
        low, high = tango_interval(b, c, n, confidence=0.95)
        if high < 0:
            return passes, "regression"
        if low > 0:
            return passes, "improved"
        if 100 * tango_interval(b, c, n, confidence=0.9)[0] > -accuracy.margin_pp:
            return passes, "non_inferior"
    return None, None
