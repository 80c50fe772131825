"""The document in which a comparison leaves the database: all that is needed to judge it again elsewhere."""

import json
from collections.abc import Iterator
from typing import Literal

from equipoise_evals.model import Frozen, Plan, Record, Records, Verdict
from equipoise_service.store import RecordParts, Stored


class RecordsDocument(Frozen):
    """Everything observed in one comparison, in the order observed, with the plan it was measured by.

    ``verdict`` is the stored one, null if there is none; ``equipoise judge --check`` compares with it.
    """

    schema_version: Literal[1] = 1
    comparison_id: str | None = None
    plan: Plan
    records: tuple[Record, ...]
    verdict: Verdict | None = None

    @property
    def observed(self) -> Records:
        """The records as the judge takes them."""
        return Records(records=self.records)


def records_text(stored: Stored, parts: RecordParts) -> Iterator[str]:
    """A ``RecordsDocument`` as JSON, piece by piece: a long comparison need never be in memory at once."""
    yield f'{{"schema_version":1,"comparison_id":{json.dumps(stored.id)},"plan":{stored.plan},"records":['
    for index, part in enumerate(parts.parts(stored.id)):
        yield f"{',' if index else ''}{part.payload}"
    yield f'],"verdict":{stored.verdict or "null"}}}'
