"""The accuracy word, from graded passes. Questions without an answer in both arms are counted apart."""

from collections.abc import Sequence
from itertools import combinations

from scipy.stats import norm

from equipoise_evals.judge.grades import GradedPass
from equipoise_evals.model import (
    ROLES,
    AccuracyEvidence,
    AccuracyInconclusive,
    AccuracyPlan,
    AccuracyVerdict,
    Identical,
    Improved,
    Interval,
    NonInferior,
    Plan,
    Regression,
)
from equipoise_evals.stats.paired import mcnemar, tango_interval

POWER = 0.8
FEW_QUESTIONS = 300
"""Below this many questions, even full agreement leaves the lower limit outside a margin of 1 pp."""


def judge_accuracy(plan: Plan, accuracy: AccuracyPlan, passes: Sequence[GradedPass]) -> AccuracyVerdict | None:
    """The word on accuracy, or None before both arms have a pass with at least one question answered in both."""
    baseline, candidate = ([graded for graded in passes if graded.role == role] for role in ROLES)
    if not baseline or not candidate:
        return None
    evidence = _evidence(plan, accuracy, baseline, candidate)
    return None if evidence is None else _word(accuracy, evidence)


def _evidence(
    plan: Plan, accuracy: AccuracyPlan, baseline: Sequence[GradedPass], candidate: Sequence[GradedPass]
) -> AccuracyEvidence | None:
    first_a, first_b = baseline[0], candidate[0]
    common = sorted(first_a.right.keys() & first_b.right.keys())
    if not common:
        return None
    both = sum(first_a.right[q] and first_b.right[q] for q in common)
    only_a = sum(first_a.right[q] and not first_b.right[q] for q in common)
    only_b = sum(first_b.right[q] and not first_a.right[q] for q in common)
    n = len(common)
    low, high = tango_interval(only_b, only_a, n, confidence=1 - plan.alpha)
    one_sided_low, _ = tango_interval(only_b, only_a, n, confidence=1 - 2 * plan.alpha)
    matches = _matches([*baseline, *candidate])
    cross = [share for name, share in matches.items() if name[0] != name[3]]
    control = [share for name, share in matches.items() if name.startswith("A") and "-A" in name]
    return AccuracyEvidence(
        asked=first_a.asked,
        graded=n,
        missing=first_a.asked - n,
        both_correct=both,
        only_baseline=only_a,
        only_candidate=only_b,
        neither=n - both - only_a - only_b,
        no_answer=(first_a.no_answer, first_b.no_answer),
        margin_pp=accuracy.margin_pp,
        difference_pp=100 * (only_b - only_a) / n,
        interval_pp=Interval(low=100 * low, high=100 * high, level=1 - plan.alpha),
        lower_pp=100 * one_sided_low,
        p_value=mcnemar(only_a, only_b).midp,
        method="tango",
        passes=min(len(baseline), len(candidate)),
        matches=matches,
        outputs_equal=n == first_a.asked and all(share == 1 for share in cross),
        control_equal=all(share == 1 for share in control) if control else None,
        detectable_pp=_detectable_pp(plan.alpha, n, only_a + only_b),
        notes=_notes(accuracy, n),
    )


def _matches(passes: Sequence[GradedPass]) -> dict[str, float]:
    """Share of identical texts among the questions answered in both passes, for each two passes."""
    shares: dict[str, float] = {}
    for one, other in combinations(passes, 2):
        common = one.texts.keys() & other.texts.keys()
        if common:
            shares[f"{one.name}-{other.name}"] = sum(one.texts[q] == other.texts[q] for q in common) / len(common)
    return shares


def _detectable_pp(alpha: float, n: int, discordant: int) -> float | None:
    """Normal approximation with the discordance seen, (z_alpha + z_power) sqrt(b + c) / n; None without any."""
    if discordant == 0:
        return None
    quantiles = float(norm.ppf(1 - alpha / 2) + norm.ppf(POWER))
    return 100 * quantiles * float(discordant**0.5) / n


def _notes(accuracy: AccuracyPlan, n: int) -> tuple[str, ...]:
    if n >= FEW_QUESTIONS:
        return ()
    low, _ = tango_interval(0, 0, n, confidence=0.9)
    return (
        f"{n} questions cannot reach the margin of {accuracy.margin_pp:g} pp: even with every answer agreeing, the "
        f"lower limit is {100 * low:.1f} pp. The word then rests on identical outputs.",
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
    return AccuracyInconclusive(
        why=f"the lower limit of {evidence.lower_pp:+.2f} pp does not clear the margin of -{accuracy.margin_pp:g} pp",
        passes_needed=_passes_needed(accuracy, evidence),
        evidence=evidence,
    )


def _passes_needed(accuracy: AccuracyPlan, evidence: AccuracyEvidence) -> int | None:
    """Passes that would decide: the second for the A/A control, else by the discordance seen; None if out of reach."""
    if evidence.outputs_equal and evidence.control_equal is None:
        return 2
    for passes in range(evidence.passes + 1, 65):
        b, c, n = (passes * x for x in (evidence.only_candidate, evidence.only_baseline, evidence.graded))
        low, high = tango_interval(b, c, n, confidence=0.95)
        if low > 0 or high < 0 or 100 * tango_interval(b, c, n, confidence=0.9)[0] > -accuracy.margin_pp:
            return passes
    return None
