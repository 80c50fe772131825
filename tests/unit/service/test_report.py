import csv
import io
import json

import numpy as np
import pytest

from equipoise_evals.judge import judge
from equipoise_evals.model import ArmPair, ArmSpec, LaunchRecord, ModelRef, PdlLinks, Plan, Records, Verdict
from equipoise_service.errors import NotFinished
from equipoise_service.ids import new_id
from equipoise_service.report import FORMATS, MEDIA_TYPES, Report, build_report, to_csv, to_json, to_markdown
from equipoise_service.report.markup import code, escaped
from equipoise_service.report.spreadsheet import plain
from equipoise_service.report.tables import Row, rows
from equipoise_service.store import Lease, NewComparison, Store, Stored
from tests.support import records as make

HOSTILE = "<img src=x onerror=alert(1)>"


def judged(plan: Plan, effect: float = -0.02) -> tuple[Records, Verdict]:
    records = make.together(
        [make.questions()],
        make.launches(plan, 3),
        make.treatment(),
        make.equal_passes(),
        make.blocks(plan, 3, np.random.default_rng(5), effect=effect),
    )
    return records, judge(records, plan)


def report_of(plan: Plan, verdict: Verdict) -> Report:
    return Report.model_validate(
        {
            "comparison_id": "01890000-0000-7000-8000-000000000000",
            "created_at": "2026-01-01T00:00:00Z",
            "started_at": None,
            "finished_at": None,
            "verdict": verdict,
            "differs": plan.arms.candidate.differs_from(plan.arms.baseline),
            "engines": [{"role": "A", "pairs": (1,), "facts": {"versions": {"sglang": "0"}, "device": HOSTILE}}],
            "plan": plan,
        }
    )


@pytest.fixture(scope="module")
def report() -> Report:
    plan = make.plan()
    return report_of(plan, judged(plan)[1])


def test_markdown_says_the_three_sentences_first(report: Report) -> None:
    lines = to_markdown(report).splitlines()
    assert lines[0] == "# Ship: simulated"
    said = "\n".join(lines[:7])
    for sentence in (report.verdict.headline, report.verdict.how_sure, report.verdict.what_to_do):
        assert escaped(sentence) in said


def test_markdown_names_questions_arms_and_levels(report: Report) -> None:
    text = to_markdown(report)
    assert f"`{'0' * 64}`" in text
    assert "question ids, in the order asked: 0, 1, 2" in text
    assert "the arms differ in: scratch" in text
    evidence = report.verdict.latency
    assert evidence is not None
    assert evidence.evidence.busy.interval is not None
    assert f"({100 * evidence.evidence.busy.interval.level:.4g} %)" in text


def test_markdown_lists_few_ids_and_counts_the_rest() -> None:
    plan = make.plan(accuracy=make.accuracy_plan(1319))
    verdict = judged(make.plan())[1]
    text = to_markdown(report_of(plan, verdict))
    assert "48, 49 and 1269 more" in text
    assert len(text) < 60_000


def test_nothing_from_outside_becomes_markup() -> None:
    plan = make.plan(
        model=ModelRef(name=HOSTILE, source="hub", path="p", revision="`|`"),
        arms=ArmPair(
            baseline=ArmSpec(name="a|b", scratch="baseline", flags=("--x", "`y`|z")),
            candidate=ArmSpec(name="[c](http://x)", scratch="persistent", environment={"K": HOSTILE}),
        ),
    )
    text = to_markdown(report_of(plan, judged(make.plan())[1]))
    outside_code = "".join(text.split("`")[::2])
    assert "<img" not in outside_code
    assert "&lt;img src=x onerror=alert(1)&gt;" in text.splitlines()[0]


def test_escaping_leaves_one_line_without_markup() -> None:
    assert escaped("a\n# b *c* <d> & [e](f)") == "a \\# b \\*c\\* &lt;d&gt; &amp; \\[e\\](f)"
    assert code("a`b``c") == "``` a`b``c ```"
    assert code("") == "` `"
    assert code("a|b\nc") == "`a\\|b c`"


def test_csv_holds_every_row_with_its_level(report: Report) -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(report))))
    expected = list(rows(report.verdict))
    assert len(lines) == len(expected)
    assert set(lines[0]) == {"comparison_id", "model", "verdict", *Row._fields}
    busy = next(line for line in lines if line["name"].startswith("busy") and line["name"].endswith("effect"))
    contrast = report.verdict.latency.evidence.busy  # type: ignore[union-attr] # this report has a latency half
    assert float(busy["value"]) == 100 * contrast.effect
    assert contrast.interval is not None
    assert (float(busy["low"]), float(busy["high"])) == (100 * contrast.interval.low, 100 * contrast.interval.high)
    assert float(busy["level"]) == contrast.interval.level
    assert {line["verdict"] for line in lines} == {"ship"}


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t"])
def test_no_cell_is_a_formula(start: str) -> None:
    assert plain(f"{start}1+1") == f"'{start}1+1"
    assert plain("model") == "model"


def test_json_is_the_whole_report_and_stays_the_same(report: Report) -> None:
    text = to_json(report)
    assert Report.model_validate_json(text) == report
    assert to_json(Report.model_validate_json(text)) == text
    assert json.loads(text)["plan"]["accuracy"]["questions"]["ids"] == list(range(16))


def test_every_format_has_a_media_type() -> None:
    assert {*FORMATS, "html"} == set(MEDIA_TYPES)


def test_halves_that_were_not_measured_are_left_out() -> None:
    plan = make.plan(accuracy=None)
    records = make.together([make.questions()], make.launches(plan, 1))
    text = to_markdown(report_of(plan, judge(records, plan)))
    assert "## Accuracy" not in text
    assert "## Latency" not in text
    assert "## Treatment" not in text
    assert "questions:" not in text


def test_one_pair_has_no_interval_and_says_so() -> None:
    plan = make.plan(accuracy=None, pairs_max=1)
    records = make.together(
        [make.questions()], make.launches(plan, 1), make.treatment(), make.blocks(plan, 1, np.random.default_rng(5))
    )
    report = report_of(plan, judge(records, plan))
    assert "none from fewer than 2 pairs" in to_markdown(report)
    effects = [row for row in rows(report.verdict) if row.name.endswith(", effect")]
    assert effects
    assert all((row.low, row.high, row.level) == (None, None, None) for row in effects)


def stored_with(store: Store, plan: Plan, launches: list[LaunchRecord], verdict: Verdict | None) -> Stored:
    new = NewComparison(new_id(), "m", "{}", "0" * 64, plan.model_dump_json())
    store.comparisons.add(new)
    for launch in launches:
        store.records.append(new.id, launch)
    if verdict is not None:
        store.comparisons.claim(Lease("here"))
        store.comparisons.judge(new.id)
        store.comparisons.succeed(new.id, verdict.model_dump_json(), verdict.overall.word)
    stored = store.comparisons.get(new.id)
    assert stored is not None
    return stored


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(f"sqlite:///{tmp_path_factory.mktemp('report') / 'e.db'}")


def test_a_report_needs_a_verdict(store: Store) -> None:
    stored = stored_with(store, make.plan(), [], None)
    with pytest.raises(NotFinished, match="queued and has no verdict"):
        build_report(stored, store.records)


def test_engines_that_said_the_same_are_one_entry(store: Store) -> None:
    def launch(pair: int, role: str, version: str) -> LaunchRecord:
        values = make.launch(pair, "A", "baseline").model_dump()
        attested = {"arm": "baseline", "device": "cpu", "versions": {"sglang": version}}
        return LaunchRecord.model_validate(values | {"role": role, "attestation": attested})

    plan = make.plan()
    launches = [launch(1, "B", "1"), launch(1, "A", "1"), launch(2, "A", "1"), launch(2, "B", "2")]
    report = build_report(stored_with(store, plan, launches, judged(plan)[1]), store.records)
    assert [(engine.role, engine.pairs) for engine in report.engines] == [("A", (1, 2)), ("B", (1,)), ("B", (2,))]
    assert report.engines[2].facts == {"device": "cpu", "versions": {"sglang": "2"}}
    assert report.differs == ("scratch",)


@pytest.mark.parametrize(
    ("baseline", "candidate", "says"),
    [
        (None, None, "not recorded"),
        ((10, 20), None, "not recorded"),
        ((0, 0), (0, 0), "not exercised by this model"),
        ((10, 20), (10, 0), "20 per decode step in 10 links (baseline) and 0 per decode step in 10 links (candidate)"),
    ],
)
def test_fills_between_linked_kernels_are_said_for_a_gpu(
    baseline: tuple[float, float] | None, candidate: tuple[float, float] | None, says: str
) -> None:
    links = [
        None if one is None else PdlLinks(links_per_step=one[0], fills_between_per_step=one[1])
        for one in (baseline, candidate)
    ]
    traced = [
        record.model_copy(update={"activity": "GPU", "pdl": pdl})
        for record, pdl in zip(make.treatment(), links, strict=True)
    ]
    plan = make.plan()
    verdict = judge(make.together([make.questions()], make.launches(plan, 1), traced), plan)
    assert f"* Fills between PDL-linked kernels: {says}." in to_markdown(report_of(plan, verdict))
    assert verdict.treatment is not None
    assert verdict.treatment.active


def test_a_cpu_has_no_linked_kernels_to_speak_of(report: Report) -> None:
    assert "PDL" not in to_markdown(report)
