"""The report in one file: complete, inert whatever models and answers say, and the same bytes each time."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from equipoise_evals.judge import judge
from equipoise_evals.model import BlockRecord, ModelRef, Plan, Records, StopRecord, TwoLevelEvidence
from equipoise_service.report import Details, build_report, read_details, report_text, to_html
from equipoise_service.report.details import kernel_counts, launched
from equipoise_service.report.figures import distribution_figures
from equipoise_service.report.rendering import content_policy
from equipoise_service.report.sides import side_by_side
from equipoise_service.report.timings import timings_of
from equipoise_service.store import Store, Stored
from tests.support import records as make
from tests.support import stored as keep
from tests.support.attached import ARMS, client_blocks, launches
from tests.support.worlds import declared_aa

HOSTILE = "<img src=x onerror=alert(1)>"


def observed(plan: Plan, pairs: int = 3) -> Records:
    return make.together(
        [make.questions()],
        make.launches(plan, pairs),
        make.treatment(),
        make.blocks(plan, pairs, np.random.default_rng(5), effect=-0.02),
        [
            make.one_pass(1, "A", [i < 6 for i in range(16)], style={3: HOSTILE}),
            make.one_pass(1, "B", [i < 5 for i in range(16)], style={3: "other words "}),
        ],
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(f"sqlite:///{tmp_path_factory.mktemp('html') / 'equipoise.db'}")


@pytest.fixture(scope="module")
def stored(store: Store) -> Stored:
    model = ModelRef(name=HOSTILE, source="simulated", path="p", revision=HOSTILE)
    plan = make.plan(model=model)
    return keep.finish(store, plan, observed(plan))


class Tags(HTMLParser):
    """Counts elements and collects what they refer to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: dict[str, int] = {}
        self.attributes: set[str] = set()
        self.targets: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        self.attributes |= {name for name, _ in attrs}
        self.targets += [str(value) for name, value in attrs if name in {"src", "href"}]


def test_the_file_is_whole_and_loads_nothing(store: Store, stored: Stored) -> None:
    tags = Tags(report_text("html", stored, store.records))
    # Two forests, the pairs, two clocks and one chart of blocks at each of two batch sizes.
    assert tags.seen["svg"] == 3 + 2 * 2 + 2
    assert tags.targets == []
    assert {"script", "link", "img", "iframe", "object"}.isdisjoint(tags.seen)


def test_hostile_names_and_answers_are_shown_as_text(store: Store, stored: Stored) -> None:
    text = report_text("html", stored, store.records)
    assert HOSTILE not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert not any(name.startswith("on") for name in Tags(text).attributes)


def test_its_policy_lets_its_own_stylesheet_in_and_nothing_else(store: Store, stored: Stored) -> None:
    text = report_text("html", stored, store.records)
    assert "default-src &#39;none&#39;" in text
    assert re.fullmatch(r"default-src 'none'; style-src 'sha256-[\w+/]{43}='; .*", content_policy())
    assert "style" not in Tags(text).attributes


def test_the_same_record_gives_the_same_bytes(store: Store, stored: Stored, tmp_path: Path) -> None:
    plan = Plan.model_validate_json(stored.plan)
    first = report_text("html", stored, store.records)
    assert first == report_text("html", stored, store.records)
    other = Store.open(f"sqlite:///{tmp_path / 'other.db'}")
    again = keep.finish(other, plan, observed(plan))
    moved = again._replace(
        id=stored.id, created_at=stored.created_at, started_at=stored.started_at, finished_at=stored.finished_at
    )
    report = build_report(again, other.records).model_copy(
        update={"comparison_id": moved.id, "created_at": moved.created_at, "started_at": moved.started_at,
                "finished_at": moved.finished_at}
    )  # fmt: skip
    assert first == to_html(report, read_details(again.id, plan, other.records))


def test_answers_stand_side_by_side_with_the_question(store: Store, stored: Stored) -> None:
    text = report_text("html", stored, store.records)
    assert "Question 5 is right in one arm only" in text
    assert "Question 3: other words, the same grade" in text
    assert "q5 <strong>Right: 5</strong>" in text
    assert "#### <mark>5</mark>" in text
    assert "#### <mark>1005</mark>" in text


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("so 12 apples", "so 13 apples", (("so ", "12", " apples"), ("so ", "13", " apples"))),
        ("same", "same", (("same", "", ""), ("same", "", ""))),
        ("one", "one two", (("", "one", ""), ("", "one", " two"))),
        ("one ", "one two", (("one ", "", ""), ("one ", "two", ""))),
        ("", "x y", (("", "", ""), ("", "x", " y"))),
        ("a  b", "a c", (("a ", " b", ""), ("a ", "c", ""))),
    ],
)
def test_the_first_word_that_differs_is_marked(
    first: str, second: str, expected: tuple[tuple[str, str, str], tuple[str, str, str]]
) -> None:
    assert side_by_side(first, second) == expected
    for text, parts in zip((first, second), expected, strict=True):
        assert "".join(parts) == text


def test_timings_count_what_the_judge_counts() -> None:
    plan = make.plan()
    assert plan.latency is not None
    records = make.exact_blocks([0.0])
    timings = timings_of((record for record in records if isinstance(record, BlockRecord)), plan.latency)
    assert [(block.batch, block.sequence) for block in timings.blocks] == [
        (block.batch, place) for place, block in enumerate(timings.blocks, 1)
    ]
    # 24 steps a block of which the first 4 are warm-up, each of 5,000 us, two blocks an arm.
    assert {block.steps for block in timings.blocks} == {20}
    first = timings.distributions[0]
    assert (first.batch, first.clock) == (16, "busy")
    assert first.arms["A"].steps == first.arms["B"].steps == 40
    assert first.arms["A"].mean_us == first.arms["A"].median_us == 5000.0
    assert sum(first.arms["A"].counts) == 40
    verdict = judge(make.together(make.launches(plan, 1), records), plan)
    assert verdict.latency is not None
    assert timings.blocks[0].busy.mean_us == pytest.approx(verdict.latency.evidence.busy.baseline_us)


def test_a_kernel_that_one_arm_does_not_run_is_counted_as_none_of_it() -> None:
    counts = list(kernel_counts(r for r in make.treatment(60.0, 0.0) if r.kind == "treatment"))
    assert [(c.name, c.baseline, c.candidate, c.differs) for c in counts] == [
        ("aten::ones", 60.0, 0.0, True), ("aten::bmm", 60.0, 60.0, False),
    ]  # fmt: skip
    alone = list(kernel_counts(r for r in make.treatment() if r.kind == "treatment" and r.role == "A"))
    assert {count.candidate for count in alone} == {None}


def test_a_report_without_details_still_opens(store: Store, stored: Stored) -> None:
    assert "Set-up" in to_html(build_report(stored, store.records), Details())


def test_a_start_that_was_cut_short_has_no_end() -> None:
    again = make.launch(1, "A", "baseline").model_copy(update={"started_at": "2026-01-01T00:10:00Z"})
    cut_short, second = launched(
        [make.launch(1, "A", "baseline"), again, StopRecord(pair=1, role="A", held_s=60.0, clean=True)]
    )
    assert (cut_short.started_at, cut_short.held_s, cut_short.clean) == ("2026-01-01T00:00:00Z", None, None)
    assert (second.started_at, second.held_s, second.clean) == ("2026-01-01T00:10:00Z", 60.0, True)


def test_an_end_without_a_start_of_its_own_changes_none_before() -> None:
    stops = [StopRecord(pair=1, role="A", held_s=held_s, clean=held_s == 60.0) for held_s in (60.0, 5.0)]
    (only,) = launched([make.launch(1, "A", "baseline"), *stops])
    assert (only.held_s, only.clean) == (60.0, True)


def test_what_ran_already_is_shown_by_its_clients_clock_alone(store: Store) -> None:
    plan = make.plan(arms=ARMS, accuracy=None)
    stored = keep.finish(store, plan, make.together(launches(plan, 3), client_blocks(plan, 3, -0.05)))
    text = report_text("html", stored, store.records)
    assert "ran already at <code>http://127.0.0.1:1</code>, meant as scratch baseline" in text
    assert "its command line and environment are not recorded" in text
    assert "Command line:" not in text and "Environment that was set:" not in text
    shown = text.split("<h3>Launch pairs</h3>")[1].split("<h2>Set-up</h2>")[0]
    assert "Client" in shown and "one round with the same two engines" in shown
    assert not re.search("busy|period", shown, re.IGNORECASE)
    # One forest, the pairs, and of either batch size one clock and one chart of blocks.
    assert Tags(text).seen["svg"] == 1 + 1 + 2 + 2


def test_what_ran_already_without_a_clients_times_has_no_effect_to_show(store: Store) -> None:
    plan = make.plan(arms=ARMS, accuracy=None)
    blocks = [block.model_copy(update={"client": ()}) for block in client_blocks(plan, 3, -0.05)]
    stored = keep.finish(store, plan, make.together(launches(plan, 3), blocks))
    text = report_text("html", stored, store.records)
    assert "<h3>Launch pairs</h3>" not in text
    assert "<h3>Step times</h3>" in text


def test_levels_are_marked_where_they_were_looked_for_and_nowhere_else() -> None:
    plan = make.plan()
    assert plan.latency is not None
    records = make.together(make.launches(plan, 2), make.exact_blocks([0.0, 0.0]))
    verdict = judge(records, plan)
    assert verdict.latency is not None
    found = TwoLevelEvidence(
        low_us=4_000.0, high_us=6_000.0, baseline_share=0.5, candidate_share=0.5, pairs=1, tested=2
    )
    evidence = verdict.latency.evidence.model_copy(update={"two_level": found})
    timings = timings_of((one for one in records.records if isinstance(one, BlockRecord)), plan.latency)
    # The primary batch's busy times came first; without them no other chart takes their place.
    without = timings.model_copy(update={"distributions": timings.distributions[1:]})
    marked = [
        figure.shown for figure in distribution_figures(timings, evidence, "decode") if "level 4,000" in figure.chart
    ]
    assert [(one.batch, one.clock) for one in marked] == [(16, "busy")]
    assert not any("level 4,000" in figure.chart for figure in distribution_figures(without, evidence, "decode"))


def test_a_plan_without_looks_says_so(store: Store) -> None:
    plan = make.plan(2)
    assert plan.looks == ()
    stored = keep.finish(store, plan, observed(plan, 2))
    text = report_text("html", stored, store.records)
    assert "at most 2, no look before the last" in text
    assert "looks after </td>" not in text


def test_a_declared_aa_is_not_called_inactive_and_the_cost_is_shown(store: Store) -> None:
    stored = keep.finish(store, *declared_aa())
    text = report_text("html", stored, store.records)
    assert "<h2>Treatment: none, as declared (A/A)</h2>" in text
    cost = build_report(stored, store.records).verdict.cost
    assert f"<p>Cost: {cost.launch_pairs} launch pairs, {cost.device_seconds:.0f} s on the device</p>" in text
