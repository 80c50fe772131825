"""GSM8K by ``datasets`` from a hub on the loopback: what arrives, what the digest is, and how each refusal is told."""

import hashlib
import warnings
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from equipoise_evals.gsm8k.hub import PINNED, load_hub
from equipoise_evals.gsm8k.load import CorruptLine, HubUnavailable
from equipoise_evals.gsm8k.question_set import canonical_line
from equipoise_evals.model import Question
from tests.unit.gsm8k.dataset_hub import DatasetHub, Row, parquet, running_dataset_hub

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what its imports deprecate is not ours
    import datasets

TEST: list[Row] = [
    {"question": "How many legs have 2 cats?", "answer": "2*4=<<2*4=8>>8\n#### 8"},
    {"question": "Two\u2028lines, 1,000 times?", "answer": "Yes.\n#### 2,000"},
]
TRAIN: list[Row] = [{"question": "One and one?", "answer": "#### 2"}]
OTHER = "0" * 39 + "1"


def files(test: list[Row], train: list[Row]) -> dict[str, bytes]:
    return {
        "main/test-00000-of-00001.parquet": parquet(test),
        "main/train-00000-of-00001.parquet": parquet(train),
    }


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DatasetHub]:
    with running_dataset_hub(PINNED, files(TEST, TRAIN)) as hub:
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", hub.url)
        yield hub


def test_rows_arrive_with_their_commit_and_the_digest_of_their_lines(hub: DatasetHub, tmp_path: Path) -> None:
    found = load_hub(cache=tmp_path / "datasets")
    assert (found.name, found.revision) == ("openai/gsm8k", PINNED)
    assert found.test == (
        Question(id=0, question="How many legs have 2 cats?", rationale="2*4=<<2*4=8>>8", gold="8"),
        Question(id=1, question="Two\u2028lines, 1,000 times?", rationale="Yes.", gold="2,000"),
    )
    assert found.train == (Question(id=0, question="One and one?", rationale="", gold="2"),)
    for rows, digest in ((TEST, found.test_sha256), (TRAIN, found.train_sha256)):
        lines = b"".join(canonical_line(row["question"], row["answer"]) for row in rows)
        assert digest == hashlib.sha256(lines).hexdigest()
    about = [asked for asked in hub.log if "openai/gsm8k" in asked]
    assert about
    assert all(PINNED in asked for asked in about)


def test_the_cache_serves_where_the_hub_does_not(
    hub: DatasetHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_hub(cache=tmp_path / "datasets")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    hub.log.clear()
    assert load_hub(cache=tmp_path / "datasets") == first
    assert hub.log == []


def test_another_commit_in_the_cache_is_not_taken(
    hub: DatasetHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: offline, ``datasets`` serves whichever commit was cached last, whatever revision was asked for."""
    load_hub(cache=tmp_path / "datasets")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubUnavailable, match=f"the cache holds commit {PINNED}") as caught:
        load_hub(OTHER, cache=tmp_path / "datasets")
    assert (caught.value.name, caught.value.revision) == ("openai/gsm8k", OTHER)


def test_offline_and_not_cached(hub: DatasetHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubUnavailable, match=r"connect \(and unset HF_HUB_OFFLINE\), or use a folder"):
        load_hub(cache=tmp_path / "datasets")
    assert hub.log == []


def test_gated(hub: DatasetHub, tmp_path: Path) -> None:
    hub.fault = "gated"
    with pytest.raises(HubUnavailable, match=r"gated dataset.*set HF_TOKEN"):
        load_hub(cache=tmp_path / "datasets")


def test_unknown_commit(hub: DatasetHub, tmp_path: Path) -> None:
    with pytest.raises(HubUnavailable, match=f"Revision '{OTHER}' doesn't exist"):
        load_hub(OTHER, cache=tmp_path / "datasets")


def test_broken_download(hub: DatasetHub, tmp_path: Path) -> None:
    hub.files = {name: data[:-9] if name.startswith("main/test") else data for name, data in hub.files.items()}
    with pytest.raises(HubUnavailable, match="could not be downloaded and read"):
        load_hub(cache=tmp_path / "datasets")


def test_a_branch_is_no_revision() -> None:
    with pytest.raises(ValueError, match="no commit"):
        load_hub("main")


def test_a_row_that_is_no_question(hub: DatasetHub, tmp_path: Path) -> None:
    hub.files = {**hub.files, **files([*TEST, {"question": "And?", "answer": "Nothing."}], TRAIN)}
    with pytest.raises(CorruptLine) as caught:
        load_hub(cache=tmp_path / "datasets")
    assert (caught.value.path, caught.value.line) == ("openai/gsm8k test", 3)
