"""Raw records, one row each, in the order they were observed. Written once, never changed.

Blocks, the bulky ones, are kept compressed; what comes back is the text that went in, byte for byte.
"""

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from pydantic import TypeAdapter
from sqlalchemy import func, insert, select

from equipoise_evals.model import Record, Records
from equipoise_service.store.database import Database
from equipoise_service.store.tables import record_parts

COMPRESSED_KINDS = frozenset({"block", "pass"})
BATCH = 32
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
        """Append one record durably and return its number, from 1."""
        text = _RECORD.dump_json(record)
        packed = record.kind in COMPRESSED_KINDS
        newest = select(func.max(record_parts.c.seq)).where(record_parts.c.comparison_id == comparison_id)
        with self._database.write() as connection:
            seq = (connection.scalar(newest) or 0) + 1
            connection.execute(
                insert(record_parts).values(
                    comparison_id=comparison_id,
                    seq=seq,
                    kind=record.kind,
                    payload=None if packed else text.decode(),
                    payload_zlib=zlib.compress(text) if packed else None,
                )
            )
        return seq

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


class StoredRecorder:
    """The experiment's ``Recorder``, bound to one comparison: what ``append`` returned from survives a crash."""

    def __init__(self, parts: RecordParts, comparison_id: str) -> None:
        self._parts = parts
        self._comparison_id = comparison_id
        self._appended = list(parts.load(comparison_id).records)

    def append(self, record: Record) -> None:
        """Store one record durably."""
        self._parts.append(self._comparison_id, record)
        self._appended.append(record)

    def records(self) -> Records:
        """Everything stored so far, in order."""
        return Records(records=tuple(self._appended))
