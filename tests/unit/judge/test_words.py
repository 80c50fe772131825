"""The card of every word, read as a person would read it: what happened, how sure, what to do.

Sentences are written out from the stated truths; the limits in them are those of the verdict, which other tests check.
"""

import pytest

from equipoise_evals.judge import judge
from equipoise_evals.model import ROLES, Plan, Record, Role, Verdict
from tests.support import records as make

LAUNCHES_APART = (-1e-4, 0.0, 1e-4)
"""Log-ratios of three launch pairs around their mean; their t interval is about 0.05 points wide."""


def card(
    log: float, *, spread: float = 1.0, plan: Plan | None = None, more: list[Record] | None = None, fills: float = 0.0
) -> Verdict:
    """The verdict on three launch pairs around one log-ratio, with equal answers unless ``more`` says otherwise."""
    plan = plan or make.plan()
    logs = [log + spread * apart for apart in LAUNCHES_APART]
    return judge(
        make.together(
            [make.questions()],
            make.launches(plan, 3),
            make.treatment(60.0, fills),
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
        "With 97.9% confidence busy time changes by -2.02 % to -1.94 % and the period by -2.01 % to -1.93 % (3 launch "
        "pairs); accuracy rests on identical answers; the scores of 16 questions alone would leave open -19.36 to "
        "+19.36 pp (95.0% confidence)."
    )
    assert verdict.what_to_do == "Ship the candidate: it is faster, and its accuracy holds."


@pytest.mark.parametrize(
    ("log", "spread", "said"),
    [
        (-0.002, 1.0, "faster at batch 16, by less than the margin of 0.50%"),
        (-0.0045, 6.0, "faster at batch 16, by probably less than the margin of 0.50%"),
        (-0.0055, 6.0, "faster at batch 16, by probably more than the margin of 0.50%"),
        (0.0, 1.0, "decoding at batch 16 is equally fast within the margin of 0.50%"),
        (0.002, 1.0, "measurably slower at batch 16, by less than the margin of 0.50%"),
        (0.02, 1.0, "slower at batch 16, by more than the margin of 0.50%"),
    ],
)
def test_how_much_faster_or_slower_is_said_against_the_margin(log: float, spread: float, said: str) -> None:
    assert said in card(log, spread=spread).headline


def test_a_small_gain_is_named_in_the_advice() -> None:
    # The limits of card(-0.002): -0.2 % and about 0.04 points around it.
    assert card(-0.002).what_to_do == (
        "Ship the candidate: it is faster, if only by 0.16 to 0.24 %, and its accuracy holds."
    )


def test_better_answers_are_named_in_the_advice() -> None:
    verdict = card(-0.02, more=passes({"A": 2, "B": 14}))
    assert verdict.what_to_do == "Ship the candidate: it is faster, and answers more questions rightly."


def test_a_declared_aa_says_so_first() -> None:
    verdict = card(0.0, plan=make.plan(declared_aa=True), fills=60.0)
    assert verdict.headline.startswith("Both arms are meant to be equal (declared A/A). Neutral: decoding at batch 16")


def test_a_declared_aa_is_never_advised_to_ship() -> None:
    equal = card(-0.02, plan=make.plan(declared_aa=True), fills=60.0)
    assert equal.overall.word == "ship"  # of equal arms that is a false alarm, and said to be one
    assert equal.what_to_do.startswith("Ship nothing by this")
    unequal = card(-0.02, plan=make.plan(declared_aa=True))
    assert unequal.overall.word == "invalid"
    assert unequal.headline == (
        "Both arms are meant to be equal (declared A/A). The run cannot be judged: arms that were declared equal "
        "ran different code (aten::ones 60 and 0 per step)."
    )
    assert unequal.what_to_do == (
        "Give both arms the same build and flags, or compare them without declaring an A/A, and run again."
    )


@pytest.mark.parametrize("half", ["accuracy", "latency"])
def test_a_half_that_was_not_measured_is_named(half: str) -> None:
    plan = make.plan(accuracy=None) if half == "accuracy" else make.plan(latency=None)
    measured = [make.equal_passes(), []] if half == "latency" else [[], make.exact_blocks([-0.02, -0.021, -0.019])]
    verdict = judge(make.together([make.questions()], make.launches(plan, 3), make.treatment(), *measured), plan)
    assert verdict.headline.endswith(f"; {'speed' if half == 'latency' else 'accuracy'} was not measured.")


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
    assert verdict.what_to_do == (
        "About 11 launch pairs in all (pairs_max 11) would probably decide the speed, if estimate and spread between "
        "launches stay as they are."
    )


def test_two_pairs_that_differ_much_promise_no_number() -> None:
    plan = make.plan(pairs_max=2, accuracy=None)
    records = make.together(make.launches(plan, 2), make.treatment(), make.exact_blocks([-0.1, 0.1]))
    assert judge(records, plan).what_to_do == (
        "2 launch pairs are too few to tell how many would decide the speed: allow more (pairs_max), on a quieter "
        "machine if there is one."
    )


@pytest.mark.parametrize(
    ("n", "only_a", "only_b", "said"),
    [
        # Tango, two-sided 95 %: 3 * 30 against 3 * 40 of 3,957 gives -1.49 to -0.04 pp; twice as many still hold 0.
        (1_319, 40, 30, "No fewer than 3 passes over the questions in each arm would decide the accuracy, as a regr"),
        # The lower limit at 95 % one-sided for 3 * 48 against 3 * 50 of 3,957 is -0.87 pp; for twice, -1.03 pp.
        (1_319, 50, 48, "would decide the accuracy, as not worse by the margin"),
        # 2 against 0 of 10 leave 0 in Tango's interval (-13.3 to +51.0 pp), 4 against 0 of 20 do not (+0.7 to +41.6).
        (10, 0, 2, "No fewer than 2 passes over the questions in each arm would decide the accuracy, as an improvem"),
    ],
)
def test_passes_say_what_they_would_decide(n: int, only_a: int, only_b: int, said: str) -> None:
    plan = make.plan(accuracy=make.accuracy_plan(n, passes_max=1))
    common = n // 3
    right = {"A": [i < common for i in range(n)], "B": [only_a <= i < common + only_b for i in range(n)]}
    scored = [make.one_pass(1, role, right[role]) for role in ROLES]
    verdict = judge(make.together([make.questions(n)], make.launches(plan, 1), make.treatment(), scored), plan)
    assert said in verdict.what_to_do


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
    assert "4 of 16 questions got no answer from the candidate in launch pair 1 (25.0%)" in missing.headline
    assert "Missing answers are not wrong answers" in missing.headline
    assert "failed requests" in missing.what_to_do


@pytest.mark.parametrize("log", [-0.02, 0.0, 0.002, 0.02])
def test_no_card_says_that_there_is_no_difference(log: float) -> None:
    verdict = card(log)
    said = f"{verdict.headline} {verdict.how_sure} {verdict.what_to_do}".lower()
    assert "no difference" not in said
    assert "same" not in said


@pytest.mark.parametrize(("pairs", "little"), [(4, True), (6, False)])
def test_two_units_bound_little_however_many_pairs_they_are(pairs: int, little: bool) -> None:
    plan = make.plan(pairs, layout="crossover", looks=(pairs,))
    logs = [-0.02 + 1e-4 * pair for pair in range(pairs)]
    verdict = judge(make.together(make.launches(plan, pairs), make.treatment(), make.exact_blocks(logs)), plan)
    assert (f"{pairs} launch pairs, which bound little" in verdict.how_sure) is little
