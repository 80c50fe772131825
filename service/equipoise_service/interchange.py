"""The document in which a comparison leaves the database: all that is needed to judge it again elsewhere."""

import json
from collections.abc import Iterator
from typing import Literal, NamedTuple

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


class RecordTexts(NamedTuple):
    """The parts of a ``RecordsDocument`` as the texts that they were stored as; ``records`` are kind and text."""

    comparison_id: str
    plan: str
    records: tuple[tuple[str, str], ...]
    verdict: str | None


def texts_of(document: str) -> RecordTexts:
    """Take apart what ``records_text`` wrote, byte for byte: parsing and writing again could change a number's digits.

    Raises:
        ValueError: It is not such a text.
    """
    found = _Reader(document)
    found.expect('{"schema_version":1,"comparison_id":')
    comparison_id = json.loads(found.value())
    found.expect(',"plan":')
    plan = found.value()
    found.expect(',"records":[')
    records: list[tuple[str, str]] = []
    while not found.at('],"verdict":'):
        found.expect("," if records else "")
        text = found.value()
        records.append((str(json.loads(text)["kind"]), text))
    found.expect('],"verdict":')
    verdict = found.value()
    found.expect("}")
    if not found.ended:
        raise ValueError("there is text after the document")
    return RecordTexts(str(comparison_id), plan, tuple(records), None if verdict == "null" else verdict)


class _Reader:
    """A place in a JSON text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._decoder = json.JSONDecoder()

    @property
    def ended(self) -> bool:
        return self._place == len(self._text)

    def at(self, expected: str) -> bool:
        return self._text.startswith(expected, self._place)

    def expect(self, expected: str) -> None:
        if not self.at(expected):
            raise ValueError(f"{expected!r} is expected at character {self._place}")
        self._place += len(expected)

    def value(self) -> str:
        """The text of the value that begins here."""
        _, end = self._decoder.raw_decode(self._text, self._place)
        text = self._text[self._place : end]
        self._place = end
        return text
