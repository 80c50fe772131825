"""What an exported comparison consists of: its facts, raw records, events, reports and engine logs, as files."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from pydantic import AwareDatetime, Field, TypeAdapter

from equipoise_evals.model import Frozen
from equipoise_service.errors import NotEnded
from equipoise_service.interchange import records_text
from equipoise_service.report import MEDIA_TYPES, report_text
from equipoise_service.store import FINAL, Status, Store, Stored, StoredError

FACTS = "comparison.json"
RECORDS = "records.json"
EVENTS = "events.jsonl"
LOGS = "logs"
LOG_NAMES = "engine.log*"
"""Traces and step logs stay: what counts of them is in the records."""
EVENT_BATCH = 500


class Facts(Frozen):
    """A comparison but for what ``records.json`` holds. ``request`` is JSON text, byte for byte as it is stored."""

    id: str
    status: Status
    model: str
    request: str
    request_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    error: StoredError | None
    created_at: AwareDatetime
    started_at: AwareDatetime | None
    finished_at: AwareDatetime | None
    priority: int = 0
    attempt: int = 0

    def text(self) -> str:
        """As it stands in the file."""
        return self.model_dump_json(indent=2) + "\n"


class ExportedEvent(Frozen):
    """One line of ``events.jsonl``; ``payload`` is JSON text."""

    seq: int = Field(ge=1)
    at: AwareDatetime
    kind: str
    payload: str


ONE_EVENT: TypeAdapter[ExportedEvent] = TypeAdapter(ExportedEvent)


def facts_of(stored: Stored) -> Facts:
    """The facts of a stored comparison."""
    return Facts(**{name: getattr(stored, name) for name in Facts.model_fields})


def write_comparison(store: Store, stored: Stored, folder: Path, logs: Path | None) -> None:
    """Write the files of one comparison into a new folder.

    Args:
        store: Its database.
        stored: The comparison.
        folder: Is made.
        logs: Its engines' folder; None leaves logs out.

    Raises:
        NotEnded: It is queued or running, so that its records are not complete.
    """
    if stored.status not in FINAL:
        raise NotEnded(stored.id, stored.status)
    folder.mkdir(parents=True)
    _write(folder / FACTS, [facts_of(stored).text()])
    _write(folder / RECORDS, records_text(stored, store.records))
    _write(folder / EVENTS, (f"{line}\n" for line in _event_lines(store, stored.id)))
    if stored.verdict is not None:
        for ending in MEDIA_TYPES:
            _write(folder / f"report.{ending}", [report_text(ending, stored, store.records)])
    if logs is not None:
        for log in sorted(logs.rglob(LOG_NAMES)):
            target = folder / LOGS / log.relative_to(logs)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, target, follow_symlinks=False)


def _event_lines(store: Store, comparison_id: str) -> Iterable[str]:
    after = 0
    while batch := store.events.after(comparison_id, after, EVENT_BATCH):
        for event in batch:
            after = event.seq
            yield ONE_EVENT.dump_json(ExportedEvent(**event._asdict())).decode()


def _write(path: Path, texts: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(texts)
