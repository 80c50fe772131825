"""Two passes compared answer by answer. Expected values are counted by hand from the answers written here."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise_evals.gsm8k.equality import PassesDiffer, compare_passes, first_divergent_token
from equipoise_evals.model import Answer, Answered, Failed, PassRecord, Role

GOLDS = {3: "7", 1: "12", 8: "2,125", 5: "9"}


def answered(question: int, text: str, *ids: int, reason: str = "stop") -> Answered:
    return Answered(
        question_id=question, text=text, output_ids=ids, finish_reason=reason, prompt_tokens=4, cached_tokens=0
    )


def a_pass(*answers: Answer, role: Role = "A") -> PassRecord:
    return PassRecord(pair=1, role=role, answers=answers, duration_s=1.0)


FIRST = a_pass(
    answered(3, "#### 7", 10, 11, 7),
    answered(1, "#### 12", 10, 11, 12),
    answered(8, "#### 2125", 10, 11, 21, reason="length"),
    Failed(question_id=5, error="connection reset"),
)
SECOND = a_pass(
    answered(3, "#### 7", 10, 11, 7),
    answered(1, "#### 13", 10, 11, 13, 14),
    answered(8, "#### 2,125", 10, 11, 21, 22),
    answered(5, "#### 9", 10, 9),
    role="B",
)


def test_counts_of_what_both_answered() -> None:
    equality = compare_passes(FIRST, SECOND, GOLDS)
    assert (equality.asked, equality.compared, equality.missing) == (4, 3, (5,))
    assert (equality.texts_equal, equality.tokens_compared, equality.tokens_equal) == (1, 3, 1)


def test_divergences_say_where_and_what() -> None:
    one, twelve = compare_passes(FIRST, SECOND, GOLDS).divergences
    assert (one.question_id, one.token_index, one.flips) == (1, 2, True)
    assert (one.first.token_at_divergence, one.second.token_at_divergence) == (12, 13)
    assert (one.first.state, one.second.state) == ("correct", "incorrect")
    assert (one.first.extracted, one.second.extracted) == ("12", "13")
    assert (twelve.question_id, twelve.token_index, twelve.flips) == (8, 3, False)
    assert (twelve.first.token_at_divergence, twelve.second.token_at_divergence) == (None, 22)


def test_flips_hold_both_answers() -> None:
    (flip,) = compare_passes(FIRST, SECOND, GOLDS).flips
    assert (flip.first.text, flip.second.text) == ("#### 12", "#### 13")


def test_equal_texts_of_different_tokens_diverge_without_a_flip() -> None:
    equality = compare_passes(a_pass(answered(3, "#### 7", 1, 2)), a_pass(answered(3, "#### 7", 3)), GOLDS)
    (divergence,) = equality.divergences
    assert (equality.texts_equal, equality.tokens_equal) == (1, 0)
    assert (divergence.texts_equal, divergence.token_index, divergence.flips) == (True, 0, False)


def test_tokens_that_the_engine_did_not_give_are_unknown_not_equal() -> None:
    equality = compare_passes(a_pass(answered(3, "#### 7")), a_pass(answered(3, "#### 8", 5)), GOLDS)
    assert (equality.compared, equality.tokens_compared) == (1, 0)
    (divergence,) = equality.divergences
    assert (divergence.token_index, divergence.first.output_tokens, divergence.second.output_tokens) == (None, None, 1)


def test_an_empty_answer_has_known_tokens() -> None:
    equality = compare_passes(a_pass(answered(3, "")), a_pass(answered(3, "#### 7", 5)), GOLDS)
    assert (equality.tokens_compared, equality.tokens_equal) == (1, 0)
    assert equality.divergences[0].token_index == 0


def test_failed_answers_are_compared_with_nothing() -> None:
    failed = a_pass(Failed(question_id=3, error="timeout"))
    equality = compare_passes(failed, failed, GOLDS)
    assert (equality.compared, equality.tokens_compared, equality.divergences) == (0, 0, ())
    assert equality.missing == (3,)


@pytest.mark.parametrize(
    ("second", "place"),
    [(a_pass(answered(1, "x"), answered(3, "x")), 0), (a_pass(answered(3, "x")), 1)],
)
def test_other_questions_or_another_order_are_refused(second: PassRecord, place: int) -> None:
    with pytest.raises(PassesDiffer, match=f"from place {place} on") as refused:
        compare_passes(a_pass(answered(3, "x"), answered(1, "x")), second, GOLDS)
    assert refused.value.place == place


def test_stored_equality_reads_back() -> None:
    equality = compare_passes(FIRST, SECOND, GOLDS)
    assert type(equality).model_validate_json(equality.model_dump_json()) == equality


TOKENS = st.lists(st.integers(0, 3), max_size=6).map(tuple)


@given(TOKENS, TOKENS)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_first_divergent_token_is_where_the_common_beginning_ends(
    first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    index = first_divergent_token(first, second)
    assert index == first_divergent_token(second, first)
    if index is None:
        assert first == second
    else:
        assert first[:index] == second[:index]
        assert first[index : index + 1] != second[index : index + 1]


@given(st.lists(st.tuples(TOKENS, st.sampled_from(["#### 7", "#### 8", "7", ""])), max_size=6))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_a_pass_equals_its_copy(answers: list[tuple[tuple[int, ...], str]]) -> None:
    record = a_pass(*(answered(place, text, *ids) for place, (ids, text) in enumerate(answers)))
    golds = dict.fromkeys(range(len(answers)), "7")
    equality = compare_passes(record, record, golds)
    assert (equality.divergences, equality.flips, equality.missing) == ((), (), ())
    assert equality.texts_equal == equality.compared == len(answers)
