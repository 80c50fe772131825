"""Raw records, one row each, in the order they were observed. Written once, never changed.

Blocks, the bulky ones, are kept compressed; what comes back is the text that went in, byte for byte. Answers of a pass
that goes on are rows of their own, and leave when the pass that holds them all is stored.
"""

import logging
import time
import zlib
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import NamedTuple

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from equipoise_evals.model import AnswerRecord, PassRecord, Record, Records
from equipoise_service.errors import StorageUnavailable
from equipoise_service.store.background import Background
from equipoise_service.store.database import BUSY_TIMEOUT_S, Database
from equipoise_service.store.fence import Holder, require_lease
from equipoise_service.store.tables import record_parts

COMPRESSED_KINDS = frozenset({"block", "pass"})
BATCH = 32
RETRY_S = 0.5
log = logging.getLogger(__name__)
GATHER_S = 0.02
"""Answers that come together are written together, after the event loop has sent the questions that follow them."""
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


class Part(NamedTuple):
    """One stored record; ``payload`` is its JSON text."""

    seq: int
    kind: str
    payload: str


class Doubt(NamedTuple):
    """Records that a commit may have written whose answer never came.

    Attributes:
        first: So many of those to be written, the first ones, all of them written or none.
        after: The number of the last record that is known to have been written before them.
    """

    first: int
    after: int


class RecordParts:
    """Reading and appending the records of comparisons."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, comparison_id: str, record: Record) -> int:
        """Append one record durably and return its number, from 1."""
        return self.append_all(comparison_id, [record])

    def append_all(
        self, comparison_id: str, records: Sequence[Record], owner: Holder | None = None, doubt: Doubt | None = None
    ) -> int:
        """Append records durably, all or none, and return the last one's number; passes take their answers' place.

        Those in ``doubt`` are left out if they stand already.

        Raises:
            LeaseLost: The comparison is no longer ``owner``'s, where one is named.
        """
        with self._database.write() as connection:
            require_lease(connection, comparison_id, owner)
            if doubt is not None and _stands(connection, comparison_id, records[doubt.first - 1], doubt):
                records = records[doubt.first :]
            seq = _insert(connection, comparison_id, records)
            for record in records:
                if isinstance(record, PassRecord):
                    connection.execute(delete(record_parts).where(*_answers_of(comparison_id, record)))
        return seq

    def newest(self, comparison_id: str) -> int:
        """The number of the newest record, 0 if there is none."""
        with self._database.read() as connection:
            return _newest(connection, comparison_id)

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


def _newest(connection: Connection, comparison_id: str) -> int:
    newest = select(func.max(record_parts.c.seq)).where(record_parts.c.comparison_id == comparison_id)
    return connection.scalar(newest) or 0


def _stands(connection: Connection, comparison_id: str, record: Record, doubt: Doubt) -> bool:
    """Whether the last record in doubt was written after those that are known; no pass can have taken its place."""
    row = row_of(comparison_id, 0, record.kind, _RECORD.dump_json(record).decode())
    same = [record_parts.c[name] == row[name] for name in ("comparison_id", "kind", "payload", "payload_zlib")]
    query = select(record_parts.c.seq).where(record_parts.c.seq > doubt.after, *same)
    return connection.scalar(query.limit(1)) is not None


def _insert(connection: Connection, comparison_id: str, records: Sequence[Record]) -> int:
    before = _newest(connection, comparison_id)
    if not records:
        return before
    rows = [
        row_of(comparison_id, seq, record.kind, _RECORD.dump_json(record).decode())
        for seq, record in enumerate(records, before + 1)
    ]
    connection.execute(insert(record_parts), rows)
    return before + len(rows)


def row_of(comparison_id: str, seq: int, kind: str, text: str) -> dict[str, object]:
    """The row of one record; ``text`` is its JSON."""
    packed = kind in COMPRESSED_KINDS
    return {
        "comparison_id": comparison_id,
        "seq": seq,
        "kind": kind,
        "payload": None if packed else text,
        "payload_zlib": zlib.compress(text.encode()) if packed else None,
    }


def is_of(record: Record, done: PassRecord) -> bool:
    """Whether a record is an answer of this pass, which the pass now holds."""
    return isinstance(record, AnswerRecord) and (record.pair, record.role) == (done.pair, done.role)


class StoredRecorder:
    """The experiment's ``Recorder``, bound to one comparison: what ``append`` returned from survives a crash.

    Answers are written by a thread of their own, all that came while it wrote in one transaction: hundreds a second may
    come, and a commit that waits for the disk takes milliseconds. The same thread takes over whatever cannot be written
    at once because the database is locked or the disk is full, and tries until it can: engines that hold a GPU do not
    wait for it, and no measurement is lost to it. ``flush`` waits until everything is down.

    With an ``owner``, nothing is written once the comparison is no longer that worker's, and ``LeaseLost`` says so.
    """

    def __init__(
        self, parts: RecordParts, comparison_id: str, patience_s: float = 600.0, owner: Holder | None = None
    ) -> None:
        self._parts = parts
        self._comparison_id = comparison_id
        self._patience_s = patience_s
        self._owner = owner
        self._appended = list(parts.load(comparison_id).records)
        self._known = parts.newest(comparison_id)
        self._unsure: Sequence[Record] = ()
        self._background = Background("records")
        self._waiting: list[Record] = []
        self._lock = Lock()
        self._late = False

    def append(self, record: Record) -> None:
        """Store one record durably; within the next commits if it is an answer or the database is unavailable."""
        if isinstance(record, AnswerRecord) or not self._written_now(record):
            self._write_soon(record)
        if isinstance(record, PassRecord):
            self._appended = [one for one in self._appended if not is_of(one, record)]
        self._appended.append(record)

    def records(self) -> Records:
        """Everything stored so far, in order."""
        return Records(records=tuple(self._appended))

    def flush(self, patience_s: float | None = None) -> None:
        """Wait until everything is stored; raises what kept a record from it, ``patience_s`` from now at the latest."""
        if patience_s is not None:
            self._patience_s = patience_s
        self._background.flush()

    def _written_now(self, record: Record) -> bool:
        # What was appended before comes before; but while the database is unavailable nobody waits again and again.
        if not self._background.is_done(0.0 if self._late else BUSY_TIMEOUT_S):
            return False
        self._late = False
        try:
            self._store([record])
        except StorageUnavailable as unavailable:
            log.warning("comparison %s: %s; it is written once it can be", self._comparison_id, unavailable.detail)
            self._late = True
            return False
        return True

    def _store(self, records: Sequence[Record]) -> None:
        """Write them. What could not be written comes first in the next call, and may have been written after all."""
        again = [*records[: len(self._unsure)]] == [*self._unsure]
        doubt = Doubt(len(self._unsure), self._known) if again and self._unsure else None
        try:
            self._known = self._parts.append_all(self._comparison_id, records, self._owner, doubt)
        except StorageUnavailable:
            self._unsure = records
            raise
        self._unsure = ()

    def _write_soon(self, record: Record) -> None:
        self._background.is_done()
        with self._lock:
            self._waiting.append(record)
            if len(self._waiting) > 1:
                return  # whoever writes next takes it along
        self._background.submit(self._write)

    def _write(self) -> None:
        time.sleep(GATHER_S)
        with self._lock:
            records, self._waiting = self._waiting, []
        began_s = time.monotonic()
        while True:
            try:
                self._store(records)
            except StorageUnavailable:
                if time.monotonic() - began_s >= self._patience_s:
                    raise
                time.sleep(RETRY_S)
            else:
                return
