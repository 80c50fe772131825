"""What ``equipoise compare`` shows: progress while it runs, and the verdict as a card with a table."""

import json
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from equipoise_evals.model import STEPS, AccuracyVerdict, Interval, LatencyVerdict, Plan, TreatmentEvidence, Verdict
from equipoise_service.cli.client import Happened
from equipoise_service.report.markdown import title
from equipoise_service.report.tables import (
    claims,
    clocks_of,
    contrasts,
    goodput_sentence,
    nothing_counted,
    treatment_counts,
    treatment_state,
    word_of,
)

COLOURS = {"ship": "green", "neutral": "green", "block": "red", "invalid": "red"}
MILLISECONDS_FROM_US = 10_000.0


class LiveProgress:
    """Shows events as they come: a bar on a terminal, elsewhere a line where a stage begins and ends.

    Draws only when something came.
    """

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
        elif event.kind == "status":
            self._update(data["status"], data["status"], 0, None)

    def _update(self, stage: str, text: str, done: int, total: int | None) -> None:
        if self._console.is_terminal:
            self._bar.update(self._task, description=text, completed=done, total=total)
            self._bar.refresh()
        elif stage != self._stage or done == total:
            self._console.print(text if total is None else f"{text} ({done} of {total})")
        self._stage = stage


def show_verdict(console: Console, verdict: Verdict, plan: Plan) -> None:
    """The verdict card, its numbers, and on what they rest. Fits 80 columns."""
    sentences = (verdict.headline, f"How sure: {verdict.how_sure}", f"What to do: {verdict.what_to_do}")
    colour = COLOURS.get(verdict.overall.word, "yellow")
    heading = escape(f"{title(verdict)}: {plan.model.name}")
    console.print(Panel("\n".join(map(escape, sentences)), title=heading, border_style=colour))
    if verdict.latency is not None:
        console.print(_latency(verdict.latency, word_of(verdict.latency, verdict)))
        if (goodput := goodput_sentence(verdict.latency.evidence)) is not None:
            console.print(escape(goodput))
    if verdict.accuracy is not None:
        console.print(_accuracy(verdict.accuracy, word_of(verdict.accuracy, verdict)))
    if verdict.treatment is not None:
        console.print(_treatment(verdict.treatment, declared_aa=plan.declared_aa))
    console.print(f"\n{_basis(plan)}", style="dim")


def _table(heading: str, *columns: str) -> Table:
    table = Table(title=heading, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns):
        # The first column may hold a kernel's long name, which is broken rather than the numbers beside it.
        table.add_column(column, no_wrap=place > 0, overflow="fold")
    return table


def _latency(latency: LatencyVerdict, word: str) -> Table:
    evidence = latency.evidence
    heading = f"\nlatency: {word} (margin ±{evidence.margin:.2%}, {evidence.look} launch pairs)"
    # One level and one unit for the whole table: an engine on a CPU takes hundreds of milliseconds a step.
    level = f" ({100 * evidence.busy.interval.level:.4g} %)" if evidence.busy.interval else ""
    unit, scale = ("ms", 1_000.0) if evidence.busy.baseline_us >= MILLISECONDS_FROM_US else ("us", 1.0)
    times = "step time" if evidence.phase == "decode" and evidence.clock != "imported" else "time"
    table = _table(heading, "batch", "clock", "decides", "effect", f"interval{level}", f"{times}, {unit}")
    clocks = clocks_of(evidence.phase, evidence.clock)
    for part, contrast in contrasts(evidence):
        table.add_row(
            "not stated" if contrast.batch is None else str(contrast.batch),
            clocks[contrast.metric],
            part,
            f"{100 * contrast.effect:+.2f} %",
            _limits(contrast.interval),
            f"{contrast.baseline_us / scale:.0f} → {contrast.candidate_us / scale:.0f}",
        )
    return table


def _limits(interval: Interval | None) -> str:
    return "none yet" if interval is None else f"{100 * interval.low:+.2f} to {100 * interval.high:+.2f} %"


def _accuracy(accuracy: AccuracyVerdict, word: str) -> Table:
    evidence = accuracy.evidence
    heading = f"\naccuracy: {word} (margin {evidence.margin_pp:g} pp; right in both arms, in one, in neither)"
    table = _table(heading, "difference", "interval (level)", "both", "only A", "only B", "neither")
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


def _treatment(treatment: TreatmentEvidence, *, declared_aa: bool) -> Table:
    state = treatment_state(treatment, declared_aa=declared_aa)
    counts = treatment_counts(treatment)
    if not counts:
        said = nothing_counted(treatment).removesuffix(".")
        state = f"{state}; {said[0].lower()}{said[1:]}"
    table = _table(f"\ntreatment: {state}", f"counted per {STEPS[treatment.phase]}", "baseline", "candidate")
    for what, shown, seen in claims(treatment):
        table.add_row(escape(f"{what}: {shown} ({seen})"), "", "")
    for name, (baseline, candidate) in counts.items():
        table.add_row(escape(name), f"{baseline:g}", f"{candidate:g}")
    return table


def _basis(plan: Plan) -> str:
    lines = [f"model {plan.model.name} ({plan.model.source}, revision {plan.model.revision[:12]})"]
    if plan.accuracy is not None:
        questions = plan.accuracy.questions
        lines.append(
            f"{len(questions.ids)} of {questions.population} questions from {questions.name} "
            f"(SHA-256 {questions.test_sha256[:12]}), {plan.accuracy.shots} shots"
        )
    return escape("\n".join(lines))
