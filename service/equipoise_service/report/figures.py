"""Which charts a finished comparison has: from verdicts and timings to the numbers that charts take."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from equipoise_evals.model import FULL_STEPS, STEPS, AccuracyEvidence, LatencyEvidence, Phase
from equipoise_service.charts import (
    Block,
    ForestRow,
    Histogram,
    PairSeries,
    blocks_chart,
    distribution_chart,
    forest_chart,
    pairs_chart,
)
from equipoise_service.report.tables import clocks_of, contrasts, primary_contrasts
from equipoise_service.report.timings import BlockTimes, Distribution, Timings


class DistributionFigure(NamedTuple):
    """A chart with the numbers that stand beside it."""

    chart: Markup
    shown: Distribution


class BlocksFigure(NamedTuple):
    """The blocks of one batch size, in the order run, drawn and as rows."""

    batch: int
    chart: Markup
    blocks: Sequence[BlockTimes]


def latency_chart(evidence: LatencyEvidence) -> Markup:
    """Every contrast against the margin."""
    rows = [
        ForestRow(
            label=f"{clocks_of(evidence.phase)[one.metric]}, batch {one.batch} ({part})",
            estimate=100 * one.effect,
            interval=(100 * one.interval.low, 100 * one.interval.high) if one.interval else None,
            decides=part == "primary",
        )
        for part, one in contrasts(evidence)
    ]
    margin = 100 * evidence.margin
    return forest_chart(
        "latency", f"Effect on {STEPS[evidence.phase]} times, candidate against baseline", rows,
        unit="%", margin=(-margin, margin), sides=("faster", "slower"),
    )  # fmt: skip


def accuracy_chart(evidence: AccuracyEvidence) -> Markup:
    """The difference of scores against the margin of loss."""
    interval = evidence.interval_pp
    rows = [
        ForestRow("candidate − baseline", evidence.difference_pp, (interval.low, interval.high), decides=True),
        ForestRow("one-sided lower limit", evidence.lower_pp, None, decides=True),
    ]
    return forest_chart(
        "accuracy", "Difference of right answers, candidate minus baseline", rows,
        unit="pp", margin=(-evidence.margin_pp, None), sides=("worse", "better"),
    )  # fmt: skip


def launch_pairs_chart(evidence: LatencyEvidence) -> Markup:
    """The primary batch's clocks, pair by pair; at least one was read."""
    series = [
        PairSeries(clocks_of(evidence.phase)[one.metric], [100 * e for e in one.per_pair], 100 * one.effect)
        for one in primary_contrasts(evidence)
    ]
    title = f"Effect in each launch pair, batch {evidence.busy.batch}"
    return pairs_chart("pairs", title, series, 100 * evidence.margin)


def distribution_figures(
    timings: Timings, evidence: LatencyEvidence | None, phase: Phase
) -> Iterator[DistributionFigure]:
    """One figure a batch size and clock; levels are marked where they were looked for: the primary batch's busy."""
    levels = evidence.two_level if evidence else None
    for place, shown in enumerate(timings.distributions):
        baseline, candidate = shown.arms["A"], shown.arms["B"]
        has_levels = shown.clock == "busy" and evidence is not None and shown.batch == evidence.busy.batch
        chart = distribution_chart(
            f"steps-{place}",
            f"{_times_of(phase, clocks_of(phase)[shown.clock])}, batch {shown.batch}",
            Histogram(shown.low_us, shown.high_us, baseline.counts, candidate.counts),
            (baseline.mean_us, candidate.mean_us),
            (levels.low_us, levels.high_us) if levels and has_levels else (),
            step=FULL_STEPS[phase],
        )
        yield DistributionFigure(chart, shown)


def _times_of(phase: Phase, clock: str) -> str:
    return f"Step times by {clock}" if phase == "decode" else f"{clock.capitalize()} times"


def blocks_figures(timings: Timings, batches: Sequence[int]) -> Iterator[BlocksFigure]:
    """One figure a batch size that was timed."""
    for batch in batches:
        blocks = [block for block in timings.blocks if block.batch == batch]
        if blocks:
            drawn = [_drawn(block) for block in blocks]
            yield BlocksFigure(
                batch, blocks_chart(f"blocks-{batch}", f"Blocks in the order run, batch {batch}", drawn), blocks
            )


def _drawn(block: BlockTimes) -> Block:
    return Block(
        pair=block.pair,
        baseline=block.role == "A",
        mean_us=block.busy.mean_us,
        low_us=block.busy.low_us,
        high_us=block.busy.high_us,
        clock_mhz=block.clock_mhz,
        temperature_c=block.temperature_c,
    )
