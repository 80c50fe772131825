"""Comparisons brought into each status, by the shortest way."""

from equipoise_evals.model import Answered, AnswerRecord, StopRecord
from equipoise_service.ids import new_id
from equipoise_service.store import (
    Lease,
    NewComparison,
    Status,
    Store,
    StoredError,
)
from equipoise_service.store.transitions import begin

LEASE = Lease("here")
STOP = StopRecord(pair=1, role="A", held_s=1.5, clean=True)


def new(key: str | None = None, model: str = "m", sha: str = "0" * 64) -> NewComparison:
    return NewComparison(new_id(), model, "{}", sha, "{}", key)


def add(store: Store, model: str = "m") -> str:
    return store.comparisons.add(new(model=model))[0].id


def claimed(store: Store, owner: str = "here") -> str | None:
    stored = store.comparisons.claim(Lease(owner))
    return None if stored is None else stored.id


def lead_to(store: Store, status: Status) -> str:
    """A comparison in this status, by the shortest way."""
    comparison_id = add(store)
    comparisons = store.comparisons
    error = StoredError(stage="gsm8k", reason="it died")
    if status not in (Status.QUEUED, Status.CANCELLED):
        comparisons.claim(LEASE)
    if status in (Status.JUDGING, Status.SUCCEEDED):
        comparisons.judge(comparison_id)
    if status is Status.SUCCEEDED:
        comparisons.succeed(comparison_id, '{"a":1}', "ship")
    elif status is Status.FAILED:
        comparisons.fail(comparison_id, error)
    elif status is Status.CANCELLED:
        comparisons.cancel(comparison_id, "on request")
    elif status is Status.INTERRUPTED:
        comparisons.interrupt(comparison_id, "killed")
    return comparison_id


def move(store: Store, comparison_id: str, wanted: Status) -> None:
    comparisons = store.comparisons
    stored = comparisons.get(comparison_id)
    assert stored is not None
    current = stored.status
    match wanted:
        case Status.RUNNING:
            with store.database.write() as connection:
                begin(connection, comparison_id, LEASE)
        case Status.JUDGING:
            comparisons.judge(comparison_id)
        case Status.SUCCEEDED:
            comparisons.succeed(comparison_id, "{}", "ship")
        case Status.FAILED:
            comparisons.fail(comparison_id, StoredError(stage="s", reason="r"))
        case Status.CANCELLED:
            comparisons.cancel(comparison_id, "r")
        case Status.INTERRUPTED:
            comparisons.interrupt(comparison_id, "r")
        case Status.QUEUED:
            if current in (Status.RUNNING, Status.JUDGING):
                comparisons.release(comparison_id, "r")
            else:
                comparisons.resume(comparison_id)


def an_answer(number: int) -> AnswerRecord:
    answer = Answered(
        question_id=number, text="7", output_ids=(1,), finish_reason="stop", prompt_tokens=1, cached_tokens=0
    )
    return AnswerRecord(pair=1, role="A", answer=answer)
