import io
import json
from collections.abc import Iterable

import numpy as np
import pytest
from rich.console import Console

from equipoise_evals.judge import judge
from equipoise_evals.model import Record, TreatmentRecord
from equipoise_service.cli.client import Happened
from equipoise_service.cli.display import LiveProgress, show_verdict
from tests.support import records as make


def happened(kind: str, **data: object) -> Happened:
    return Happened(1, kind, json.dumps(data))


EVENTS = [
    happened("status", status="running"),
    happened("progress", stage="gsm8k", done=1, total=4, detail="[bold]arm A"),
    happened("progress", stage="gsm8k", done=4, total=4, detail=""),
    happened("status", status="succeeded"),
]


def test_without_a_terminal_each_stage_is_a_line_at_its_beginning_and_one_at_its_end() -> None:
    out = io.StringIO()
    with LiveProgress(Console(file=out, width=80)) as progress:
        for event in EVENTS:
            progress.show(event)
    assert out.getvalue().splitlines() == [
        "running",
        "gsm8k: [bold]arm A (1 of 4)",
        "gsm8k (4 of 4)",
        "succeeded",
    ]


def test_a_terminal_shows_a_bar_and_is_left_clean() -> None:
    out = io.StringIO()
    with LiveProgress(Console(file=out, width=80, force_terminal=True)) as progress:
        for event in EVENTS:
            progress.show(event)
    assert "4/4" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K")  # the bar's line is erased


@pytest.mark.parametrize("halves", [("latency", "accuracy"), ("latency",), ("accuracy",), ()])
@pytest.mark.parametrize("launch_sd", [0.001, 0.4])
def test_every_half_that_was_measured_fits_80_columns(halves: tuple[str, ...], launch_sd: float) -> None:
    plan = make.plan() if "accuracy" in halves else make.plan(accuracy=None)
    parts: list[Iterable[Record]] = [[make.questions()], make.launches(plan, 3), make.treatment()]
    if "accuracy" in halves:
        parts.append(make.equal_passes())
    if "latency" in halves:
        rng = np.random.default_rng(3)
        parts.append(make.blocks(plan, 3, rng, effect=-0.02, launch_sd=launch_sd, base_us=987_654.0))
    out = io.StringIO()
    show_verdict(Console(file=out, width=80), judge(make.together(*parts), plan), plan)
    text = out.getvalue()
    assert ("latency: " in text, "accuracy: " in text) == ("latency" in halves, "accuracy" in halves)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_kernels_long_name_leaves_the_numbers_readable() -> None:
    plan = make.plan()
    fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >"
    counts: list[Record] = [
        TreatmentRecord(pair=1, role=role, activity="GPU", steps=8, per_step={fill: fills, "attention": 30.0})
        for role, fills in (("A", 60.0), ("B", 0.0))
    ]
    out = io.StringIO()
    verdict = judge(make.together([make.questions()], make.launches(plan, 1), counts), plan)
    show_verdict(Console(file=out, width=80), verdict, plan)
    row = next(line for line in out.getvalue().splitlines() if line.startswith("void"))
    assert row.split()[-2:] == ["60", "0"]
    assert "FillFunctor<float>" in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_numbers_of_a_run_that_cannot_be_judged_stand_without_a_word() -> None:
    plan = make.plan()
    parts: list[Iterable[Record]] = [[make.questions()], make.launches(plan, 3), make.treatment(60, 60)]
    parts += [make.equal_passes(), make.exact_blocks([-0.02, -0.021, -0.019])]
    out = io.StringIO()
    show_verdict(Console(file=out, width=80), judge(make.together(*parts), plan), plan)
    assert "latency: not judged, for diagnosis only" in out.getvalue()
    assert "accuracy: not judged, for diagnosis only" in out.getvalue()
    assert "treatment: inactive" in out.getvalue()


def test_equal_arms_of_a_declared_aa_are_as_declared() -> None:
    plan = make.plan(declared_aa=True)
    out = io.StringIO()
    verdict = judge(make.together([make.questions()], make.launches(plan, 1), make.treatment(60, 60)), plan)
    show_verdict(Console(file=out, width=80), verdict, plan)
    assert "treatment: none, as declared (A/A)" in out.getvalue()


def test_where_no_kernel_was_counted_the_table_says_so() -> None:
    plan = make.plan()
    trace = TreatmentRecord(pair=1, role="A", activity="CPU", steps=8, per_step={"aten::bmm": 60.0})
    counts: list[Record] = [trace, trace.model_copy(update={"role": "B"})]
    verdict = judge(make.together([make.questions()], make.launches(plan, 1), counts), plan)
    out = io.StringIO()
    show_verdict(Console(file=out, width=80), verdict, plan)
    said = " ".join(out.getvalue().split())
    assert "treatment: inactive; no fill and no allocation was counted in either arm" in said


def test_what_was_not_observed_is_not_shown() -> None:
    plan = make.plan()
    out = io.StringIO()
    show_verdict(Console(file=out, width=80), judge(make.together([make.questions()]), plan), plan)
    assert "treatment:" not in out.getvalue()
    assert "16 of 16 questions from simulated" in out.getvalue()
