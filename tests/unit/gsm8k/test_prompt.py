"""Prompts: the layout of lm-evaluation-harness, and stop strings that cut no answer."""

import hashlib
import json
from pathlib import Path

import pytest

from equipoise_evals.gsm8k.load import load_folder
from equipoise_evals.gsm8k.prompt import STOP, build_prompts, worked_example
from equipoise_evals.model import Question, SamplingPlan

GSM8K = Path(__file__).resolve().parents[4] / "shared" / "data" / "gsm8k"
ASKED = (
    Question(id=4, question="How many legs have 2 cats?", rationale="2*4=<<2*4=8>>8", gold="8"),
    Question(id=1, question="And 3 hens?", rationale="3*2=<<3*2=6>>6", gold="6"),
)
SHOTS = (
    Question(id=9, question="One and one?", rationale="1+1=<<1+1=2>>2.\nSo 2.", gold="2"),
    Question(id=0, question="Ten thousand?", rationale="As it says.", gold="10,000"),
)


def test_layout() -> None:
    """As lm-evaluation-harness's gsm8k.yaml says: "Question: q\\nAnswer:", then " a", a blank line between examples."""
    first, second = build_prompts(ASKED, SHOTS)
    examples = (
        "Question: One and one?\nAnswer: 1+1=<<1+1=2>>2.\nSo 2.\n#### 2\n\n"
        "Question: Ten thousand?\nAnswer: As it says.\n#### 10,000\n\n"
    )
    assert first.text == examples + "Question: How many legs have 2 cats?\nAnswer:"
    assert second.text == examples + "Question: And 3 hens?\nAnswer:"
    assert (first.question, second.question) == ASKED


def test_zero_shot() -> None:
    assert [prompt.text for prompt in build_prompts(ASKED[:1], ())] == ["Question: How many legs have 2 cats?\nAnswer:"]
    assert build_prompts((), SHOTS) == ()


def test_digest_is_of_the_whole_text() -> None:
    question = Question(id=0, question="Wie viele Käfer?", rationale="", gold="1")
    (prompt,) = build_prompts((question,), SHOTS)
    assert prompt.sha256 == hashlib.sha256(prompt.text.encode("utf-8")).hexdigest()
    assert len({prompt.sha256 for prompt in build_prompts(ASKED, SHOTS)}) == 2


def test_the_asked_answer_is_not_in_the_prompt() -> None:
    assert all(prompt.question.rationale not in prompt.text for prompt in build_prompts(ASKED, SHOTS))


def test_stop_strings_are_the_plans_default() -> None:
    assert SamplingPlan().stop == STOP


def test_stop_strings_cut_the_next_question() -> None:
    text = " It is 2.\n#### 2\n\nQuestion: What next?"
    assert min(text.find(stop) for stop in STOP) == text.index("\n\nQuestion:")


needs_gsm8k = pytest.mark.skipif(not GSM8K.is_dir(), reason="needs GSM8K in ../shared/data/gsm8k")


@needs_gsm8k
def test_stop_strings_cut_no_gold_answer() -> None:
    """Every answer of GSM8K, as a model would write it after ``Answer:``; one rationale begins with "Questions"."""
    found = load_folder(GSM8K)
    answers = [" " + worked_example(question).partition("\nAnswer: ")[2] for question in found.test + found.train]
    assert sum(answer.startswith(" Questions") for answer in answers) == 1
    assert not [answer for answer in answers for stop in STOP if stop in answer or stop in "\n" + answer.lstrip()]


@needs_gsm8k
def test_a_worked_example_is_the_sets_own_text() -> None:
    rows = [json.loads(raw) for raw in (GSM8K / "train.jsonl").read_bytes().split(b"\n") if raw]
    shown = [worked_example(question) for question in load_folder(GSM8K).train]
    assert shown == [f"Question: {row['question']}\nAnswer: {row['answer']}" for row in rows]
