"""The latency word. The unit is the launch pair; the rule is that of the design: the first word that holds wins."""

import math
from collections.abc import Iterable, Sequence

from scipy.stats import t as student_t

from equipoise_evals.judge.contrasts import units_of
from equipoise_evals.judge.levels import look_levels
from equipoise_evals.judge.measure import Measured
from equipoise_evals.judge.nodes import node_effects, node_note
from equipoise_evals.judge.outlook import pairs_needed
from equipoise_evals.judge.pooled import pooled
from equipoise_evals.judge.two_level import two_level_evidence
from equipoise_evals.model import (
    LOOKS,
    Bar,
    EngineMetric,
    Equivalent,
    Faster,
    LatencyContrast,
    LatencyEvidence,
    LatencyInconclusive,
    LatencyPlan,
    LatencyVerdict,
    Layout,
    Metric,
    Phase,
    Plan,
    Size,
    Slower,
    TwoLevelEvidence,
)
from equipoise_evals.stats.multiple import holm

ATTACHED = (
    "Times are the client's, network included, of engines that ran already; the spread between rounds holds nothing of "
    "the spread between launches."
)
BARS: dict[Bar, str] = {
    "dropped_pairs": "launch pairs in between were not measured whole, and those that were may differ from them",
    "one_sided_load": "there was foreign load beside one arm far more than beside the other",
}
CLOCK_NAMES: dict[Phase, tuple[str, str]] = {
    "decode": ("busy time", "the period"),
    "prefill": ("prefill time", "the time to first token"),
}
"""What ``busy`` and ``period`` are called in each phase."""
IMPORTED_NAMES = ("the time per output token", "the end-to-end latency")
LAYOUT_NOTES: dict[Layout, tuple[str, ...]] = {
    "alternating": (
        "The engines ran one after the other, in ABBA order over two launch pairs. A drift that is linear from launch "
        "to launch cancels in the mean of an even number of pairs, after which alone the run may stop; the spread "
        "between pairs contains it, so that it makes the interval wider.",
    ),
    "crossover": (
        "Each engine ran on a device set of its own, and on the other's in the next launch pair: two launch pairs make "
        "one unit, in which a difference between the device sets cancels.",
    ),
}
ENGINE_METRICS: tuple[EngineMetric, ...] = ("busy", "period")


def clock_names(evidence: LatencyEvidence) -> tuple[str, str]:
    """What ``busy`` and ``period`` are called here; the same name where imported runs state one clock only."""
    if evidence.clock != "imported":
        return CLOCK_NAMES[evidence.phase]
    first, second = IMPORTED_NAMES
    is_one = evidence.period == evidence.busy.model_copy(update={"metric": "period"})
    return (first, first if is_one else second)


def judge_latency(plan: Plan, latency: LatencyPlan, measured: Measured) -> LatencyVerdict | None:
    """The word on latency, or None before the first complete launch pair, or two of them where two make one unit."""
    evidence = _evidence(plan, latency, measured)
    if evidence is None:
        return None
    decisive = measured.contrasts["busy", latency.primary_batch]
    balanced = sum(map(len, units_of(decisive, plan.pairs_to_balance))) == len(decisive)
    return _word(plan, evidence, may_decide=balanced and evidence.look in plan.looks)


def _evidence(plan: Plan, latency: LatencyPlan, measured: Measured) -> LatencyEvidence | None:
    primary = latency.primary_batch
    pairs = len(measured.contrasts["busy", primary])
    units = {key: units_of(found, plan.pairs_per_unit) for key, found in measured.contrasts.items()}
    complete = len(units["busy", primary])
    if complete == 0:
        return None
    levels = look_levels(plan, pairs)

    def decisive(metric: EngineMetric) -> LatencyContrast:
        # History speaks of the primary batch: it is what every A/A comparison of a plan measured.
        history = None if measured.elsewhere else plan.history.get(metric)
        return pooled(units[metric, primary], metric, primary, levels, history)

    def beside(metric: Metric, batch: int) -> LatencyContrast | None:
        """A contrast that decides nothing; None unless every unit of the decisive ones has it too."""
        seen = units[metric, batch]
        return pooled(seen, metric, batch, levels, None) if len(seen) == complete else None

    busy, period = decisive("busy"), decisive("period")
    metrics: tuple[Metric, ...] = ENGINE_METRICS if measured.clock == "engine" else ("client_tpot",)
    secondary = [beside(metric, batch) for batch in latency.batch_sizes if batch != primary for metric in metrics]
    two_level = two_level_evidence(measured.levels)
    nodes = node_effects(units["busy", primary], measured.nodes)
    dropped = _dropped(measured, primary)
    bars: dict[Bar, bool] = {"dropped_pairs": bool(dropped), "one_sided_load": measured.load.one_sided}
    return LatencyEvidence(
        margin=latency.margin,
        look=pairs,
        busy=busy,
        period=period,
        client=beside("client_tpot", primary),
        secondary=_with_holm([c for c in secondary if c is not None], latency.margin),
        two_level=two_level,
        notes=(
            *_notes(busy, two_level),
            *LAYOUT_NOTES.get(plan.layout, ()),
            *([node_note(nodes)] if nodes else []),
            *(note for note in (measured.elsewhere, measured.kinds, measured.unturned) if note),
            *([_dropped_note(dropped)] if dropped else []),
            *measured.load.notes,
            *((ATTACHED,) if measured.clock == "client" else ()),
        ),
        clock=measured.clock,
        phase=latency.phase,
        goodput=measured.goodput,
        nodes=nodes,
        bars=tuple(bar for bar, stands in bars.items() if stands),
    )


def _notes(busy: LatencyContrast, two_level: TwoLevelEvidence | None) -> tuple[str, ...]:
    notes = []
    if two_level:
        notes.append(
            f"Step times jump between {two_level.low_us:.0f} and {two_level.high_us:.0f} us (in {two_level.pairs} of "
            f"{two_level.tested} launch pairs tested); the baseline spent {two_level.baseline_share:.0%} and the "
            f"candidate {two_level.candidate_share:.0%} of the steps at the lower level. Means decide; the contrast of "
            f"medians is {busy.median_effect:+.2%}."
        )
    if busy.borrowed:
        notes.append("The interval borrows the spread between launches from A/A comparisons on this machine.")
    return tuple(notes)


def _dropped(measured: Measured, primary: int) -> tuple[int, ...]:
    """Launch pairs before the last that was timed of which the primary batch has no complete contrast."""
    complete = {contrast.pair for contrast in measured.contrasts["busy", primary]}
    return tuple(pair for pair in range(1, max(measured.timed, *complete)) if pair not in complete)


def _dropped_note(dropped: Sequence[int]) -> str:
    which = ", ".join(map(str, dropped))
    return (
        f"Blocks are missing of launch pair{'s' * (len(dropped) > 1)} {which}: what kept them from being measured "
        "may have to do with the times, so that the other pairs decide nothing."
    )


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
    return float(student_t.sf(excess / (contrast.launch_sd / math.sqrt(contrast.units)), contrast.units - 1))


def _word(plan: Plan, evidence: LatencyEvidence, *, may_decide: bool) -> LatencyVerdict:
    barred = [BARS[bar] for bar in evidence.bars]
    if evidence.clock == "client":
        barred = ["the engines ran already: only the client's clock was read, in rounds of one launch each"]
    if barred:
        return LatencyInconclusive(why="; ".join(barred), pairs_needed=None, evidence=evidence)
    borrowed = evidence.busy.borrowed and evidence.period.borrowed
    if not may_decide or (evidence.busy.units < LOOKS[0] and not borrowed):
        return LatencyInconclusive(
            why=_no_look(plan, evidence.look), pairs_needed=_needed_before_a_look(plan, evidence), evidence=evidence
        )
    busy, period, m = evidence.busy, evidence.period, evidence.margin
    if _is_slower(busy, m) or _is_slower(period, m):
        return Slower(evidence=evidence)
    if size := _faster_size(busy, period, m):
        return Faster(size=size, evidence=evidence)
    if _is_equivalent(busy, m) and _is_equivalent(period, m):
        return Equivalent(measurably_slower=any(_lies_above_zero(c) for c in (busy, period)), evidence=evidence)
    return LatencyInconclusive(
        why=_why_open(evidence),
        pairs_needed=_likely_to_decide(plan, evidence),
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


def _lies_below_zero(contrast: LatencyContrast) -> bool:
    return contrast.interval is not None and contrast.interval.high < 0


def _lies_above_zero(contrast: LatencyContrast) -> bool:
    return contrast.interval is not None and contrast.interval.low > 0


def _no_look(plan: Plan, pairs: int) -> str:
    following = _next_look(plan, pairs)
    if not plan.looks or pairs == plan.pairs_max:
        return f"{pairs} of at most {plan.pairs_max} launch pairs: at least {following} are needed to decide"
    return f"{pairs} launch pairs finished; the next look is planned at {following}"


def _needed_before_a_look(plan: Plan, evidence: LatencyEvidence) -> int | None:
    """The next look, or what the spread so far asks for where that is more; one pair has no spread to go by."""
    soonest = _next_look(plan, evidence.look)
    if evidence.busy.launch_sd is None:
        return soonest
    needed = _likely_to_decide(plan, evidence)
    return None if needed is None else max(soonest, needed)


def _likely_to_decide(plan: Plan, evidence: LatencyEvidence) -> int | None:
    """Fewest launch pairs, of those after which there could be a look, that are likely to decide."""
    needed = pairs_needed(evidence, look_levels(plan, evidence.look))
    return None if needed is None else _balanced(plan, needed)


def _next_look(plan: Plan, pairs: int) -> int:
    return next((look for look in plan.looks if look > pairs), max(least_pairs(plan), _balanced(plan, pairs + 1)))


def least_pairs(plan: Plan) -> int:
    """Launch pairs below which nothing can be decided: a t interval over fewer than 3 units is too wide."""
    return _balanced(plan, LOOKS[0] * plan.pairs_per_unit)


def _balanced(plan: Plan, pairs: int) -> int:
    """So many launch pairs, or one more where the orders, or the devices, of both arms are then the same."""
    return math.ceil(pairs / plan.pairs_to_balance) * plan.pairs_to_balance


def _why_open(evidence: LatencyEvidence) -> str:
    """The condition that failed: of ``faster`` where busy time is lower, else of ``equivalent``, busy time first."""
    busy, period, m = evidence.busy, evidence.period, evidence.margin
    names = clock_names(evidence)
    if _lies_below_zero(busy):
        if period.interval and period.interval.high < m:
            return f"{names[0]} is lower, but {names[1]} is not ({period.effect:+.2%})"
        return f"{names[0]} is lower, but {names[1]} is not shown to stay below +{m:.2%}"
    name, contrast = next(both for both in zip(names, (busy, period), strict=True) if not _is_equivalent(both[1], m))
    return _why_not_equivalent(name, contrast, m, names[0])


def _why_not_equivalent(name: str, contrast: LatencyContrast, m: float, busy_name: str) -> str:
    if contrast.interval is None:
        return f"the launch pairs differ so much that {name} has no interval"
    if _lies_above_zero(contrast):
        return f"measurably slower by {name}, but not shown to be by more or by less than {m:.2%}"
    if _lies_below_zero(contrast):
        return f"{name} is lower, but {busy_name}, by which a candidate is faster, is not shown to be"
    return f"the interval of {name} holds both 0 and changes beyond the margin of {m:.2%}"
