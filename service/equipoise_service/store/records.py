"""Raw records, one row each, in the order they were observed. Written once, never changed.

Blocks, the bulky ones, are kept compressed; what comes back is the text that went in, byte for byte. Answers of a pass
that goes on are rows of their own, and leave when the pass that holds them all is stored.
"""

import time
import zlib
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import NamedTuple

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from equipoise_evals.model import AnswerRecord, PassRecord, Record, Records
from equipoise_service.store.background import Background
from equipoise_service.store.database import Database
from equipoise_service.store.tables import record_parts

COMPRESSED_KINDS = frozenset({"block", "pass"})
BATCH = 32
GATHER_S = 0.02
"""Answers that come together are written together, after the event loop has sent the questions that follow them."""
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


class Part(NamedTuple):
    """One stored record; ``payload`` is its JSON text."""

    seq: int
    kind: str
    payload: str


class RecordParts:
    """Reading and appending the records of comparisons."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, comparison_id: str, record: Record) -> int:
        """Append one record durably and return its number, from 1; a pass takes the place of its answers."""
        with self._database.write() as connection:
            seq = _insert(connection, comparison_id, [record])
            if isinstance(record, PassRecord):
                connection.execute(delete(record_parts).where(*_answers_of(comparison_id, record)))
        return seq

    def append_all(self, comparison_id: str, records: Sequence[Record]) -> None:
        """Append records durably, all or none."""
        with self._database.write() as connection:
            _insert(connection, comparison_id, records)

    def parts(self, comparison_id: str, kind: str | None = None) -> Iterator[Part]:
        """Stored records in order, of one kind or of all, read in batches.

        No connection is held between two batches, however slowly the caller takes them.
        """
        last = 0
        while batch := self._batch(comparison_id, kind, last):
            yield from batch
            last = batch[-1].seq

    def _batch(self, comparison_id: str, kind: str | None, after: int) -> list[Part]:
        query = select(
            record_parts.c.seq, record_parts.c.kind, record_parts.c.payload, record_parts.c.payload_zlib
        ).where(record_parts.c.comparison_id == comparison_id, record_parts.c.seq > after)
        if kind is not None:
            query = query.where(record_parts.c.kind == kind)
        with self._database.read() as connection:
            return [
                Part(seq, its_kind, zlib.decompress(packed).decode() if text is None else text)
                for seq, its_kind, text, packed in connection.execute(query.order_by(record_parts.c.seq).limit(BATCH))
            ]

    def load(self, comparison_id: str) -> Records:
        """All records of one comparison, as values."""
        return Records(records=tuple(_RECORD.validate_json(part.payload) for part in self.parts(comparison_id)))


def _answers_of(comparison_id: str, done: PassRecord) -> tuple[ColumnElement[bool], ...]:
    # Fields are written in the order in which the model declares them, so a pass's answers begin alike.
    head = f'{{"kind":"answer","pair":{done.pair},"role":"{done.role}",'
    return (
        record_parts.c.comparison_id == comparison_id,
        record_parts.c.kind == "answer",
        record_parts.c.payload.startswith(head, autoescape=True),
    )


def _insert(connection: Connection, comparison_id: str, records: Sequence[Record]) -> int:
    newest = select(func.max(record_parts.c.seq)).where(record_parts.c.comparison_id == comparison_id)
    before = connection.scalar(newest) or 0
    rows = []
    for seq, record in enumerate(records, before + 1):
        text = _RECORD.dump_json(record)
        packed = record.kind in COMPRESSED_KINDS
        rows.append(
            {
                "comparison_id": comparison_id,
                "seq": seq,
                "kind": record.kind,
                "payload": None if packed else text.decode(),
                "payload_zlib": zlib.compress(text) if packed else None,
            }
        )
    connection.execute(insert(record_parts), rows)
    return before + len(rows)


def is_of(record: Record, done: PassRecord) -> bool:
    """Whether a record is an answer of this pass, which the pass now holds."""
    return isinstance(record, AnswerRecord) and (record.pair, record.role) == (done.pair, done.role)


class StoredRecorder:
    """The experiment's ``Recorder``, bound to one comparison: what ``append`` returned from survives a crash.

    Answers are written by a thread of their own, all that came while it wrote in one transaction: hundreds a second may
    come, and a commit that waits for the disk takes milliseconds. ``flush`` waits until they are down.
    """

    def __init__(self, parts: RecordParts, comparison_id: str) -> None:
        self._parts = parts
        self._comparison_id = comparison_id
        self._appended = list(parts.load(comparison_id).records)
        self._background = Background("answers")
        self._waiting: list[Record] = []
        self._lock = Lock()

    def append(self, record: Record) -> None:
        """Store one record durably; an answer within the next commits."""
        if isinstance(record, AnswerRecord):
            self._write_soon(record)
        else:
            self.flush()
            self._parts.append(self._comparison_id, record)
        if isinstance(record, PassRecord):
            self._appended = [one for one in self._appended if not is_of(one, record)]
        self._appended.append(record)

    def records(self) -> Records:
        """Everything stored so far, in order."""
        return Records(records=tuple(self._appended))

    def flush(self) -> None:
        """Wait until every answer is stored; raises what kept one from it."""
        self._background.flush()

    def _write_soon(self, record: Record) -> None:
        with self._lock:
            self._waiting.append(record)
            if len(self._waiting) > 1:
                return  # whoever writes next takes it along
        self._background.submit(self._write)

    def _write(self) -> None:
        time.sleep(GATHER_S)
        with self._lock:
            records, self._waiting = self._waiting, []
        self._parts.append_all(self._comparison_id, records)
