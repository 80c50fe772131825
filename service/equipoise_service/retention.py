"""Which ended comparisons are no longer kept. Pure: a list, a rule and the time decide."""

import re
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from equipoise_service.store.keeping import Kept
from equipoise_service.store.status import Status

UNITS_OF_TIME = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
UNITS_OF_SIZE = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


class Rule(NamedTuple):
    """A comparison has to meet every part that is set; one without any part would meet everything.

    Attributes:
        older_than: It ended longer ago than this.
        verdicts: Its verdict is one of these words.
        statuses: Its status is one of these.
        larger_than: It takes up more than so many bytes.
        down_to: The oldest go until all that ended take up at most so many bytes.
    """

    older_than: timedelta | None = None
    verdicts: Collection[str] = ()
    statuses: Collection[Status] = ()
    larger_than: int | None = None
    down_to: int | None = None

    @property
    def says_something(self) -> bool:
        """Whether any part is set."""
        return self != Rule()


def chosen(kept: Sequence[Kept], rule: Rule, now: datetime) -> list[Kept]:
    """The comparisons that go by this rule, oldest first."""
    meeting = [one for one in sorted(kept, key=lambda one: one.ended_at) if _meets(one, rule, now)]
    if rule.down_to is None:
        return meeting
    total, going = sum(one.size for one in kept), []
    for one in meeting:
        if total <= rule.down_to:
            break
        going.append(one)
        total -= one.size
    return going


def _meets(one: Kept, rule: Rule, now: datetime) -> bool:
    return (
        (rule.older_than is None or now - one.ended_at > rule.older_than)
        and (not rule.verdicts or one.verdict in rule.verdicts)
        and (not rule.statuses or one.status in rule.statuses)
        and (rule.larger_than is None or one.size > rule.larger_than)
    )


def time_of(text: str) -> timedelta:
    """A time out of ``12h``, ``90d`` or ``2w``.

    Raises:
        ValueError: It is none.
    """
    found = re.fullmatch(r"(\d{1,6})\s*([hdw])", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no time such as 12h, 90d or 2w")
    return int(found[1]) * UNITS_OF_TIME[found[2]]


def size_of(text: str) -> int:
    """A number of bytes out of ``500MB`` or ``1.5GB``; units are decimal.

    Raises:
        ValueError: It is none.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([kMGT]?B)", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size such as 500MB or 1.5GB")
    return round(float(found[1]) * UNITS_OF_SIZE[found[2]])


def size_text(size: int) -> str:
    """A number of bytes for people."""
    for unit in ("GB", "MB", "kB"):
        if size >= UNITS_OF_SIZE[unit]:
            return f"{size / UNITS_OF_SIZE[unit]:.1f} {unit}"
    return f"{size} B"
