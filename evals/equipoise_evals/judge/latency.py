"""The latency word. The unit is the launch pair; the rule is that of the design: the first word that holds wins."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Literal

from scipy.stats import t as student_t

from equipoise_evals.judge.contrasts import Contrasts, PairContrast
from equipoise_evals.judge.levels import LookLevels, look_levels
from equipoise_evals.judge.outlook import pairs_needed
from equipoise_evals.model import (
    Equivalent,
    Faster,
    Interval,
    LatencyContrast,
    LatencyEvidence,
    LatencyInconclusive,
    LatencyPlan,
    LatencyVerdict,
    Metric,
    Plan,
    Slower,
)
from equipoise_evals.stats.exact import detectable_log_ratio
from equipoise_evals.stats.latency import RatioInterval, ratio_interval
from equipoise_evals.stats.multiple import holm

ENGINE_METRICS: tuple[Metric, ...] = ("busy", "period")
Size = Literal["material", "small", "unclear"]

POWER = 0.8
LARGEST_LOG = math.log(100)
"""A detectable effect beyond a hundredfold is none."""


def judge_latency(plan: Plan, latency: LatencyPlan, contrasts: Contrasts) -> LatencyVerdict | None:
    """The word on latency, or None before the first complete launch pair."""
    evidence = _evidence(plan, latency, contrasts)
    return None if evidence is None else _word(plan, evidence)


def _evidence(plan: Plan, latency: LatencyPlan, contrasts: Contrasts) -> LatencyEvidence | None:
    pairs = len(contrasts["busy", latency.primary_batch])
    if pairs == 0:
        return None
    levels = look_levels(plan, pairs)

    def contrast(metric: Metric, batch: int) -> LatencyContrast | None:
        measured = contrasts[metric, batch]
        return _contrast(measured, metric, batch, levels) if len(measured) == pairs else None

    busy, period = contrast("busy", latency.primary_batch), contrast("period", latency.primary_batch)
    if busy is None or period is None:
        return None
    others = [batch for batch in latency.batch_sizes if batch != latency.primary_batch]
    secondary = [contrast(metric, batch) for batch in others for metric in ENGINE_METRICS]
    return LatencyEvidence(
        margin=latency.margin,
        look=pairs,
        busy=busy,
        period=period,
        client=contrast("client_tpot", latency.primary_batch),
        secondary=_with_holm([c for c in secondary if c is not None], latency.margin),
    )


def _contrast(pairs: Sequence[PairContrast], metric: Metric, batch: int, levels: LookLevels) -> LatencyContrast:
    logs = [pair.log_ratio for pair in pairs]
    fitted = ratio_interval(logs, confidence=levels.difference)
    several = len(logs) > 1
    return LatencyContrast(
        metric=metric,
        batch=batch,
        pairs=len(pairs),
        effect=fitted.ratio - 1,
        interval=_interval(fitted) if several else None,
        equivalence=_interval(ratio_interval(logs, confidence=levels.equivalence)) if several else None,
        launch_sd=fitted.sd if several else None,
        per_pair=tuple(math.expm1(log) for log in logs),
        baseline_us=fmean(pair.baseline_us for pair in pairs),
        candidate_us=fmean(pair.candidate_us for pair in pairs),
        median_effect=math.expm1(fmean(pair.median_log_ratio for pair in pairs)),
        detectable=_detectable(fitted.sd, len(logs), levels.difference) if several else None,
    )


def _interval(fitted: RatioInterval) -> Interval | None:
    """The interval of the effect; None where two wildly different pairs at a strict level bound nothing."""
    if not math.isfinite(fitted.high):
        return None
    return Interval(low=fitted.low - 1, high=fitted.high - 1, level=fitted.level)


def _detectable(sd: float, pairs: int, level: float) -> float | None:
    if sd == 0:
        return 0.0
    effect = math.expm1(min(detectable_log_ratio(sd, pairs, confidence=level, power=POWER), LARGEST_LOG))
    return effect if effect < math.expm1(LARGEST_LOG) else None


def _with_holm(contrasts: Iterable[LatencyContrast], margin: float) -> tuple[LatencyContrast, ...]:
    """Secondary contrasts with p for 'not slower than +m', adjusted within the family."""
    family = list(contrasts)
    p_values = [_p_slower(contrast, margin) for contrast in family]
    if not family or any(p is None for p in p_values):
        return tuple(family)
    adjusted = holm([p for p in p_values if p is not None])
    return tuple(c.model_copy(update={"holm_p": p}) for c, p in zip(family, adjusted, strict=True))


def _p_slower(contrast: LatencyContrast, margin: float) -> float | None:
    """One-sided p of H0: the true ratio is at most 1 + m. None below two pairs."""
    if contrast.launch_sd is None:
        return None
    excess = math.log1p(contrast.effect) - math.log1p(margin)
    if contrast.launch_sd == 0:
        return 0.0 if excess > 0 else 1.0
    return float(student_t.sf(excess / (contrast.launch_sd / math.sqrt(contrast.pairs)), contrast.pairs - 1))


def _word(plan: Plan, evidence: LatencyEvidence) -> LatencyVerdict:
    if evidence.look not in plan.looks:
        return LatencyInconclusive(
            why=_no_look(plan, evidence.look), pairs_needed=_next_look(plan, evidence.look), evidence=evidence
        )
    busy, period, m = evidence.busy, evidence.period, evidence.margin
    if _is_slower(busy, m) or _is_slower(period, m):
        return Slower(evidence=evidence)
    if size := _faster_size(busy, period, m):
        return Faster(size=size, evidence=evidence)
    if _is_equivalent(busy, m) and _is_equivalent(period, m):
        return Equivalent(measurably_slower=any(_lies_above_zero(c) for c in (busy, period)), evidence=evidence)
    return LatencyInconclusive(
        why=_why_open(busy, period, m),
        pairs_needed=pairs_needed(evidence, look_levels(plan, evidence.look)),
        evidence=evidence,
    )


def _is_slower(contrast: LatencyContrast, m: float) -> bool:
    return contrast.interval is not None and contrast.interval.low > m


def _faster_size(busy: LatencyContrast, period: LatencyContrast, m: float) -> Size | None:
    """How much faster, or None if it is not shown to be."""
    if busy.interval is None or period.interval is None:
        return None
    if not (busy.interval.high < 0 and period.effect < 0 and period.interval.high < m):
        return None
    return "material" if busy.interval.high < -m else "small" if busy.interval.low > -m else "unclear"


def _is_equivalent(contrast: LatencyContrast, m: float) -> bool:
    inside = contrast.equivalence
    return inside is not None and -m < inside.low and inside.high < m


def _lies_above_zero(contrast: LatencyContrast) -> bool:
    return contrast.interval is not None and contrast.interval.low > 0


def _no_look(plan: Plan, pairs: int) -> str:
    if not plan.looks:
        return f"{pairs} of at most {plan.pairs_max} launch pairs: at least 3 are needed to decide"
    return f"{pairs} launch pairs finished; the next look is planned at {_next_look(plan, pairs)}"


def _next_look(plan: Plan, pairs: int) -> int:
    return next((look for look in plan.looks if look > pairs), max(3, pairs + 1))


def _why_open(busy: LatencyContrast, period: LatencyContrast, m: float) -> str:
    if busy.interval and busy.interval.high < 0:
        return f"busy time is lower, but the period is not shown to stay below +{m:.2%}"
    if busy.interval and busy.interval.low > 0:
        return f"measurably slower, but not shown to be by more or by less than {m:.2%}"
    return f"the interval holds both 0 and values beyond the margin of {m:.2%}, or is too wide for it"
