"""The two secondary scores agree with lm-evaluation-harness's own filters.

Expected values of the small cases were read off the harness's documented patterns (task ``gsm8k``, version 3.0) and
confirmed with lm-eval 0.4.13; the random texts are compared with those patterns as they are written there.
"""

import random
import re
from collections.abc import Sequence

import pytest
from lm_eval.filters.extraction import RegexFilter

from equipoise_evals.gsm8k.harness import INVALID, flexible_extract, harness_equal, strict_match
from tests.unit.gsm8k.shared_data import MODEL_SOLUTIONS, MODELS, json_lines, needs_shared

TASK_STRICT = r"#### (\-?[0-9\.\,]+)"
TASK_FLEXIBLE = r"(-?[$0-9.,]{2,})|(-?[0-9]+)"
TASK_IGNORED = (",", "\\$", "(?s).*#### ", "\\.$")
PIECES = ("#### ", "####", "-", "$", ".", ",", "0", "7", "42", " ", "\n", "a", "½", "٤")


@pytest.mark.parametrize(
    ("output", "strict", "flexible"),
    [
        ("So 42.\n#### 42", "42", "42"),
        ("#### 1,234.50 dollars", "1,234.50", "1,234.50"),
        ("#### -3", "-3", "-3"),
        ("#### $64.00", INVALID, "$64.00"),
        ("####42", INVALID, "42"),
        ("#### 40\n#### 42", "40", "42"),
        ("Adding both gives 58, all told...", INVALID, "..."),
        ("It is 7.", INVALID, "7."),
        ("It is 7", INVALID, "7"),
        ("nothing", INVALID, INVALID),
        ("", INVALID, INVALID),
    ],
)
def test_documented_behaviour(output: str, strict: str, flexible: str) -> None:
    assert (strict_match(output), flexible_extract(output)) == (strict, flexible)


@pytest.mark.parametrize(
    ("extracted", "gold", "equal"),
    [
        ("2,125", "2125", True),
        ("$64", "64", True),
        ("64.00", "64", False),
        ("7.", "7", True),
        ("7", "3 + 4 = 7\n#### 7", True),
        (INVALID, "7", False),
        ("17", "7", False),
    ],
)
def test_comparison_is_textual(extracted: str, gold: str, equal: bool) -> None:
    assert harness_equal(extracted, gold) is equal


def test_random_texts_agree_with_the_task_s_patterns() -> None:
    rng = random.Random(20_240_601)
    for _ in range(4_000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randrange(12)))
        gold = "".join(rng.choice(PIECES) for _ in range(rng.randrange(6)))
        assert strict_match(text) == _selected(TASK_STRICT, text, 0)
        assert flexible_extract(text) == _selected(TASK_FLEXIBLE, text, -1)
        assert harness_equal(text, gold) is (_ignored(text) == _ignored(gold))


def harness_filters(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Strict and flexible answers of lm-evaluation-harness's own ``RegexFilter`` for each text."""
    answers = [[text] for text in texts]
    docs: list[dict[str, object]] = [{} for _ in texts]
    strict = RegexFilter(TASK_STRICT).apply(answers, docs)
    flexible = RegexFilter(TASK_FLEXIBLE, group_select=-1).apply(answers, docs)
    return [(s, f) for [s], [f] in zip(strict, flexible, strict=True)]


def test_the_harness_itself_agrees_on_random_texts() -> None:
    rng = random.Random(7)
    texts = ["".join(rng.choice(PIECES) for _ in range(rng.randrange(20))) for _ in range(2_000)]
    assert [(strict_match(text), flexible_extract(text)) for text in texts] == harness_filters(texts)


@needs_shared
def test_the_harness_itself_agrees_on_all_5276_model_outputs() -> None:
    outputs = [str(row[model]["solution"]) for row in json_lines(MODEL_SOLUTIONS) for model in MODELS]
    assert len(outputs) == 5_276
    assert [(strict_match(text), flexible_extract(text)) for text in outputs] == harness_filters(outputs)


def _selected(pattern: str, text: str, which: int) -> str:
    """``RegexFilter``: the chosen match, of its groups the first that is not empty."""
    found = re.findall(pattern, text)
    if not found:
        return INVALID
    chosen = found[which]
    group = chosen if isinstance(chosen, str) else next(group for group in chosen if group)
    return str(group).strip()


def _ignored(text: str) -> str:
    for pattern in TASK_IGNORED:
        text = re.sub(pattern, "", text)
    return text.lower()
