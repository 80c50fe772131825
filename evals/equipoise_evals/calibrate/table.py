"""The calibration as a Markdown table: every rate with its exact bound and its limit, nothing left out."""

from collections.abc import Sequence

from equipoise_evals.calibrate.grid import AccuracyCell, LatencyCell
from equipoise_evals.calibrate.latency import FIXED_PAIRS
from equipoise_evals.calibrate.run import CellResult

HEAD = ("cell", "runs", "asked about", "rate", "99 % bounds", "limit", "holds", "coverage at the look", "words", "cost")


INTRODUCTION = """# Calibration: how often the judge errs where the truth is known

Each row is a simulated world whose truth is stated in its name. The records that engines would have left there go
through the production judge, looks and stopping included; what it said is counted. *asked about* is what a row counts
as an event: a false `faster` or `slower` where there is no effect, a false `equivalent` (or `non_inferior`) at the
margin itself, or the power to see an effect. The bounds are Clopper and Pearson's, one-sided 99 % each way; a limit
is broken when the lower bound of an error (the upper bound of a power) lies beyond it: *holds* says that the runs do
not speak against it, not that every rate is below it. *coverage at the look* is how
often the interval that the verdict shows held the truth, where it has one; *fixed 95 % coverage* is that of a plain
interval at a number of pairs fixed beforehand. *cost* is what a comparison took on average. `docs/statistics.md` has
the rules, `equipoise_evals.calibrate.worlds` the worlds.

* **Launches** differ by a draw from a normal distribution, Student's t with 3 degrees of freedom, or two levels.
* **Blocks** of a two-level engine spend different shares of their steps at the lower level.
* **Steps** have AR(1) noise, a warm-up, a drift and spikes.
* **Questions** are certain or open; open ones differ from pass to pass, or follow a state of the whole launch.
* **Discordant questions** are counted in whole numbers, so no interval on them errs in exactly 5 %: over one look
  Tango's gives a false `regression` or `improved` in up to 5.3 % of runs where hundreds of questions are asked.
"""


def page(results: Sequence[CellResult], how: str) -> str:
    """The whole page: what the table means, how it was made, and the tables."""
    return f"{INTRODUCTION}\n{how}\n\n{markdown(results)}"


def markdown(results: Sequence[CellResult]) -> str:
    """Two tables, latency and accuracy, in the order of the grid."""
    latency = [_row(r) for r in results if isinstance(r.cell, LatencyCell)]
    accuracy = [_row(r) for r in results if isinstance(r.cell, AccuracyCell)]
    fixed = ", ".join(f"R = {pairs}" for pairs in FIXED_PAIRS)
    return "\n".join(
        [
            "## Latency",
            "",
            *_table((*HEAD[:-1], f"fixed 95 % coverage at {fixed}", "pairs"), latency),
            "",
            "## Accuracy",
            "",
            *_table((*HEAD[:-1], "suspected / blocked by output shift", "passes"), accuracy),
            "",
        ]
    )


def _row(result: CellResult) -> tuple[str, ...]:
    cell, counted = result.cell, result.counted
    extra = (
        " / ".join(f"{hits / counted.runs:.1%}" for hits in counted.fixed_covered)
        if isinstance(cell, LatencyCell)
        else f"{counted.suspected / counted.runs:.1%} / {counted.blocked / counted.runs:.1%}"
    )
    return (
        cell.name,
        f"{counted.runs}",
        "suspected shift" if cell.question == "report" else cell.question.replace("_", " "),
        f"{result.rate:.2%}",
        f"{result.low:.2%} to {result.high:.2%}",
        "" if cell.limit is None else f"{'>=' if cell.question == 'power' else '<='} {cell.limit:.1%}",
        {True: "yes", False: "**no**", None: ""}[result.holds],
        (f"{counted.covered / counted.with_interval:.1%}" if counted.with_interval else "")
        + ("" if result.coverage_holds else " **not as claimed**"),
        ", ".join(f"{word} {count / counted.runs:.1%}" for word, count in sorted(counted.words.items())),
        extra,
        f"{counted.units / counted.runs:.2f}",
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'|'.join('---' for _ in head)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
