"""GSM8K from the Hugging Face hub, by ``datasets``, at a fixed commit. Nothing is taken that is not that commit."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import httpx2

from equipoise_evals.gsm8k.question_set import (
    HubUnavailable,
    QuestionSet,
    Split,
    canonical_line,
    parse_row,
)
from equipoise_evals.model import Question

NAME = "openai/gsm8k"
CONFIG = "main"
PINNED = "740312add88f781978c0658806c59bc2815b9866"
"""The commit that is used unless another is asked for.

The texts it serves add up to the bytes that the data set's card declares (713,732 and 3,963,202, text and offsets), and
so do those of ``test.jsonl`` and ``train.jsonl`` of https://github.com/openai/grade-school-math.
"""

Row = Mapping[str, str]


def load_hub(revision: str = PINNED, *, cache: Path | None = None) -> QuestionSet:
    """GSM8K at one commit of the hub, downloaded or out of the cache of ``datasets``. Blocks while it downloads.

    The digests are those of the rows written as ``canonical_line``s, since the hub's own files are Parquet.

    Args:
        revision: A whole commit; a branch would let the set change unseen.
        cache: Folder that ``datasets`` caches in; None is its own default.

    Raises:
        HubUnavailable: It is not cached and the hub cannot be reached, or refuses, or lacks this commit; or what came
            cannot be read, as a split without rows.
        CorruptLine: A row is no question.
        ValueError: ``revision`` is no whole commit.
    """
    if not re.fullmatch("[0-9a-f]{40}", revision):
        raise ValueError(f"revision {revision!r} is no commit of 40 hexadecimal digits")
    rows = _rows(revision, cache)
    test, test_sha256 = _questions(rows["test"], "test")
    train, train_sha256 = _questions(rows["train"], "train")
    return QuestionSet(NAME, revision, test_sha256, train_sha256, test, train)


def _rows(revision: str, cache: Path | None) -> dict[Split, Sequence[Row]]:
    # Imported here: it takes seconds, and only those who use the hub should pay them.
    import datasets  # noqa: PLC0415
    from datasets.exceptions import DatasetNotFoundError, DatasetsError  # noqa: PLC0415

    try:
        builder = datasets.load_dataset_builder(
            NAME, CONFIG, revision=revision, cache_dir=str(cache) if cache is not None else None
        )
        if builder.hash != revision:
            # Without the hub, `datasets` takes whichever commit was cached last and only logs that it does.
            raise HubUnavailable(
                NAME, revision, f"the cache holds commit {builder.hash} and the hub cannot be reached; {_REMEDY}"
            )
        builder.download_and_prepare()
        return {split: cast("Sequence[Row]", builder.as_dataset(split=split)) for split in ("test", "train")}
    except DatasetNotFoundError as refused:
        raise HubUnavailable(
            NAME, revision, f"{refused} If a token is wanted, set HF_TOKEN to one of an account that may read it"
        ) from refused
    except ConnectionError as unreachable:
        raise HubUnavailable(
            NAME, revision, f"not in the cache, and the hub cannot be reached or is switched off; {_REMEDY}"
        ) from unreachable
    except (DatasetsError, httpx2.HTTPError, OSError) as broken:
        raise HubUnavailable(
            NAME, revision, f"could not be downloaded and read ({broken}); ask again to continue"
        ) from broken


_REMEDY = "connect (and unset HF_HUB_OFFLINE), or use a folder that holds test.jsonl and train.jsonl"


def _questions(rows: Sequence[Row], split: Split) -> tuple[tuple[Question, ...], str]:
    path = f"{NAME} {split}"
    digest, questions = hashlib.sha256(), []
    for place, row in enumerate(rows):
        questions.append(parse_row(row, place, path))
        digest.update(canonical_line(row["question"], row["answer"]))
    return tuple(questions), digest.hexdigest()
