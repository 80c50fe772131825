"""What holds for the grade of any text at all: no exception, little time, one canonical form."""

import re
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from equipoise_evals.gsm8k.grade import grade
from equipoise_evals.gsm8k.harness import flexible_extract, harness_equal, strict_match
from equipoise_evals.gsm8k.numerals import canonical_fraction, parse_run, scan, shifted
from tests.support.megabytes import PATTERNS, megabytes

CANONICAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?|-?[1-9][0-9]*/[1-9][0-9]*")

FRAGMENTS = [
    "#### ", "\\boxed{", "}", "{", "The answer is ", "Answer: ", "A: ", "so ", " or ", " and ", "not ", "12", "4, 9",
    "3 1/2", "-", "\u2212", "–", "$", "%", ".", ",", "=", "×", "*", "**", "/", "^", "\n", "\n\nQuestion: ", "<think>",
    "</think>", "<|im_end|>", "<<6*7=42>>", "½", "²", "\u0664\u0662", "forty-two", "one hundred and five", "million",
    "k", "e9", "1e400", "\\frac{1}{2}", "\\text{", "&#36;", "\u200b", "\u2028", "\ud800", "Wait, ", "Check: ",
    "答案是", '{"answer": ', "~~", "`", "100 000",
]  # fmt: skip


@given(st.text())
@example("5 >= 3")
@example("=")
@example("####")
@example("1/0")
@example("&#" + "9" * 5_000 + ";")
@settings(max_examples=400, deadline=None, derandomize=True)
def test_any_text_is_graded(output: str) -> None:
    _check(output)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join))
@settings(max_examples=1_500, deadline=None, derandomize=True)
def test_any_pile_of_fragments_is_graded(output: str) -> None:
    _check(output)


def _check(output: str) -> None:
    result = grade(output, "42")
    assert (result.extracted is None) is (result.state == "no_answer")
    assert (result.extracted == "42") is (result.state == "correct")
    if result.extracted is not None:
        assert CANONICAL.fullmatch(result.extracted), result.extracted
    assert isinstance(harness_equal(strict_match(output), "42"), bool)
    assert isinstance(harness_equal(flexible_extract(output), "42"), bool)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: ascii(pattern)[1:-1].replace(" ", "_"))
def test_a_megabyte_is_graded(pattern: str) -> None:
    """How long it takes is shown by ``make bench-grade``; a limit here would depend on the machine's mood."""
    for output in megabytes(pattern):
        _check(output)


@given(st.fractions(max_denominator=1_000))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_canonical_form_keeps_the_value(value: Fraction) -> None:
    canonical = canonical_fraction(value)
    assert Fraction(canonical) == value
    assert CANONICAL.fullmatch(canonical)
    assert grade(f"#### {canonical}", canonical).state == "correct"


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=0, max_value=10**9, places=4), st.integers(-6, 6))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_shifting_is_multiplying_by_a_power_of_ten(value: object, exponent: int) -> None:
    canonical = parse_run(f"{value:f}")
    assert canonical is not None
    moved = shifted(canonical, exponent)
    assert moved is not None
    assert Fraction(moved) == Fraction(canonical) * Fraction(10) ** exponent


@given(st.integers(-(10**12), 10**12))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_every_way_to_write_an_integer_is_the_same_number(value: int) -> None:
    sign = "-" if value < 0 else ""
    digits = str(abs(value))
    ways = [
        f"#### {value}",
        f"#### {value:,}",
        f"#### {sign}${abs(value):,}.00",
        f"#### {value:,}".replace(",", "\u202f"),
        f"The answer is {value:,}.",
        f"\\boxed{{{value:,}}}".replace(",", "{,}"),
        f"A: {sign}00{digits}",
        "#### " + f"{value}".translate(str.maketrans("0123456789-", "０１２３４５６７８９−")),
    ]
    assert {grade(way, str(value)) for way in ways} == {(str(value), "correct")}


@given(st.text(alphabet="0123456789.,/:'_ -", max_size=40))
@settings(max_examples=500, deadline=None, derandomize=True)
def test_scanned_numbers_do_not_overlap(text: str) -> None:
    numerals = scan(text)
    assert all(left.end <= right.start for left, right in pairwise(numerals))
    assert all(0 <= numeral.start < numeral.end <= len(text) for numeral in numerals)
