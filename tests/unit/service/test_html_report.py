"""The report in one file: complete, inert whatever models and answers say, and the same bytes each time."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from equipoise_evals.judge import judge
from equipoise_evals.model import BlockRecord, ModelRef, Plan, Records
from equipoise_service.report import Details, build_report, read_details, report_text, to_html
from equipoise_service.report.details import kernel_counts
from equipoise_service.report.rendering import content_policy
from equipoise_service.report.sides import side_by_side
from equipoise_service.report.timings import timings_of
from equipoise_service.store import Store, Stored
from tests.support import records as make
from tests.support import stored as keep

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
