"""The life of a comparison as a table. A verdict is something else: only ``succeeded`` has one."""

from enum import StrEnum


class Status(StrEnum):
    """Where a comparison is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    JUDGING = "judging"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.RUNNING, Status.CANCELLED}),
    Status.RUNNING: frozenset({Status.JUDGING, Status.FAILED, Status.CANCELLED, Status.INTERRUPTED, Status.QUEUED}),
    Status.JUDGING: frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.INTERRUPTED, Status.QUEUED}),
    Status.SUCCEEDED: frozenset(),
    Status.FAILED: frozenset({Status.QUEUED}),
    Status.CANCELLED: frozenset({Status.QUEUED}),
    Status.INTERRUPTED: frozenset({Status.QUEUED}),
}
"""From each status to those that may follow it. What its worker had to let go of, or what somebody orders to resume, is
``queued`` again."""

FINAL = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.INTERRUPTED})
"""Statuses that nothing follows by itself."""

ACTIVE = frozenset({Status.RUNNING, Status.JUDGING})
"""Statuses in which a worker is at work."""


class InvalidTransition(Exception):
    """A status was to follow another that it cannot follow; nothing was changed."""

    def __init__(self, comparison_id: str, current: Status, wanted: Status) -> None:
        super().__init__(f"comparison {comparison_id} is {current} and cannot become {wanted}")
        self.current = current
        self.wanted = wanted


def require_transition(comparison_id: str, current: Status, wanted: Status) -> None:
    """Raise ``InvalidTransition`` unless ``wanted`` may follow ``current``."""
    if wanted not in TRANSITIONS[current]:
        raise InvalidTransition(comparison_id, current, wanted)
