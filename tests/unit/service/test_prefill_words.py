"""Whoever reads of a comparison of prefills reads of prefills: no format calls what was timed a decode step."""

import io
import re

import pytest
from rich.console import Console

from equipoise_evals.judge import judge
from equipoise_evals.model import Plan, Records, TreatmentRecord
from equipoise_service.cli.display import show_verdict
from equipoise_service.difference import difference_of, to_markdown
from equipoise_service.report import build_report, report_text
from equipoise_service.store import Store
from tests.support import records as make
from tests.support import stored as keep
from tests.unit.judge.test_prefill import prefill_blocks, prefill_plan

DECODING = re.compile(r"decod|per step|step times?|busy|\bperiod\b", re.IGNORECASE)
CLIENT_TIMINGS = ("client_tpot", "tpot")


def measured(plan: Plan, ratio: float) -> Records:
    """Three launch pairs that differ in a kernel, which is declared; their whole prefills were traced."""
    traces = [
        TreatmentRecord(pair=1, role=role, activity="CPU", steps=8, per_step={"aten::mm": n}, phase="prefill")
        for role, n in (("A", 30.0), ("B", 90.0))
    ]
    return make.together(make.launches(plan, 3), traces, prefill_blocks(plan, [ratio, ratio + 1e-4, ratio + 2e-4]))


PLANS = {
    "any difference": prefill_plan().model_copy(update={"evidence": ()}),
    "declared": Plan.model_validate(
        prefill_plan().model_dump()
        | {"evidence": [{"kind": "kernel", "name": "mm", "change": "count"}, {"kind": "fills"}]}
    ),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(f"sqlite:///{tmp_path_factory.mktemp('prefill') / 'equipoise.db'}")


def prose(text: str) -> str:
    """A text without styles, scripts and the names of fields and flags."""
    text = re.sub(r"<(style|script)\b.*?</\1>", "", text, flags=re.DOTALL)
    return re.sub(r"<[^>]*>|`[^`]*`|--[a-z-]+", " ", text)


@pytest.mark.parametrize("rule", list(PLANS))
@pytest.mark.parametrize("ending", ["md", "csv", "html"])
def test_no_report_speaks_of_decoding(store: Store, ending: str, rule: str) -> None:
    plan = PLANS[rule]
    stored = keep.finish(store, plan, measured(plan, 0.95))
    text = prose(report_text(ending, stored, store.records))
    assert DECODING.findall(text) == []
    assert "prefill" in text


def test_the_terminal_does_not_either() -> None:
    plan = PLANS["any difference"]
    out = io.StringIO()
    show_verdict(Console(file=out, width=200), judge(measured(plan, 0.95), plan), plan)
    assert DECODING.findall(out.getvalue()) == []
    assert re.search(r"prefill +primary", out.getvalue())
    assert re.search(r"first token +primary", out.getvalue())


def test_a_difference_of_two_names_their_clocks(store: Store) -> None:
    plan = PLANS["any difference"]
    reports = [build_report(keep.finish(store, plan, measured(plan, ratio)), store.records) for ratio in (0.95, 0.9)]
    found = difference_of(*reports)
    assert found.phase == "prefill"
    text = to_markdown(found)
    assert "| 16 | first token |" in text
    assert DECODING.findall(prose(text)) == []


def test_what_the_judge_says_of_a_contradicted_declaration_names_prefills() -> None:
    plan = Plan.model_validate(
        prefill_plan().model_dump() | {"evidence": [{"kind": "kernel", "name": "fmha", "change": "appears"}]}
    )
    verdict = judge(measured(plan, 0.95), plan)
    assert verdict.overall.word == "invalid"
    assert "1 names differ per prefill, among them aten::mm 30 and 90" in verdict.headline
    assert DECODING.findall(verdict.headline) == []
