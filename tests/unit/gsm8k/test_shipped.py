"""The shipped questions: every annotation is right, every gold is the value of the last one, none is GSM8K's."""

import ast
import operator
import re
import subprocess
import zipfile
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from uv import find_uv_bin

from equipoise_evals.gsm8k.grade import gold_value, grade
from equipoise_evals.gsm8k.load import SHIPPED, load_folder, load_shipped
from equipoise_evals.gsm8k.prompt import worked_example
from equipoise_evals.model import Question

SET = load_shipped()
EVERY = [*(("test", question) for question in SET.test), *(("train", question) for question in SET.train)]
NAMES = [f"{split}-{question.id}" for split, question in EVERY]
ANNOTATION = re.compile(r"<<([^<>=]*)=([^<>=]*)>>(\S*)")
OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
ROOT = Path(__file__).resolve().parents[3]
GSM8K = ROOT.parent / "shared" / "data" / "gsm8k"


def value(expression: str) -> Fraction:
    """The exact value of whole numbers joined by + - * /; anything else is refused."""

    def of(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int(number)):
                return Fraction(number)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](of(left), of(right))
        raise ValueError(f"not plain arithmetic: {expression!r}")

    return of(ast.parse(expression, mode="eval").body)


def test_evaluator_is_exact_and_closed() -> None:
    assert value("7/3*3") == 7
    assert value("2+3*4-1") == 13
    for refused in ("2**3", "abs(3)", "1.5+1", "x", "-3", "True+1 if 1 else 2"):
        with pytest.raises(ValueError, match="not plain arithmetic"):
            value(refused)


def test_size() -> None:
    """At least 48 questions, so that a comparison can ask 16 and more; enough examples for 8 shots."""
    assert len(SET.test) >= 56
    assert len(SET.train) >= 8
    assert (SET.name, SET.revision) == ("shipped", None)


@pytest.mark.parametrize("question", [question for _, question in EVERY], ids=NAMES)
def test_annotations_give_the_gold(question: Question) -> None:
    found = ANNOTATION.findall(question.rationale)
    assert found
    assert question.rationale.count("<<") == question.rationale.count(">>") == len(found)
    for expression, stated, following in found:
        assert value(expression) == Fraction(stated)
        # The number is written out behind its annotation, as in GSM8K.
        assert re.match(r"\d+", following).group() == stated  # type: ignore[union-attr]
    assert found[-1][1] == question.gold


@pytest.mark.parametrize("question", [question for _, question in EVERY], ids=NAMES)
def test_sums_stand_before_their_annotations(question: Question) -> None:
    """``3*4=<<3*4=12>>12``: the written sum is the annotated one."""
    for written, annotated in re.findall(r"([\d+*/-]+)=\$?<<([^<>=]*)=", question.rationale):
        assert written == annotated


@pytest.mark.parametrize("question", [question for _, question in EVERY], ids=NAMES)
def test_the_worked_answer_is_graded_right(question: Question) -> None:
    answer = worked_example(question).partition("\nAnswer: ")[2]
    assert grade(answer, question.gold).state == "correct"
    assert gold_value(question.gold) == question.gold


def test_no_question_twice() -> None:
    texts = [" ".join(question.question.lower().split()) for _, question in EVERY]
    assert len(set(texts)) == len(texts)


def test_files_are_plain() -> None:
    """Plain ASCII and no blank line: the digest must not depend on an editor."""
    for split in ("test", "train"):
        data = (SHIPPED / f"{split}.jsonl").read_bytes()
        assert data.isascii()
        assert b"\r" not in data
        assert b"\n\n" not in data
        assert data.endswith(b"}\n")


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    words = re.findall(r"[a-z]+|\d+", text.lower())
    return frozenset(tuple(words[start : start + 4]) for start in range(len(words) - 3))


@pytest.mark.skipif(not GSM8K.is_dir(), reason="needs GSM8K in ../shared/data/gsm8k")
def test_none_is_taken_from_gsm8k() -> None:
    """README: a Jaccard index of at most an eighth, over four-word sequences, with any question of GSM8K."""
    theirs = load_folder(GSM8K)
    others = [shingles(question.question) for question in theirs.test + theirs.train]
    holders: defaultdict[tuple[str, ...], list[frozenset[tuple[str, ...]]]] = defaultdict(list)
    for other in others:
        for shingle in other:
            holders[shingle].append(other)
    for name, (_, question) in zip(NAMES, EVERY, strict=True):
        mine = shingles(question.question)
        sharing = [other for shingle in mine for other in holders.get(shingle, [])]
        assert max((len(mine & other) / len(mine | other) for other in sharing), default=0) <= 1 / 8, name


def test_wheel_carries_the_questions(tmp_path: Path) -> None:
    """What is installed elsewhere has the questions beside the code."""
    uv = find_uv_bin()
    subprocess.run([uv, "build", "--wheel", "--offline", "-q", "-o", tmp_path, ROOT / "evals"], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        for name in ("test.jsonl", "train.jsonl", "README.md"):
            assert packed.read(f"equipoise_evals/gsm8k/data/shipped/{name}") == (SHIPPED / name).read_bytes()
