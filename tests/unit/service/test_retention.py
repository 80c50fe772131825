"""Which comparisons go, by rules over a list that is written down here."""

from datetime import UTC, datetime, timedelta

import pytest

from equipoise_service.retention import Rule, chosen, size_of, size_text, time_of
from equipoise_service.store import Status
from equipoise_service.store.keeping import Kept

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def kept(name: str, days: int, size: int, verdict: str | None = "ship") -> Kept:
    status = Status.FAILED if verdict is None else Status.SUCCEEDED
    return Kept(name, status, verdict, "m", NOW - timedelta(days=days), size)


LIST = [kept("old", 100, 10), kept("failed", 50, 20, None), kept("big", 20, 400), kept("new", 1, 30, "block")]


@pytest.mark.parametrize(
    ("rule", "goes"),
    [
        (Rule(older_than=timedelta(days=50)), ["old"]),  # exactly 50 days is not longer ago
        (Rule(older_than=timedelta(days=10)), ["old", "failed", "big"]),
        (Rule(verdicts=("ship",)), ["old", "big"]),
        (Rule(verdicts=("ship", "block"), older_than=timedelta(days=90)), ["old"]),
        (Rule(statuses=(Status.FAILED,)), ["failed"]),
        (Rule(larger_than=30), ["big"]),
        (Rule(down_to=460), []),
        (Rule(down_to=459), ["old"]),
        (Rule(down_to=0), ["old", "failed", "big", "new"]),
        (Rule(down_to=100, verdicts=("block",)), ["new"]),  # nothing else may go, though 430 remain
    ],
)
def test_every_part_that_is_set_has_to_be_met(rule: Rule, goes: list[str]) -> None:
    assert [one.id for one in chosen(LIST[::-1], rule, NOW)] == goes
    assert rule.says_something


def test_an_empty_rule_is_none() -> None:
    assert not Rule().says_something


@pytest.mark.parametrize(("text", "hours"), [("12h", 12), ("90d", 2160), (" 2 w", 336), ("0d", 0)])
def test_times(text: str, hours: int) -> None:
    assert time_of(text) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["", "90", "d", "-1d", "1.5d", "1y", "9999999d"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is no time such as"):
        time_of(text)


@pytest.mark.parametrize(
    ("text", "size"), [("0B", 0), ("500MB", 500_000_000), ("1.5 GB", 1_500_000_000), ("2kB", 2000)]
)
def test_sizes(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "500", "MB", "1GiB", "-1MB", "1e3MB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is no size such as"):
        size_of(text)


def test_sizes_for_people() -> None:
    assert [size_text(n) for n in (0, 999, 1000, 1_500_000, 2_000_000_000)] == [
        "0 B", "999 B", "1.0 kB", "1.5 MB", "2.0 GB",
    ]  # fmt: skip
