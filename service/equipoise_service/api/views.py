"""What the API shows of a comparison. Views are made from stored values and nothing is computed in them."""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Self

from equipoise_evals.model import Frozen, Plan, Verdict
from equipoise_service.requests import CompareRequest
from equipoise_service.store import Page, Status, Stored, StoredError, Summary


class ProgressView(Frozen):
    """The newest progress of a comparison that has not ended: ``done`` of ``total`` units of ``stage``."""

    stage: str
    done: int
    total: int
    detail: str


class ComparisonSummary(Frozen):
    """One line of the list. ``model`` is what was asked for, ``model_name`` its name; ``verdict`` the overall word.

    ``reason`` says why there is no verdict, where it ended without one. ``machine`` is the device it ran on.
    ``intervals`` holds of ``latency`` (relative change of busy time) and ``accuracy`` (percentage points) the estimate,
    lower and upper limit and the margin.
    """

    id: str
    status: Status
    model: str
    model_name: str
    preset: str
    verdict: str | None
    headline: str | None
    reason: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    priority: int
    arms: str
    machine: str | None
    intervals: dict[str, tuple[float, float | None, float | None, float]]

    @classmethod
    def of(cls, line: Summary) -> Self:
        """The view of one line."""
        shown = {name: value for name, value in line._asdict().items() if name in cls.model_fields}
        intervals = json.loads(line.intervals) if line.intervals else {}
        return cls(verdict=line.verdict_word, **(shown | {"intervals": intervals}))


class ComparisonList(Frozen):
    """One page of comparisons, in the order asked for; ``next_cursor`` is null on the last page."""

    items: tuple[ComparisonSummary, ...]
    next_cursor: str | None

    @classmethod
    def of(cls, page: Page) -> Self:
        """The view of one page."""
        return cls(items=tuple(ComparisonSummary.of(line) for line in page.items), next_cursor=page.next_before)


class ComparisonView(Frozen):
    """One comparison: what was asked, what was planned, and what came of it.

    ``model`` is what was asked for, such as ``embedded``, ``model_name`` the name of the model that this means.
    ``verdict`` is there when ``status`` is ``succeeded``, ``error`` when it is ``failed``, ``cancelled`` or
    ``interrupted``, ``progress`` while it runs. ``attempt`` counts how often a worker began it; more than one means
    that it was resumed. ``deadline_at`` is when the attempt at work will have taken too long.
    """

    id: str
    status: Status
    model: str
    model_name: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    request: CompareRequest
    plan: Plan
    progress: ProgressView | None
    verdict: Verdict | None
    error: StoredError | None
    priority: int
    attempt: int
    heartbeat_at: datetime | None
    deadline_at: datetime | None
    links: dict[str, str]

    @classmethod
    def of(cls, stored: Stored, progress: ProgressView | None) -> Self:
        """The view of a stored comparison and its newest progress."""
        plan = Plan.model_validate_json(stored.plan)
        return cls(
            id=stored.id,
            status=stored.status,
            model=stored.model,
            model_name=plan.model.name,
            created_at=stored.created_at,
            started_at=stored.started_at,
            finished_at=stored.finished_at,
            request=CompareRequest.model_validate_json(stored.request),
            plan=plan,
            progress=progress,
            verdict=verdict_of(stored),
            error=stored.error,
            priority=stored.priority,
            attempt=stored.attempt,
            heartbeat_at=stored.heartbeat_at,
            deadline_at=stored.deadline_at,
            links=links(stored.id),
        )


def verdict_of(stored: Stored) -> Verdict | None:
    """The stored verdict as a value."""
    return None if stored.verdict is None else Verdict.model_validate_json(stored.verdict)


def links(comparison_id: str) -> dict[str, str]:
    """Where everything about one comparison is, relative to the service."""
    root = f"/comparisons/{comparison_id}"
    names: Iterable[tuple[str, str]] = (
        ("self", ""),
        ("page", "/page"),
        ("events", "/events"),
        ("records", "/records"),
        ("report_json", "/report.json"),
        ("report_csv", "/report.csv"),
        ("report_markdown", "/report.md"),
        ("report_html", "/report.html"),
        ("cancel", "/cancel"),
        ("resume", "/resume"),
    )
    return {name: root + path for name, path in names}
