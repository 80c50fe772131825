"""What ``equipoise compare`` shows: progress while it runs, and the verdict as a card with a table."""

import json
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from equipoise_evals.model import Verdict
from equipoise_service.cli.client import Happened
from equipoise_service.report.markdown import interval_text, title
from equipoise_service.report.tables import METRIC_NAMES, contrasts, treatment_counts

COLOURS = {"ship": "green", "neutral": "green", "block": "red", "invalid": "red"}


class LiveProgress:
    """Shows events as they come: a bar on a terminal, one line per stage elsewhere. Draws only when something came."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage = ""
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task("waiting", total=None)

    def __enter__(self) -> Self:
        """Begin to show."""
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave the terminal as it was."""
        if self._console.is_terminal:
            self._bar.stop()

    def show(self, event: Happened) -> None:
        """Show one event."""
        data = json.loads(event.data)
        if event.kind == "progress":
            text = escape(f"{data['stage']}: {data['detail']}" if data["detail"] else data["stage"])
            self._update(data["stage"], text, data["done"], data["total"])
        else:
            self._update(data["status"], data["status"], 0, None)

    def _update(self, stage: str, text: str, done: int, total: int | None) -> None:
        if self._console.is_terminal:
            self._bar.update(self._task, description=text, completed=done, total=total)
            self._bar.refresh()
        elif stage != self._stage:
            self._console.print(text)
        self._stage = stage


def show_verdict(console: Console, verdict: Verdict) -> None:
    """The verdict card and its numbers."""
    sentences = (verdict.headline, f"How sure: {verdict.how_sure}", f"What to do: {verdict.what_to_do}")
    colour = COLOURS.get(verdict.overall.word, "yellow")
    console.print(Panel("\n".join(map(escape, sentences)), title=title(verdict), border_style=colour))
    if verdict.latency is not None:
        console.print(_latency(verdict))
    if verdict.accuracy is not None:
        console.print(_accuracy(verdict))
    if verdict.treatment is not None:
        console.print(_treatment(verdict))


def _latency(verdict: Verdict) -> Table:
    assert verdict.latency is not None  # noqa: S101 - asked by the caller
    evidence = verdict.latency.evidence
    table = Table(title=f"latency: {verdict.latency.word} (margin ±{evidence.margin:.2%})")
    for column in ("batch", "clock", "decides", "effect", "interval (level)", "baseline us", "candidate us", "pairs"):
        table.add_column(column)
    for part, contrast in contrasts(evidence):
        table.add_row(
            str(contrast.batch),
            METRIC_NAMES[contrast.metric],
            part,
            f"{100 * contrast.effect:+.2f} %",
            interval_text(contrast.interval),
            f"{contrast.baseline_us:.1f}",
            f"{contrast.candidate_us:.1f}",
            str(contrast.pairs),
        )
    return table


def _accuracy(verdict: Verdict) -> Table:
    assert verdict.accuracy is not None  # noqa: S101 - asked by the caller
    evidence = verdict.accuracy.evidence
    table = Table(title=f"accuracy: {verdict.accuracy.word.replace('_', ' ')} (margin {evidence.margin_pp:g} pp)")
    for column in ("difference", "interval (level)", "right in both", "only baseline", "only candidate", "neither"):
        table.add_column(column)
    interval = evidence.interval_pp
    table.add_row(
        f"{evidence.difference_pp:+.2f} pp",
        f"{interval.low:+.2f} to {interval.high:+.2f} pp ({100 * interval.level:.4g} %)",
        str(evidence.both_correct),
        str(evidence.only_baseline),
        str(evidence.only_candidate),
        str(evidence.neither),
    )
    return table


def _treatment(verdict: Verdict) -> Table:
    assert verdict.treatment is not None  # noqa: S101 - asked by the caller
    state = "active" if verdict.treatment.active else "inactive"
    table = Table(title=f"treatment: {state} (counted per decode step)")
    for column in ("counted", "baseline", "candidate"):
        table.add_column(column)
    for name, (baseline, candidate) in treatment_counts(verdict).items():
        table.add_row(escape(name), f"{baseline:g}", f"{candidate:g}")
    return table
