"""The outputs of a report: passes, controls, where answers part and with which log-probabilities, warnings."""

import numpy as np
import pytest

from equipoise_evals.judge import judge
from equipoise_evals.model import (
    Answered,
    DivergenceRecord,
    Failed,
    PassRecord,
    Role,
    TokenChoice,
    Verdict,
)
from equipoise_service.report.markdown_outputs import FULL, gap_text, outputs_markdown, parted_cells
from equipoise_service.report.outputs import MOST_LISTED, Outputs, outputs_of
from equipoise_service.report.warnings import warnings_of
from tests.support import records as make

N = 6


def a_pass(pair: int, role: Role, texts: dict[int, str], n: int = N, reason: str = "stop") -> PassRecord:
    """Answers ``#### ID`` with ids 1, 2, 3 except where a text is given, whose third token is another."""
    answers = tuple(
        Answered(
            question_id=i, text=texts.get(i, f"#### {i}"), output_ids=(1, 2, 9 if i in texts else 3),
            finish_reason=reason, prompt_tokens=4, cached_tokens=0,
        )
        for i in range(n)
    )  # fmt: skip
    return PassRecord(pair=pair, role=role, answers=answers, duration_s=1.0)


def choice(first: float, second: float | None) -> TokenChoice:
    return TokenChoice(logprobs=(first, second), top=((3, first),), path="decode")


def asked_again(question: int, **choices: TokenChoice) -> DivergenceRecord:
    by_role: dict[Role, TokenChoice] = {role: choices[role] for role in ("A", "B") if role in choices}
    return DivergenceRecord(pair=1, question_id=question, token_index=2, tokens=(3, 9), choices=by_role)


PASSES = (
    a_pass(1, "A", {}),
    a_pass(1, "B", {2: "#### 77", 4: "So #### 4"}),
    a_pass(2, "A", {5: "It is 5."}),
    a_pass(2, "B", {}),
)
ASKED = (
    asked_again(2, A=choice(-0.1, -2.4), B=choice(-0.9, -0.8)),
    asked_again(4, A=choice(-0.70, -0.71), B=choice(-0.72, -0.69)),
)


def outputs() -> Outputs:
    found = outputs_of([make.questions(N)], PASSES, ASKED)
    assert found is not None
    return found


def test_controls_stand_beside_the_arms() -> None:
    shares = {f"{p.first}-{p.second}": (p.control, p.texts_equal, p.tokens_equal, p.flips) for p in outputs().pairs}
    assert shares == {
        "A1-B1": ("A/B", 4, 4, 1),
        "A1-A2": ("A/A", 5, 5, 0),
        "B1-B2": ("B/B", 4, 4, 1),
        "A2-B2": ("A/B", 5, 5, 0),
    }


def test_flips_come_first_with_both_engines_log_probabilities() -> None:
    flip, wording = outputs().pairs[0].parted
    assert (flip.divergence.question_id, flip.divergence.flips) == (2, True)
    assert flip.gap_nats == pytest.approx(2.3)  # the larger of 2.3 and 0.1
    assert wording.gap_nats == pytest.approx(0.03)
    assert (flip.near_tie, wording.near_tie) == (False, True)
    assert gap_text(flip) == "2.300 nats: confident change"
    assert parted_cells(flip) == [
        "2", "2", "3", "9", "-0.100 / -2.400 (decode)", "-0.900 / -0.800 (decode)", "2.300 nats: confident change",
        "3 / 3", "stop / stop", "correct / incorrect",
    ]  # fmt: skip


def test_of_passes_of_two_launches_nothing_was_asked() -> None:
    control = outputs().pairs[1]
    (only,) = control.parted
    assert (only.choices, only.gap_nats, only.near_tie) == ({}, None, None)
    assert gap_text(only) == "not known"
    assert parted_cells(only)[4:6] == ["not asked", "not asked"]


def test_one_engine_alone_makes_no_gap_and_an_ended_answer_has_no_token() -> None:
    asked = [asked_again(2, A=choice(-0.1, -2.4)), asked_again(4, A=choice(-0.1, None), B=choice(-0.2, None))]
    found = outputs_of([make.questions(N)], PASSES[:2], asked)
    assert found is not None
    assert [parted.gap_nats for parted in found.pairs[0].parted] == [None, None]
    assert parted_cells(found.pairs[0].parted[1])[4] == "-0.100 / ended (decode)"


def test_markdown_shows_tables_divergences_and_both_answers() -> None:
    text = "\n\n".join("\n".join(block) for block in outputs_markdown(outputs()))
    assert "| A1-B1 | A/B | 6 of 6 | 4 (66.7%) | 4 (66.7%) | 1 |" in text
    assert "| A1-A2 | A/A | 6 of 6 | 5 (83.3%) | 5 (83.3%) | 0 |" in text
    assert "### Where A1 and B1 part" in text
    assert "Question 2 is right in one arm only:" in text
    assert "* A1, correct, final answer `2`: `#### 2`" in text
    assert "* B1, incorrect, final answer `77`: `#### 77`" in text


def test_long_answers_are_shown_from_their_end() -> None:
    found = outputs_of([make.questions(N)], (PASSES[0], a_pass(1, "B", {2: "x" * 2_000 + " #### 77"})), ())
    assert found is not None
    lines = [line for block in outputs_markdown(found) for line in block if line.startswith("* B1")]
    assert len(lines) == 1
    assert "… xxx" in lines[0]
    assert len(lines[0]) < FULL.answer_chars + 100


def test_many_divergences_are_counted_and_few_listed() -> None:
    n = MOST_LISTED + 30
    texts = {i: f"So #### {i}" for i in range(n)}
    found = outputs_of([make.questions(n)], (a_pass(1, "A", {}, n), a_pass(1, "B", texts, n)), ())
    assert found is not None
    (pair,) = found.pairs
    assert (len(pair.parted), pair.left_out) == (MOST_LISTED, 30)
    assert any("110 more are not shown" in line for block in outputs_markdown(found) for line in block)


def test_without_passes_there_are_no_outputs() -> None:
    assert outputs_of([make.questions(N)], (), ()) is None


def test_tokens_that_are_not_known_are_said_to_be() -> None:
    passes = []
    for one in (PASSES[0], PASSES[1]):
        bare = [a.model_copy(update={"output_ids": ()}) for a in one.answers if isinstance(a, Answered)]
        passes.append(one.model_copy(update={"answers": tuple(bare)}))
    found = outputs_of([make.questions(N)], passes, ())
    assert found is not None
    assert parted_cells(found.pairs[0].parted[0])[1:4] == ["not known"] * 3
    text = "\n".join(line for block in outputs_markdown(found) for line in block)
    assert "| A1-B1 | A/B | 6 of 6 | 4 (66.7%) | none | 1 |" in text


def verdict_of() -> Verdict:
    plan = make.plan()
    blocks = make.blocks(plan, 3, np.random.default_rng(5), effect=-0.02)
    return judge(make.together([make.questions()], make.launches(plan, 3), make.treatment(), blocks), plan)


def test_a_sound_report_has_no_warnings() -> None:
    assert warnings_of(verdict_of(), outputs()) == ()
    assert warnings_of(verdict_of(), None) == ()


def test_equal_kernels_and_unequal_times_are_a_puzzle_that_is_named() -> None:
    plan = make.plan()
    for effect, said in ((-0.02, 1), (0.0, 0)):
        blocks = make.blocks(plan, 3, np.random.default_rng(5), effect=effect)
        asked, same = [make.questions()], make.treatment(60.0, 60.0)
        verdict = judge(make.together(asked, make.launches(plan, 3), same, blocks), plan)
        assert verdict.overall.word == "treatment_inactive"
        found = warnings_of(verdict, None)
        assert len(found) == said
        assert all("busy times differ by -" in line for line in found)


def test_a3_19_a_client_far_from_the_engine_does_not_measure_the_backend() -> None:
    """180 ms at the client where the engine's steps take 39 ms."""
    plan = make.plan()
    blocks = make.blocks(plan, 3, np.random.default_rng(5), base_us=39_000.0)
    slow = [
        block.model_copy(update={"client": tuple(t.model_copy(update={"tpot_us": 180_000.0}) for t in block.client)})
        for block in blocks
        if block.kind == "block"
    ]
    verdict = judge(make.together([make.questions()], make.launches(plan, 3), make.treatment(), slow), plan)
    baseline, candidate = warnings_of(verdict, None)
    assert "the client saw 180000 us a token of the baseline" in baseline
    assert "does not measure the attention backend" in candidate
    assert verdict.latency is not None
    assert verdict.latency.evidence.client is not None  # both are shown


def warned(done: PassRecord, n: int = N) -> tuple[str, ...]:
    return warnings_of(verdict_of(), outputs_of([make.questions(n)], (done,), ()))


def test_a1_23_echoes_of_the_instruction_are_a_sign_of_a_wrong_prompt() -> None:
    echo = "Please reason step by step and put the last result inside \\boxed{}."
    (said,) = warned(a_pass(1, "A", dict.fromkeys(range(N), echo)))
    assert "6 of 6 answers of pass A1 hold no final number: prompt or chat template are probably wrong" in said


def test_a2_09_empty_answers_are_counted_and_warned_of() -> None:
    (said,) = warned(a_pass(1, "A", {3: ""}))
    assert said == "1 of 6 answers of pass A1 are empty"


def test_answers_cut_by_the_token_limit_are_warned_of() -> None:
    (said,) = warned(a_pass(1, "A", {3: "First 2 and then"}, reason="length"))
    assert "the token limit cut 1 of 6 answers of pass A1" in said


def test_failed_requests_are_said_to_be_errors() -> None:
    done = a_pass(1, "A", {}, 100)
    answers = tuple(Failed(question_id=i, error="HTTP 500") if i < 3 else done.answers[i] for i in range(100))
    (said,) = warned(done.model_copy(update={"answers": answers}), 100)
    assert said.startswith("3 of 100 requests of pass A1 failed (3.0%): they are errors, not wrong answers")


@pytest.mark.parametrize(("text", "reason", "said"), [
    ("", "stop", "1 of 5 answers of pass A1 are empty"),
    ("First 2 and then", "length", "the token limit cut 1 of 5 answers of pass A1"),
])  # fmt: skip
def test_shares_of_answers_leave_out_requests_that_failed(text: str, reason: str, said: str) -> None:
    """One of 5 answers is a fifth, however many of 200 requests got none: 1 of 200 would be below either threshold."""
    few = a_pass(1, "A", {3: text}, n=5, reason=reason)
    lost = tuple(Failed(question_id=i, error="reset") for i in range(5, 200))
    failed, warning = warned(few.model_copy(update={"answers": (*few.answers, *lost)}), 200)
    assert "195 of 200 requests" in failed
    assert said in warning
