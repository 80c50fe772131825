"""The report as Markdown: what happened, how sure that is, what to do; then the numbers; then how to repeat it."""

from collections.abc import Iterable, Iterator

from equipoise_evals.model import (
    ROLE_NAMES,
    ROLES,
    STEPS,
    AccuracyVerdict,
    ArmSpec,
    Interval,
    LatencyContrast,
    LatencyVerdict,
    QuestionPlan,
    TreatmentEvidence,
    Verdict,
)
from equipoise_service.report.document import EngineFacts, Report
from equipoise_service.report.markdown_outputs import FULL, Detail, outputs_markdown
from equipoise_service.report.markup import code, escaped, table
from equipoise_service.report.provenance import Provenance
from equipoise_service.report.tables import (
    claims,
    contrasts,
    goodput_sentence,
    metric_names,
    nothing_counted,
    pdl_sentence,
    treatment_counts,
    word_of,
)

LONGEST_BYTES = 60_000
"""A comment on a pull request holds 65,536 characters, some of which belong to whoever posts the report."""
DETAILS = (FULL, Detail(listed=10, answer_chars=300), Detail(listed=3, answer_chars=150), Detail(0, 0))
"""From what is shown where there is room for it to what is shown in any case."""
CUT = "\n\n*Cut here, to fit a comment; the JSON report has all of it.*\n"
PACKAGES_LISTED = 40
LISTED_IDS = 50
"""Sampled ids beyond these are only counted; all of them are in the JSON report."""


def to_markdown(report: Report) -> str:
    """The report in GitHub's Markdown, of at most ``LONGEST_BYTES`` in UTF-8; what does not fit is said to be left out.

    Differences between answers give way first, then whatever comes last.
    """
    text = ""
    for detail in DETAILS:
        text = _written(report, detail)
        if len(text.encode()) <= LONGEST_BYTES:
            return text
    head = text.encode()[: LONGEST_BYTES - len(CUT)].decode(errors="ignore")
    return head[: head.rindex("\n")].rstrip() + CUT  # no mark of ours goes over the end of a line


def _written(report: Report, detail: Detail) -> str:
    verdict = report.verdict
    parts = [
        [f"# {title(verdict)}: {escaped(report.plan.model.name)}"],
        [f"**{escaped(verdict.headline)}**"],
        [f"How sure: {escaped(verdict.how_sure)}"],
        [f"What to do: {escaped(verdict.what_to_do)}"],
        *([[f"* Mind: {escaped(warning)}" for warning in report.warnings]] if report.warnings else []),
        *([["## Latency"], _latency(verdict.latency, word_of(verdict.latency, verdict))] if verdict.latency else []),
        *(
            [["## Accuracy"], _accuracy(verdict.accuracy, word_of(verdict.accuracy, verdict))]
            if verdict.accuracy
            else []
        ),
        *(outputs_markdown(report.outputs, detail) if report.outputs else []),
        *([["## Treatment"], _treatment(verdict.treatment)] if verdict.treatment else []),
        ["## How it was measured"],
        list(_setup(report)),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def title(verdict: Verdict) -> str:
    """The overall word as a title."""
    return verdict.overall.word.replace("_", " ").capitalize()


def _latency(latency: LatencyVerdict, word: str) -> list[str]:
    evidence = latency.evidence
    header = ["batch", "clock", "decides", "effect", "interval", "baseline", "candidate", "on medians", "pairs"]
    names = metric_names(evidence.phase)
    body = [_contrast(part, contrast, names[contrast.metric]) for part, contrast in contrasts(evidence)]
    note = f"Effects are candidate relative to baseline; negative is faster. Margin ±{evidence.margin:.2%}."
    notes = [*evidence.notes, *filter(None, [goodput_sentence(evidence)])]
    return [f"**{word}**. {note}", "", *table(header, body), *_notes(notes)]


def _contrast(part: str, contrast: LatencyContrast, metric: str) -> list[str]:
    return [
        str(contrast.batch),
        metric,
        part,
        f"{100 * contrast.effect:+.2f} %",
        interval_text(contrast.interval),
        f"{contrast.baseline_us:.1f} us",
        f"{contrast.candidate_us:.1f} us",
        f"{100 * contrast.median_effect:+.2f} %",
        str(contrast.pairs),
    ]


def interval_text(interval: Interval | None) -> str:
    """A relative interval in percent with its level."""
    if interval is None:
        return "none from fewer than 2 pairs"
    return f"{100 * interval.low:+.2f} to {100 * interval.high:+.2f} % ({100 * interval.level:.4g} %)"


def _accuracy(accuracy: AccuracyVerdict, word: str) -> list[str]:
    evidence = accuracy.evidence
    interval = evidence.interval_pp
    body = [
        ("candidate minus baseline", f"{evidence.difference_pp:+.2f} pp"),
        (f"{100 * interval.level:.4g} % interval", f"{interval.low:+.2f} to {interval.high:+.2f} pp"),
        ("one-sided lower limit", f"{evidence.lower_pp:+.2f} pp (margin {evidence.margin_pp:g} pp)"),
        ("mid-p, McNemar", f"{evidence.p_value:.3g}"),
        ("asked, graded, missing", f"{evidence.asked}, {evidence.graded}, {evidence.missing}"),
        ("right in both, only baseline", f"{evidence.both_correct}, {evidence.only_baseline}"),
        ("only candidate, neither", f"{evidence.only_candidate}, {evidence.neither}"),
        *(
            [("no final answer (baseline, candidate)", f"{evidence.no_answer[0]}, {evidence.no_answer[1]}")]
            if None not in evidence.no_answer
            else []
        ),
        ("passes per arm", str(evidence.passes)),
        *((f"identical texts {name}", f"{share:.1%}") for name, share in sorted(evidence.matches.items())),
    ]
    return [f"**{word}**", "", *table(["", ""], body), *_notes(evidence.notes)]


def _treatment(treatment: TreatmentEvidence) -> list[str]:
    state = "The arms differ as they should" if treatment.claims else "The arms ran different code"
    if not treatment.active:
        state = "Not all declared evidence appeared" if treatment.claims else "The arms ran the same kernels"
    body = [
        (code(name), f"{baseline:g}", f"{candidate:g}")
        for name, (baseline, candidate) in treatment_counts(treatment).items()
    ]
    declared = [(escaped(what), shown, escaped(seen)) for what, shown, seen in claims(treatment)]
    return [
        f"{state}, counted per {STEPS[treatment.phase]} in a profiler trace ({treatment.activity}).",
        "",
        *([*table(["declared evidence", "it", "seen"], declared), ""] if declared else []),
        *(table(["counted", "baseline", "candidate"], body) if body else [nothing_counted(treatment)]),
        *_notes(filter(None, [pdl_sentence(treatment)])),
    ]


def _notes(notes: Iterable[str]) -> list[str]:
    lines = [f"* {escaped(note)}" for note in notes]
    return ["", *lines] if lines else []


def _setup(report: Report) -> Iterator[str]:
    plan = report.plan
    yield f"* comparison {code(report.comparison_id)}, preset {code(plan.preset)}, seed {plan.seed}"
    yield f"* model {code(plan.model.name)} ({plan.model.source}), revision {code(plan.model.revision)}"
    if plan.accuracy is not None:
        yield from _questions(plan.accuracy.questions, plan.accuracy.shots)
    yield f"* the arms differ in: {', '.join(report.differs) or 'nothing (A/A)'}"
    yield f"* baseline: {_arm(plan.arms.baseline)}"
    yield f"* candidate: {_arm(plan.arms.candidate)}"
    for engine in report.engines:
        yield f"* {_engine(engine)}"
    if report.provenance is not None:
        yield f"* {_packages(report.provenance)}"
    cost = report.verdict.cost
    yield f"* cost: {cost.launch_pairs} launch pairs, {cost.device_seconds:.0f} s on the device"
    if report.spending.stage_s:
        yield f"* time: {report.spending.sentence}"


def _packages(provenance: Provenance) -> str:
    counts = " and ".join(str(len(provenance.packages[role])) for role in ROLES)
    changes = ", ".join(
        f"{code(change.name)} {change.baseline or 'none'} → {change.candidate or 'none'}"
        for change in provenance.changes[:PACKAGES_LISTED]
    )
    more = len(provenance.changes) - PACKAGES_LISTED
    rest = f" and {more} more, all in the JSON report" if more > 0 else ""
    return f"packages ({counts}): {f'{changes}{rest}' if changes else 'the same in both arms'}"


def _questions(questions: QuestionPlan, shots: int) -> Iterator[str]:
    listed = ", ".join(map(str, questions.ids[:LISTED_IDS]))
    more = len(questions.ids) - LISTED_IDS
    rest = f" and {more} more" if more > 0 else ""
    yield (
        f"* questions: {len(questions.ids)} of {questions.population} from {code(questions.name)}, {shots} shots, "
        f"SHA-256 {code(questions.test_sha256)}"
    )
    yield f"* question ids, in the order asked: {listed}{rest}"


def _arm(arm: ArmSpec) -> str:
    if arm.attach is not None:
        return f"{code(arm.name)}, ran already at {code(arm.attach)}, meant as scratch {code(arm.scratch)}"
    words = [code(arm.name), f"scratch {code(arm.scratch)}", f"engine {code(arm.engine)}"]
    if arm.flags:
        words.append(f"flags {code(' '.join(arm.flags))}")
    if arm.environment:
        words.append(f"environment {code(' '.join(f'{k}={v}' for k, v in sorted(arm.environment.items())))}")
    return ", ".join(words)


def _engine(engine: EngineFacts) -> str:
    ran = "ran already; " if engine.attached else ""
    facts = []
    for name, value in sorted(engine.facts.items()):
        if isinstance(value, dict):
            facts += [f"{escaped(str(key))} {code(str(item))}" for key, item in sorted(value.items())]
        else:
            facts.append(f"{escaped(name.replace('_', ' '))} {code(str(value))}")
    pairs = ", ".join(map(str, engine.pairs))
    return f"{ROLE_NAMES[engine.role]} engine (pair {pairs}): {ran}{', '.join(facts) or 'nothing is attested'}"
