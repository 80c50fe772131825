"""The grade of an output: what a careful reader takes for its final answer, compared exactly with the gold."""

import json
import re
import subprocess
import sys

import pytest

from equipoise_evals.gsm8k.grade import GoldNotANumber, Grade, GradeState, gold_value, grade
from equipoise_evals.gsm8k.sentences import first_sentence
from tests.unit.gsm8k import grading_cases
from tests.unit.gsm8k.disagreements import EVIDENCE, judged, render
from tests.unit.gsm8k.shared_data import GSM8K, ODDITIES, OPEN_CASES, json_lines, needs_shared

SENTINEL_GOLD = "123456789"


@pytest.mark.parametrize("case", grading_cases.ALL, ids=lambda case: re.sub(r"\W+", "_", case.output[:60]))
def test_own_cases(case: grading_cases.Case) -> None:
    assert grade(case.output, SENTINEL_GOLD).extracted == case.expected
    if case.expected is not None:
        assert grade(case.output, case.expected).state == "correct"
    else:
        assert grade(case.output, SENTINEL_GOLD).state == "no_answer"


@needs_shared
def test_open_cases() -> None:
    cases = json_lines(OPEN_CASES)
    assert len(cases) == 52
    wrong = {
        case["id"]: found
        for case in cases
        if (found := grade(case["output"], case["gold"]))
        != Grade(
            case["expected_extracted"],
            _state(case["expected_extracted"], case["expected_correct"]),
        )
    }
    assert wrong == {}


def _state(extracted: str | None, correct: bool) -> GradeState:
    if extracted is None:
        return "no_answer"
    return "correct" if correct else "incorrect"


# Public faults, by the ids of ../shared/cases/public_faults_open.md; outputs and values are the rows' own.


def test_a1_01_comma_after_the_number() -> None:
    assert grade("Adding both shelves gives 58, all told.", "58") == Grade("58", "correct")


@pytest.mark.parametrize(("gold", "state"), [("24", "correct"), ("45", "incorrect")])
def test_a1_03_run_on_into_an_invented_question(gold: str, state: GradeState) -> None:
    output = "4 boxes of 6 make 24.\n#### 24\n\nQuestion: A van carries 9 crates per trip.\nAnswer: 9*5=45\n#### 45"
    assert grade(output, gold) == Grade("24", state)


def test_a1_05_decimals_not_strings() -> None:
    assert grade("#### $64.00", "64") == Grade("64", "correct")


@pytest.mark.parametrize("output", ["The answer is 96!", "Is it 96? Yes: 96:"])
def test_a1_07_number_glued_to_punctuation(output: str) -> None:
    assert grade(output, "96") == Grade("96", "correct")


def test_a1_09_percent_sign() -> None:
    assert grade("Out of 100 seats, 35 are empty, so the share is 35%.", "35") == Grade("35", "correct")


@pytest.mark.parametrize(("output", "state"), [("#### -10", "correct"), ("#### 10", "incorrect")])
def test_a1_11_minus_sign(output: str, state: str) -> None:
    assert grade(output, "-10").state == state


@pytest.mark.parametrize("output", ["Step 1. Answer: 5 boxes ... Final answer: 27", "So it is 27 in total."])
def test_a1_13_last_committed_answer(output: str) -> None:
    assert grade(output, "27") == Grade("27", "correct")


def test_a1_15_no_tail_window() -> None:
    explanation = "That follows from the numbers of the text. " * 25
    assert len(explanation) > 1_000
    assert grade(f"#### 42\n{explanation}", "42") == Grade("42", "correct")


def test_a1_15_no_tail_window_in_a_megabyte() -> None:
    filler = "All of this is explained again. " * 15_000
    assert grade(f"#### 42\n{filler}", "42") == Grade("42", "correct")
    assert grade(f"{filler}\n#### 42\n{filler}", "42") == Grade("42", "correct")
    assert grade(f"{filler}\n#### 42", "42") == Grade("42", "correct")
    assert grade(f"<think>{filler}#### 41</think>#### 42", "42") == Grade("42", "correct")
    assert grade(f"{filler}\n#### 42\n\nQuestion: {filler}\n#### 41", "42") == Grade("42", "correct")


def test_a1_17_mixed_number() -> None:
    assert grade("#### 3 1/2", "3") == Grade("3.5", "incorrect")


def test_a1_19_leading_zero() -> None:
    assert grade("#### 075", "75") == Grade("75", "correct")


def test_a1_21_runs_of_digits() -> None:
    assert grade("#### " + "9" * 400, "9") == Grade("9" * 400, "incorrect")
    assert grade("12 / 11 = 1." + "09" * 300, "13") == Grade(None, "no_answer")
    assert grade("#### " + "9" * 5_000, "9" * 5_000).state == "correct"


def test_a1_23_echo_of_the_instruction() -> None:
    output = "Please reason step by step and put the last result inside \\boxed{}."
    assert grade(output, "5") == Grade(None, "no_answer")


def test_a1_25_gold_with_a_comma() -> None:
    assert grade("#### 2125", "2,125") == Grade("2125", "correct")


@pytest.mark.parametrize(
    ("gold", "value"),
    [("18", "18"), ("2,125", "2125"), ("-10", "-10"), (" 5 ", "5"), ("0.50", "0.5"), ("1/3", "1/3"), ("\u22123", "-3")],
)
def test_golds_that_are_numbers(gold: str, value: str) -> None:
    assert gold_value(gold) == value


@pytest.mark.parametrize("gold", ["", "twelve apples", "4, 9", "3:30", "about 5", "nan", "1/0"])
def test_a_gold_that_is_no_number_is_not_a_wrong_answer(gold: str) -> None:
    with pytest.raises(GoldNotANumber, match="is not one number") as refused:
        grade("#### 5", gold)
    assert refused.value.gold == gold


@needs_shared
@pytest.mark.parametrize(("split", "rows", "commas", "negatives"), [("test", 1_319, 14, 2), ("train", 7_473, 79, 3)])
def test_every_gold_of_gsm8k(split: str, rows: int, commas: int, negatives: int) -> None:
    """Counts and canonical values: gsm8k_gold_oddities.json, section of the same name."""
    facts = json.loads(ODDITIES.read_text(encoding="utf-8"))[split]
    answers = [row["answer"] for row in json_lines(GSM8K / f"{split}.jsonl")]
    golds = [answer.partition("####")[2].strip() for answer in answers]
    values = [gold_value(gold) for gold in golds]
    assert len(values) == rows == facts["rows"]
    assert sum("," in gold for gold in golds) == commas
    assert sum(value.startswith("-") for value in values) == negatives
    for listed in ("gold_with_thousands_comma", "gold_negative", "gold_zero", "gold_ge_1_000_000"):
        for entry in facts[listed]:
            assert (golds[entry["line"] - 1], values[entry["line"] - 1]) == (entry["gold"], entry["canonical"])
    assert max(map(int, values)) == facts["gold_max"]
    assert min(map(int, values)) == facts["gold_min"]
    assert len(set(values)) == facts["distinct_golds"]


@needs_shared
@pytest.mark.parametrize("split", ["test", "train"])
def test_every_worked_answer_of_gsm8k_is_correct(split: str) -> None:
    answers = [row["answer"] for row in json_lines(GSM8K / f"{split}.jsonl")]
    wrong = [n for n, text in enumerate(answers, 1) if grade(text, text.partition("####")[2]).state != "correct"]
    assert wrong == []


def test_the_first_sentence_of_nothing_is_empty() -> None:
    assert first_sentence(" \n ") == ""


def test_grading_loads_nothing_that_acts() -> None:
    """The judge imports the grader, and the judge is pure: no loader, no event loop, no hub."""
    code = "import sys, equipoise_evals.gsm8k.grade; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    acting = {"asyncio", "datasets", "httpx2", "numpy", "equipoise_evals.gsm8k.load", "equipoise_evals.gsm8k.passes"}
    assert acting.isdisjoint(loaded)


@needs_shared
def test_disagreements_with_stored_flags_are_all_listed() -> None:
    outputs = judged()
    assert len(outputs) == 5_276
    assert [output for output in outputs if output.flag is not (output.state == "correct")] == []
    assert not any(output.flag for output in outputs if output.state == "no_answer")
    assert EVIDENCE.read_text(encoding="utf-8") == render(outputs)
