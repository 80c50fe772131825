"""The card of every word, read as a person would read it: what happened, how sure, what to do.

Sentences are written out from the stated truths; the limits in them are those of the verdict, which other tests check.
"""

import pytest

from equipoise_evals.judge import judge
from equipoise_evals.model import Plan, Record, Role, Verdict
from tests.support import records as make

LAUNCHES_APART = (-1e-4, 0.0, 1e-4)
"""Log-ratios of three launch pairs around their mean; their t interval is about 0.05 points wide."""


def card(log: float, *, spread: float = 1.0, plan: Plan | None = None, more: list[Record] | None = None) -> Verdict:
    """The verdict on three launch pairs around one log-ratio, with equal answers unless ``more`` says otherwise."""
    plan = plan or make.plan()
    logs = [log + spread * apart for apart in LAUNCHES_APART]
    return judge(
        make.together(
            [make.questions()],
            make.launches(plan, 3),
            make.treatment(),
            make.equal_passes() if more is None else more,
            make.exact_blocks(logs),
        ),
        plan,
    )


def passes(right: dict[Role, int]) -> list[Record]:
    """Two passes per arm over 16 questions with so many right answers."""
    return [make.one_pass(pair, role, [i < n for i in range(16)]) for pair in (1, 2) for role, n in right.items()]


def test_ship() -> None:
    verdict = card(-0.02)
    assert verdict.headline == (
        "Ship: the candidate decodes faster at batch 16, by more than the margin of 0.50% (-1.98 % busy time, -1.97 % "
        "period); all 16 answers of both arms are identical, and so are two passes of the baseline."
    )
    # 97.9 % is the level of the first of six looks; +-19.36 pp is Tango's interval for 16 concordant questions.
    assert verdict.how_sure == (
        "With 97.9% confidence busy time changes by -2.02 % to -1.94 % (3 launch pairs); accuracy rests on identical "
        "answers; the scores of 16 questions alone would leave open -19.36 to +19.36 pp (95.0% confidence)."
    )
    assert verdict.what_to_do == "Ship the candidate: it is faster, and its accuracy holds."


@pytest.mark.parametrize(
    ("log", "spread", "said"),
    [
        (-0.002, 1.0, "faster at batch 16, by less than the margin of 0.50%"),
        (-0.005, 6.0, "faster at batch 16, though perhaps by less than the margin of 0.50%"),
        (0.0, 1.0, "decoding at batch 16 is equally fast within the margin of 0.50%"),
        (0.002, 1.0, "measurably slower at batch 16, by less than the margin of 0.50%"),
        (0.02, 1.0, "slower at batch 16, by more than the margin of 0.50%"),
    ],
)
def test_how_much_faster_or_slower_is_said_against_the_margin(log: float, spread: float, said: str) -> None:
    assert said in card(log, spread=spread).headline


def test_neutral_leaves_the_decision_to_other_reasons() -> None:
    verdict = card(0.0)
    assert verdict.overall.word == "neutral"
    assert verdict.what_to_do.startswith("Decide by other reasons:")


def test_block_names_every_cause_in_words() -> None:
    verdict = card(0.02, more=passes({"A": 14, "B": 2}))
    assert verdict.overall.word == "block"
    # What blocks is said first.
    assert verdict.headline.startswith(
        "Block: the candidate answers fewer questions rightly (-75.00 pp on 16 questions); the candidate decodes"
    )
    assert verdict.what_to_do == (
        "Do not ship the candidate: it answers fewer questions rightly; it decodes slower than the margin allows."
    )


def test_inconclusive_says_what_would_decide() -> None:
    verdict = card(0.003, spread=20.0)
    assert verdict.overall.word == "inconclusive"
    assert "is not decided" in verdict.headline
    # 80 % chance at an effect of +0.3 % with a spread of 0.2 %; 11 by the chances of stats.power, which tests simulate.
    assert verdict.what_to_do.startswith("About 11 launch pairs (pairs_max) would probably decide the speed")


def test_treatment_inactive_says_nothing_about_speed_or_accuracy() -> None:
    plan = make.plan()
    verdict = judge(make.together([make.questions()], make.launches(plan, 1), make.treatment(60, 60)), plan)
    assert "the change under test was not active" in verdict.headline
    assert verdict.how_sure == "No statement about speed or accuracy is made."
    assert "declare an A/A" in verdict.what_to_do


def test_invalid_says_what_to_mend() -> None:
    plan = make.plan()
    attestation = judge(make.together([make.launch(1, "B", "baseline")]), plan)
    assert "the engine attests scratch policy 'baseline', the plan says 'persistent'" in attestation.headline
    assert "which plugin and which flags" in attestation.what_to_do
    right = [True] * 16
    missing = card(-0.02, more=[make.one_pass(1, "A", right), make.one_pass(1, "B", right, failed=range(4))])
    assert "Missing answers are not wrong answers" in missing.headline
    assert "failed requests" in missing.what_to_do


@pytest.mark.parametrize("log", [-0.02, 0.0, 0.002, 0.02])
def test_no_card_says_that_there_is_no_difference(log: float) -> None:
    verdict = card(log)
    said = f"{verdict.headline} {verdict.how_sure} {verdict.what_to_do}".lower()
    assert "no difference" not in said
    assert "same" not in said
