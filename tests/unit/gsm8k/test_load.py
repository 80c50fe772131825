"""Question sets are read as they are, or refused with the line and the reason."""

import hashlib
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise_evals.gsm8k.grade import gold_value
from equipoise_evals.gsm8k.load import (
    CorruptLine,
    EmptySet,
    FileMissing,
    FolderMissing,
    QuestionSet,
    QuestionSetError,
    load_folder,
)
from equipoise_evals.gsm8k.question_set import canonical_line, parse_file, parse_row
from equipoise_evals.model import Question

SHARED = Path(__file__).resolve().parents[4] / "shared"
GSM8K = SHARED / "data" / "gsm8k"
ODDITIES = SHARED / "cases" / "gsm8k_gold_oddities.json"
GOOD = canonical_line("How many?", "One and one are 2.\n#### 2")


def write(folder: Path, test: bytes = GOOD, train: bytes = GOOD) -> Path:
    (folder / "test.jsonl").write_bytes(test)
    (folder / "train.jsonl").write_bytes(train)
    return folder


def line(question: object = "How many?", answer: object = "#### 2") -> bytes:
    return json.dumps({"question": question, "answer": answer}).encode()


def test_folder(tmp_path: Path) -> None:
    test = GOOD + canonical_line("And then?", "#### -1,234.5")
    found = load_folder(write(tmp_path, test))
    assert found == QuestionSet(
        name="folder",
        revision=None,
        test_sha256=hashlib.sha256(test).hexdigest(),
        train_sha256=hashlib.sha256(GOOD).hexdigest(),
        test=(
            Question(id=0, question="How many?", rationale="One and one are 2.", gold="2"),
            Question(id=1, question="And then?", rationale="", gold="-1,234.5"),
        ),
        train=(Question(id=0, question="How many?", rationale="One and one are 2.", gold="2"),),
    )


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(FolderMissing, match=r"test\.jsonl") as caught:
        load_folder(tmp_path / "nowhere")
    assert caught.value.path == str(tmp_path / "nowhere")


def test_file_for_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FolderMissing):
        load_folder(write(tmp_path) / "test.jsonl")


@pytest.mark.parametrize("name", ["test.jsonl", "train.jsonl"])
def test_missing_file(tmp_path: Path, name: str) -> None:
    (write(tmp_path) / name).unlink()
    with pytest.raises(FileMissing, match="is not there") as caught:
        load_folder(tmp_path)
    assert caught.value.path == str(tmp_path / name)


def test_unreadable_file(tmp_path: Path) -> None:
    (write(tmp_path) / "train.jsonl").unlink()
    (tmp_path / "train.jsonl").mkdir()
    with pytest.raises(FileMissing, match="cannot be read") as caught:
        load_folder(tmp_path)
    assert caught.value.why == f"cannot be read ({os.strerror(21)})"  # EISDIR


@pytest.mark.parametrize("data", [b"", b"\n", b" \r\n\n"])
def test_empty_file(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(EmptySet) as caught:
        load_folder(write(tmp_path, train=data))
    assert caught.value.path == str(tmp_path / "train.jsonl")


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"question": "caf\xe9"}', r"not UTF-8 \(byte 18 of the line\)"),
        (b"[]", "no JSON object"),
        (b"null", "no JSON object"),
        (b'{"answer": "#### 2"}', "no text under 'question'"),
        (line(answer=None), "no text under 'answer'"),
        (line(answer=5), "no text under 'answer'"),
        (line(question=" \n"), "no text under 'question'"),
        (line(question="\ud800"), "'question' holds half of a character"),
        (line(answer="It is 2."), "needs one line, the last, that begins with ####"),
        (line(answer="It is #### 2"), "needs one line, the last, that begins with ####"),
        (line(answer="#### 2\n#### 3"), "needs one line, the last, that begins with ####"),
        (line(answer="####"), "the gold '' is no number"),
        (line(answer="#### 2\nSo it is."), r"the gold '2\\nSo it is.' is no number"),
        (line(answer="#### two"), "the gold 'two' is no number"),
        (line(answer="#### $2"), "is no number"),
        (line(answer="#### +2"), "is no number"),
        (line(answer="#### 2."), "is no number"),
        (line(answer="#### 1,23"), "is no number"),
        (line(answer="#### 12,3456"), "is no number"),
        (line(answer="#### \u0662"), "is no number"),
        (line(answer="#### 1/2"), "is no number"),
        (line(answer="#### 1e5"), "is no number"),
    ],
)
def test_corrupt_line(tmp_path: Path, bad: bytes, why: str) -> None:
    """Each fault names its file and 1-based line; a fault of the second line is not one of the set's first."""
    with pytest.raises(CorruptLine, match=why) as caught:
        load_folder(write(tmp_path, GOOD + bad + b"\n" + GOOD))
    assert (caught.value.path, caught.value.line) == (str(tmp_path / "test.jsonl"), 2)


def test_row_that_is_no_mapping() -> None:
    with pytest.raises(CorruptLine, match="openai/gsm8k test, line 8: it is no JSON object"):
        parse_row(["How many?", "#### 2"], 7, "openai/gsm8k test")


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"])
def test_only_newline_ends_a_line(separator: str) -> None:
    """Fault: ``str.splitlines`` breaks a text at any of these; JSON lets each but the last three stand unescaped."""
    text = f"One{separator}two?"
    raw = json.dumps({"question": text, "answer": "#### 2"}, ensure_ascii=False).encode()
    assert [question.question for question in parse_file(raw + b"\n" + GOOD, "x")] == [text, "How many?"]


def test_what_editors_do_to_files() -> None:
    """A byte order mark, CRLF, no final newline and further keys change nothing."""
    plain = parse_file(GOOD + GOOD, "x")
    assert parse_file(b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n") + GOOD.rstrip(), "x") == plain
    more = b'{"id": [1], ' + GOOD[1:]
    assert parse_file(more + more + b"\n\n", "x") == plain


@given(st.lists(st.tuples(st.text(min_size=1), st.text(), st.integers()), min_size=1, max_size=5))
def test_texts_come_back_as_they_were(rows: list[tuple[str, str, int]]) -> None:
    """Property: what can be said in the format is read back to the letter; the rest is refused, never changed."""
    data = b"".join(canonical_line(question, f"{rationale}\n#### {gold}") for question, rationale, gold in rows)
    try:
        found = parse_file(data, "x")
    except QuestionSetError:
        assert any(not question.strip() or "####" in rationale for question, rationale, _ in rows)
    else:
        assert [(q.id, q.question, q.rationale, q.gold) for q in found] == [
            (place, question, rationale, str(gold)) for place, (question, rationale, gold) in enumerate(rows)
        ]


needs_gsm8k = pytest.mark.skipif(not GSM8K.is_dir(), reason="needs GSM8K in ../shared/data/gsm8k")


@needs_gsm8k
def test_gsm8k() -> None:
    """Counts and digests: issue 5, acceptance 3; golds and special lines: ../shared/cases/gsm8k_gold_oddities.json."""
    found = load_folder(GSM8K)
    oddities = json.loads(ODDITIES.read_text(encoding="utf-8"))
    for split, questions, digest in (
        ("test", found.test, found.test_sha256),
        ("train", found.train, found.train_sha256),
    ):
        expected = oddities[split]
        assert digest == oddities["source"]["files"][f"{split}.jsonl"]["sha256"]
        assert len(questions) == expected["rows"]
        commas = [(question.id + 1, question.gold) for question in questions if "," in question.gold]
        assert commas == [(odd["line"], odd["gold"]) for odd in expected["gold_with_thousands_comma"]]
        negative = [(question.id + 1, question.gold) for question in questions if question.gold.startswith("-")]
        assert negative == [(odd["line"], odd["gold"]) for odd in expected["gold_negative"]]
        canonical = {odd["line"]: odd["canonical"] for odd in expected["gold_with_thousands_comma"]}
        assert {line: gold_value(gold) for line, gold in commas} == canonical
        common = Counter(question.gold for question in questions)
        assert all(common[gold] == count for gold, count in expected["most_common_golds"])
        separated = [question.id + 1 for question in questions if "\u2028" in question.question + question.rationale]
        assert separated == expected["special_characters_lines"]["line_separator_U+2028"]
    assert (len(found.test), len(found.train)) == (1319, 7473)
    assert [question.id for question in found.train] == list(range(7473))


@needs_gsm8k
@pytest.mark.parametrize("split", ["test", "train"])
def test_canonical_lines_are_the_files_own(split: str) -> None:
    """So the hub's rows, written as canonical lines, have the digest of the file with the same rows."""
    data = (GSM8K / f"{split}.jsonl").read_bytes()
    rows = [json.loads(raw) for raw in data.split(b"\n") if raw]
    assert b"".join(canonical_line(row["question"], row["answer"]) for row in rows) == data
