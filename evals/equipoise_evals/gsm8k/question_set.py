"""What a question set is, how one line of it is read, and everything that can be wrong with it. No file is opened here.

A set is two files in GSM8K's format: one JSON object a line with ``question`` and ``answer``, the answer's last line
being ``####`` and the gold. Nothing in a text is repaired: a line that cannot be read is an error that names it.

::

    QuestionSetError
    ├── FolderMissing
    ├── FileMissing        also where a file is there and cannot be read
    ├── CorruptLine        with its 1-based line
    ├── EmptySet
    ├── HubUnavailable
    ├── TooFewQuestions    more asked for than there are
    └── SetChanged         not the set that was planned
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from equipoise_evals.model import Question

Split = Literal["test", "train"]

GOLD = re.compile(r"-?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?")
"""A gold: ASCII digits, optionally with a minus, thousands commas and decimals: ``18``, ``-10``, ``1,450,000``."""

MARKER = "####"


class QuestionSetError(ValueError):
    """A question set cannot be used."""


class FolderMissing(QuestionSetError):
    """The folder is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is no folder; name one that holds test.jsonl and train.jsonl")
        self.path = path


class FileMissing(QuestionSetError):
    """A file of the set is not there or cannot be read; ``why`` says which."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} {why}; a question set is a folder that holds test.jsonl and train.jsonl")
        self.path = path
        self.why = why


class CorruptLine(QuestionSetError):
    """A line that is no question; ``line`` is 1-based, ``path`` a file or a split of a hub data set."""

    def __init__(self, path: str, line: int, why: str) -> None:
        super().__init__(f"{path}, line {line}: {why}")
        self.path = path
        self.line = line
        self.why = why


class EmptySet(QuestionSetError):
    """A file without a question."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} holds no question")
        self.path = path


class HubUnavailable(QuestionSetError):
    """The set could not be had from the hub; ``why`` says what happened and what to do."""

    def __init__(self, name: str, revision: str, why: str) -> None:
        super().__init__(f"{name} at revision {revision}: {why}")
        self.name = name
        self.revision = revision
        self.why = why


class TooFewQuestions(QuestionSetError):
    """More questions or worked examples asked for than the set has."""

    def __init__(self, split: Split, asked: int, population: int) -> None:
        what = "questions" if split == "test" else "worked examples"
        super().__init__(f"{asked} {what} asked for, and the set has {population} in its {split} file")
        self.split = split
        self.asked = asked
        self.population = population


class SetChanged(QuestionSetError):
    """The set at hand is not the one that was planned."""

    def __init__(self, name: str, split: Split, planned_sha256: str, found_sha256: str) -> None:
        super().__init__(
            f"the {split} questions of {name!r} are not the planned ones: their digest is {found_sha256}, "
            f"the plan says {planned_sha256}; restore the set or plan the comparison again"
        )
        self.name = name
        self.split = split
        self.planned_sha256 = planned_sha256
        self.found_sha256 = found_sha256


@dataclass(frozen=True)
class QuestionSet:
    """A question set in memory. Each question's ``id`` is its place in its tuple.

    Attributes:
        name: As shown: ``shipped``, ``folder`` or the hub's id.
        revision: The hub's commit, or None where the files themselves are the revision.
        test_sha256: Digest of the test file's bytes; of a hub set, of its ``canonical_line``s.
        train_sha256: The same of the train file.
        test: The questions that can be asked.
        train: The questions that can be worked examples.
    """

    name: str
    revision: str | None
    test_sha256: str
    train_sha256: str
    test: tuple[Question, ...]
    train: tuple[Question, ...]


def canonical_line(question: str, answer: str) -> bytes:
    """One row as a line of a GSM8K file.

    The layout is that of the files in ``openai/grade-school-math``: over their rows it gives their bytes, so that the
    same rows have the same digest wherever they come from.
    """
    return json.dumps({"question": question, "answer": answer}).encode() + b"\n"


def parse_file(data: bytes, path: str) -> tuple[Question, ...]:
    r"""The questions of a file in GSM8K's format, in order.

    Lines end at ``\n`` alone: U+2028 inside a text is part of it, and one question of GSM8K has it. Empty lines at the
    end are no lines.

    Raises:
        CorruptLine: A line is no question, or empty lines stand between questions.
        EmptySet: There is no question.
    """
    lines = data.split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise EmptySet(path)
    return tuple(_parse_line(line, place, path) for place, line in enumerate(lines))


def parse_row(row: object, place: int, path: str) -> Question:
    """The question of one row.

    Args:
        row: A mapping with the texts ``question`` and ``answer``; whatever else it holds is left alone.
        place: 0-based place in its file; the question's id.
        path: The file, for the error.

    Raises:
        CorruptLine: It is no question; the error says why.
    """
    if not isinstance(row, Mapping):
        raise CorruptLine(path, place + 1, "it is no JSON object")
    question, answer = (_text(row, key, place, path) for key in ("question", "answer"))
    rationale, gold = _split_answer(answer, place, path)
    return Question(id=place, question=question, rationale=rationale, gold=gold)


def _parse_line(line: bytes, place: int, path: str) -> Question:
    try:
        # A byte order mark, which some editors put before a file, is not part of its first line.
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as broken:
        raise CorruptLine(path, place + 1, f"it is not UTF-8 (byte {broken.start + 1} of the line)") from broken
    except (ValueError, RecursionError) as broken:
        raise CorruptLine(path, place + 1, f"it is not JSON ({broken})") from broken
    return parse_row(row, place, path)


def _text(row: Mapping[str, object], key: str, place: int, path: str) -> str:
    text = row.get(key)
    if not isinstance(text, str) or not text.strip():
        raise CorruptLine(path, place + 1, f"it has no text under {key!r}")
    try:
        text.encode()
    except UnicodeEncodeError as broken:
        raise CorruptLine(path, place + 1, f"{key!r} holds half of a character (a lone surrogate)") from broken
    return text


def _split_answer(answer: str, place: int, path: str) -> tuple[str, str]:
    """Rationale and gold. Only white space around the gold and the line break before its marker are left out."""
    head, marker, tail = answer.rpartition(MARKER)
    if not marker or MARKER in head or (head and not head.endswith("\n")):
        raise CorruptLine(path, place + 1, f"its answer needs one line, the last, that begins with {MARKER}")
    gold = tail.strip()
    if not GOLD.fullmatch(gold):
        raise CorruptLine(path, place + 1, f"the gold {gold[:80]!r} is no number")
    return head.removesuffix("\n"), gold
