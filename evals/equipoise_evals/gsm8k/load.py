"""Question sets from where they lie: a folder, the hub, or beside this module."""

import hashlib
from pathlib import Path

from equipoise_evals.gsm8k.hub import PINNED, load_hub
from equipoise_evals.gsm8k.question_set import (
    CorruptLine,
    EmptySet,
    FileMissing,
    FolderMissing,
    HubUnavailable,
    QuestionSet,
    QuestionSetError,
    SetChanged,
    TooFewQuestions,
    parse_file,
)

__all__ = [
    "PINNED",
    "CorruptLine",
    "EmptySet",
    "FileMissing",
    "FolderMissing",
    "HubUnavailable",
    "QuestionSet",
    "QuestionSetError",
    "SetChanged",
    "TooFewQuestions",
    "load_folder",
    "load_hub",
    "load_shipped",
]

SHIPPED = Path(__file__).parent / "data" / "shipped"


def load_folder(path: Path, *, name: str = "folder") -> QuestionSet:
    """The set in a folder that holds ``test.jsonl`` and ``train.jsonl``; the digests are those of the files.

    Raises:
        FolderMissing: It is no folder.
        FileMissing: One of the files is not there or cannot be read.
        CorruptLine: A line is no question.
        EmptySet: A file has no question.
    """
    if not path.is_dir():
        raise FolderMissing(str(path))
    test, train = _read(path / "test.jsonl"), _read(path / "train.jsonl")
    return QuestionSet(
        name=name,
        revision=None,
        test_sha256=hashlib.sha256(test).hexdigest(),
        train_sha256=hashlib.sha256(train).hexdigest(),
        test=parse_file(test, str(path / "test.jsonl")),
        train=parse_file(train, str(path / "train.jsonl")),
    )


def load_shipped() -> QuestionSet:
    """The word problems that this project ships; ``data/shipped/README.md`` says what they are."""
    return load_folder(SHIPPED, name="shipped")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as missing:
        raise FileMissing(str(path), "is not there") from missing
    except OSError as broken:
        raise FileMissing(str(path), f"cannot be read ({broken.strerror})") from broken
