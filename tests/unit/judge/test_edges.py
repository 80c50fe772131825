"""Where evidence is thin or odd: each ends in a state with a reason, never in a number that is not there."""

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower

from equipoise_evals.calibrate.accuracy import _word
from equipoise_evals.judge import judge
from equipoise_evals.judge.words import latency_sentence
from equipoise_evals.model import (
    ROLES,
    BlockRecord,
    EngineMetric,
    Inconclusive,
    Invalid,
    LatencyInconclusive,
    LaunchHistory,
    LaunchRecord,
    Record,
    Role,
    StepColumns,
)
from equipoise_evals.stats.paired import tango_interval
from tests.support import records as make


@pytest.mark.parametrize("logs", [[-3.0, 3.0], [-3.0, 0.0, 3.0]])
def test_wild_pairs_bound_nothing_and_decide_nothing(logs: list[float]) -> None:
    plan = make.plan(alpha=1e-6)
    verdict = judge(make.together(make.launches(plan, len(logs)), make.exact_blocks(logs)), plan)
    assert verdict.latency is not None
    assert verdict.latency.word == "inconclusive"
    assert verdict.latency.evidence.busy.interval is None
    assert "no interval" in verdict.how_sure


def test_one_pair_has_no_interval_and_asks_for_the_first_look() -> None:
    plan = make.plan()
    latency = judge(make.together(make.launches(plan, 1), make.exact_blocks([-0.02])), plan).latency
    assert isinstance(latency, LatencyInconclusive)
    assert latency.evidence.busy.interval is None
    assert latency.pairs_needed == 3


def test_a4_07_a_gain_below_the_noise_is_undecided_and_says_how_many_pairs_would_decide() -> None:
    """A true gain of 1 %, passes that scatter by 1.5 % and so pairs by 1.5 % times the root of 2, four of each.

    The oracle is statsmodels' power of a paired t test: 37 pairs at 5 % in one look, more at this look's level.
    """
    sd, gain = 0.015 * np.sqrt(2), np.log(0.99)
    apart = sd * np.sqrt(3 / 4)  # two values on either side of their mean have this SD
    plan = make.plan(accuracy=None)
    records = make.together(make.launches(plan, 4), make.exact_blocks([gain - apart, gain + apart] * 2))
    latency = judge(records, plan).latency
    assert isinstance(latency, LatencyInconclusive)
    busy = latency.evidence.busy
    assert busy.effect == pytest.approx(-0.01)
    assert busy.interval is not None
    assert busy.interval.low < 0 < busy.interval.high
    assert latency.pairs_needed is not None
    for alpha, needed in ((0.05, 37), (1 - busy.interval.level, latency.pairs_needed)):
        exact = TTestPower().solve_power(effect_size=abs(gain) / sd, alpha=alpha, power=0.8)
        assert needed == pytest.approx(exact, abs=1)


def test_two_noisy_pairs_do_not_promise_that_three_decide() -> None:
    plan = make.plan(pairs_max=2)
    latency = judge(make.together(make.launches(plan, 2), make.exact_blocks([-0.06, 0.07])), plan).latency
    assert isinstance(latency, LatencyInconclusive)
    assert latency.pairs_needed is None or latency.pairs_needed > 50


def test_measurably_slower_within_the_margin_is_said() -> None:
    plan = make.plan()
    latency = judge(make.together(make.launches(plan, 3), make.exact_blocks([0.002, 0.0021, 0.0019])), plan).latency
    assert latency is not None
    assert latency.word == "equivalent"
    assert "measurably slower" in latency_sentence(latency)


@pytest.mark.parametrize(
    ("logs", "says"),
    [
        ([0.004, 0.006, 0.005], "measurably slower"),
        ([-0.002, 0.006, 0.001], "busy time holds both 0 and changes beyond the margin of 0.50%"),
    ],
)
def test_what_is_open_is_said(logs: list[float], says: str) -> None:
    plan = make.plan()
    latency = judge(make.together(make.launches(plan, 3), make.exact_blocks(logs)), plan).latency
    assert isinstance(latency, LatencyInconclusive)
    assert says in latency.why


def apart(busy: list[float], period: list[float]) -> list[Record]:
    """Noiseless blocks whose launch pairs have these log-ratios of busy time and, by itself, of the period."""
    records: list[Record] = []
    for record, other in zip(make.exact_blocks(busy), make.exact_blocks(period), strict=True):
        assert isinstance(record, BlockRecord)
        assert isinstance(other, BlockRecord)
        lasting = (None, *other.steps.busy_us[1:])
        records.append(record.model_copy(update={"steps": record.steps.model_copy(update={"period_us": lasting})}))
    return records


@pytest.mark.parametrize(
    ("busy", "period", "says"),
    [
        ([-0.0102, -0.01, -0.0098], [0.0008, 0.001, 0.0012], "busy time is lower, but the period is not (+0.10%)"),
        ([-0.0102, -0.01, -0.0098], [-0.02, 0.006, -0.001], "the period is not shown to stay below +0.50%"),
        (
            [-0.0002, 0.0, 0.0002],
            [-0.0152, -0.015, -0.0148],
            "the period is lower, but busy time, by which a candidate is faster, is not shown to be",
        ),
        ([0.0014, 0.0015, 0.0016], [-0.02, 0.0, 0.02], "the interval of the period holds both 0 and changes beyond"),
        ([0.0014, 0.0015, 0.0016], [0.004, 0.0055, 0.0065], "measurably slower by the period, but not shown"),
        ([-3.0, 0.0, 3.0], [-3.0, 0.0, 3.0], "the launch pairs differ so much that busy time has no interval"),
    ],
)
def test_why_it_is_open_is_the_condition_that_failed(busy: list[float], period: list[float], says: str) -> None:
    plan = make.plan(alpha=1e-6 if busy[0] == -3.0 else 0.05)
    latency = judge(make.together(make.launches(plan, 3), apart(busy, period)), plan).latency
    assert isinstance(latency, LatencyInconclusive)
    assert says in latency.why


def test_a_lower_busy_time_without_a_lower_period_is_open() -> None:
    plan = make.plan()
    records: list[Record] = []
    for record in make.exact_blocks([-0.02, -0.021, -0.019]):
        assert isinstance(record, BlockRecord)
        extra = 200.0 if record.role == "B" else 0.0
        period = tuple(None if us is None else us + extra for us in record.steps.period_us)
        records.append(record.model_copy(update={"steps": record.steps.model_copy(update={"period_us": period})}))
    latency = judge(make.together(make.launches(plan, 3), records), plan).latency
    assert latency is not None
    assert latency.word in {"slower", "inconclusive"}


def test_a_slower_secondary_batch_size_keeps_a_gain_from_shipping() -> None:
    plan = make.plan()
    fast, slow = make.exact_blocks([-0.02, -0.021, -0.019]), make.exact_blocks([0.03, 0.031, 0.029])
    mixed = [s if isinstance(s, BlockRecord) and s.batch == 1 else f for f, s in zip(fast, slow, strict=True)]
    verdict = judge(
        make.together([make.questions()], make.launches(plan, 3), make.treatment(), make.equal_passes(), mixed), plan
    )
    assert verdict.latency is not None
    assert verdict.latency.word == "faster"
    assert verdict.overall.word == "inconclusive"
    assert any("batch 1" in reason for reason in verdict.overall.reasons)


@pytest.mark.parametrize("lacking", ["one block of the last pair", "all blocks"])
def test_a_planned_batch_size_that_bounds_nothing_is_an_open_question(lacking: str) -> None:
    """8 % slower at batch 1, of which a block is missing: it must not vanish and ship."""
    plan = make.plan()
    slow = make.exact_blocks([0.08, 0.081, 0.079])
    fast = make.exact_blocks([-0.02, -0.021, -0.019])
    kept: list[Record] = []
    for fast_block, slow_block in zip(fast, slow, strict=True):
        assert isinstance(slow_block, BlockRecord)
        if slow_block.batch != 1:
            kept.append(fast_block)
        elif lacking != "all blocks" and (slow_block.pair, slow_block.position) != (3, 4):
            kept.append(slow_block)
    verdict = judge(
        make.together([make.questions()], make.launches(plan, 3), make.treatment(), make.equal_passes(), kept), plan
    )
    assert verdict.latency is not None
    assert verdict.latency.word == "faster"
    assert isinstance(verdict.overall, Inconclusive)
    (reason,) = verdict.overall.reasons
    assert reason.startswith("at batch 1 it is not shown that the candidate is not slower")


def test_a_slower_batch_size_counts_beside_one_that_bounds_nothing() -> None:
    plan = make.plan(latency=make.LATENCY.model_copy(update={"batch_sizes": (1, 4, 16)}))
    logs = {1: [0.03, 0.031, 0.029], 4: [0.0, 0.0, 0.0], 16: [-0.02, -0.021, -0.019]}
    blocks = [
        block
        for batch, of_batch in logs.items()
        for block in make.exact_blocks(of_batch, plan)
        if isinstance(block, BlockRecord) and block.batch == batch and (batch, block.pair, block.position) != (4, 3, 4)
    ]
    verdict = judge(
        make.together([make.questions()], make.launches(plan, 3), make.treatment(), make.equal_passes(), blocks), plan
    )
    assert isinstance(verdict.overall, Inconclusive)
    assert any("at batch 1 busy time is longer" in reason for reason in verdict.overall.reasons)
    assert any("at batch 4 it is not shown" in reason for reason in verdict.overall.reasons)


@pytest.mark.parametrize("lost", [(2, "B"), (1, "A")])
@pytest.mark.parametrize("measured", ["blocks", "passes"])
def test_what_an_engine_measured_whose_start_is_not_on_record_does_not_count(
    lost: tuple[int, Role], measured: str
) -> None:
    plan = make.plan()
    parts = make.exact_blocks([-0.02, -0.021, -0.019]) if measured == "blocks" else make.equal_passes()
    started = [
        one for one in make.launches(plan, 3) if not isinstance(one, LaunchRecord) or (one.pair, one.role) != lost
    ]
    verdict = judge(make.together([make.questions()], started, make.treatment(), parts), plan)
    assert isinstance(verdict.overall, Invalid)
    assert verdict.overall.reason == "attestation"
    assert f"pair {lost[0]}, arm {lost[1]}: there is no record of the engine's start" in verdict.overall.detail


def test_blocks_without_a_full_batch_are_no_measurement() -> None:
    plan = make.plan()
    records: list[Record] = []
    for record in make.exact_blocks([0.0, 0.0, 0.0]):
        assert isinstance(record, BlockRecord)
        thin = record.steps.model_copy(update={"real_batch": (3,) * len(record.steps)})
        records.append(record.model_copy(update={"steps": thin}))
    verdict = judge(make.together(make.launches(plan, 3), records), plan)
    assert verdict.overall.word == "invalid"
    assert verdict.overall.reason == "no_measurement"


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("busy_us", (5e-324,) * 24, "a step took no time by the engine's clock"),
        ("busy_us", (0.0,) * 24, "a step took no time by the engine's clock"),
        ("busy_us", (*[5_000.0] * 10, 0.0, *[5_000.0] * 13), "a step took no time by the engine's clock"),
        ("period_us", (None, *[5_000.0] * 10, 0.0, *[5_000.0] * 12), "a step took no time by the engine's clock"),
        ("monotonic_ns", tuple(range(24, 0, -1)), "the clock ran backwards between two steps"),
    ],
)
def test_times_that_no_running_clock_gives_are_no_measurement(
    column: str, values: tuple[float, ...], said: str
) -> None:
    plan = make.plan()
    records: list[Record] = []
    for record in make.exact_blocks([-0.02, -0.021, -0.019]):
        assert isinstance(record, BlockRecord)
        odd = (record.pair, record.batch, record.position) == (2, 16, 3)
        steps = StepColumns.model_validate(record.steps.model_dump() | ({column: values} if odd else {}))
        records.append(record.model_copy(update={"steps": steps}))
    overall = judge(make.together(make.launches(plan, 3), records), plan).overall
    assert isinstance(overall, Invalid)
    assert (overall.reason, overall.detail) == ("no_measurement", f"pair 2, batch 16, quad 1: {said}")


def test_the_longest_steps_beside_the_shortest_have_a_verdict() -> None:
    """A ratio of 1e15 is absurd, and no error."""
    plan = make.plan(accuracy=None)
    records: list[Record] = []
    for record in make.exact_blocks([-0.02, -0.021, -0.019]):
        assert isinstance(record, BlockRecord)
        us = (1e12 if (record.role == "A") == (record.pair > 1) else 1e-3,) * 24
        steps = StepColumns.model_validate(record.steps.model_dump() | {"busy_us": us, "period_us": us})
        records.append(record.model_copy(update={"steps": steps}))
    assert judge(make.together(make.launches(plan, 3), records), plan).overall.word == "inconclusive"


def test_a_client_to_which_all_tokens_came_at_once_measured_nothing() -> None:
    """Single tokens that arrive together are no fault of a client's clock."""
    plan = make.plan(accuracy=None)
    for zeros, reason in ((1, None), (24, "no step of a block took any time")):
        records: list[Record] = []
        for record in make.exact_blocks([-0.02, -0.021, -0.019]):
            assert isinstance(record, BlockRecord)
            busy = (*record.steps.busy_us[zeros:], *[0.0] * zeros)
            steps = record.steps.model_copy(update={"busy_us": busy, "period_us": busy})
            records.append(record.model_copy(update={"steps": steps, "clock": "client"}))
        overall = judge(make.together(make.launches(plan, 3), records), plan).overall
        assert isinstance(overall, Invalid) is (reason is not None)
        assert reason is None or reason in getattr(overall, "detail", "")


def test_history_allows_a_look_at_two_pairs() -> None:
    history = LaunchHistory(d0=12.0, s0=0.0005, histories=6, source="six A/A comparisons")
    plan = make.plan(looks=(2, 3, 4, 5, 6, 8, 10), history={"busy": history, "period": history})
    latency = judge(make.together(make.launches(plan, 2), make.exact_blocks([-0.0164, -0.0160])), plan).latency
    assert latency is not None
    assert latency.word == "faster"
    assert latency.evidence.busy.borrowed
    assert any("borrows" in note for note in latency.evidence.notes)


@pytest.mark.parametrize("borrowing", ["busy", "period"])
def test_a_look_at_two_pairs_borrows_for_both_clocks_or_waits(borrowing: EngineMetric) -> None:
    history = LaunchHistory(d0=12.0, s0=0.0005, histories=6, source="six A/A comparisons")
    plan = make.plan(looks=(2, 3, 4, 5, 6, 8, 10), history={borrowing: history})
    latency = judge(make.together(make.launches(plan, 2), make.exact_blocks([-0.0164, -0.0160])), plan).latency
    assert isinstance(latency, LatencyInconclusive)
    assert latency.evidence.busy.borrowed is (borrowing == "busy")


def test_two_pairs_that_contradict_history_wait_for_a_third() -> None:
    history = LaunchHistory(d0=12.0, s0=0.0005, histories=6, source="six A/A comparisons")
    plan = make.plan(looks=(2, 3, 4, 5, 6, 8, 10), history={"busy": history, "period": history})
    latency = judge(make.together(make.launches(plan, 2), make.exact_blocks([-0.05, -0.01])), plan).latency
    assert isinstance(latency, LatencyInconclusive)
    assert not latency.evidence.busy.borrowed


def test_two_levels_are_seen_said_and_disturb_when_the_shares_differ() -> None:
    latency = make.LATENCY.model_copy(update={"steps_per_block": 256, "batch_sizes": (16,)})
    plan = make.plan(latency=latency)
    rng = np.random.default_rng(9)
    records: list[Record] = []
    for record in make.blocks(plan, 3, rng, launch_sd=0.0, step_cv=0.002):
        assert isinstance(record, BlockRecord)
        share = 0.3 if record.role == "A" else 0.6
        low = rng.random(256) < share
        busy = tuple(us * (0.957 if is_low else 1.0) for us, is_low in zip(record.steps.busy_us, low, strict=True))
        records.append(record.model_copy(update={"steps": record.steps.model_copy(update={"busy_us": busy})}))
    verdict = judge(make.together(make.launches(plan, 3), make.treatment(), records), plan)
    assert verdict.overall.word == "invalid"
    assert verdict.overall.reason == "disturbed"
    assert verdict.latency is not None
    two_level = verdict.latency.evidence.two_level
    assert two_level is not None
    assert (two_level.baseline_share, two_level.candidate_share) == pytest.approx((0.3, 0.6), abs=0.05)
    assert any("jump between" in note for note in verdict.latency.evidence.notes)


def test_a_shift_of_outputs_blocks_only_where_launches_agree() -> None:
    plan = make.plan(accuracy=make.accuracy_plan(60, passes_max=6), latency=None)
    other = dict.fromkeys(range(0, 60, 2), "So ")

    def passes(pairs: int) -> list[Record]:
        right = [True] * 60
        return [
            make.one_pass(pair, role, right, style=other if role == "B" else None)
            for pair in range(1, pairs + 1)
            for role in ("A", "B")
        ]

    few = judge(make.together([make.questions(60)], make.treatment(), passes(2)), plan)
    assert few.accuracy is not None
    assert few.accuracy.evidence.output_shift_p is not None
    assert few.accuracy.evidence.output_shift_p < 0.01
    assert few.overall.word != "block"
    assert any("cannot confirm" in note for note in few.accuracy.evidence.notes)
    many = judge(make.together([make.questions(60)], make.treatment(), passes(6)), plan)
    assert many.overall.word == "block"
    assert many.overall.causes == ("output_shift",)


def test_passes_that_lack_every_question_between_them_have_no_word() -> None:
    plan = make.plan(accuracy=make.accuracy_plan(2, missing_share_max=0.9), latency=None)
    records = make.together(
        [make.questions(2)],
        [make.one_pass(1, "A", [True, True], failed=[0]), make.one_pass(1, "B", [True, True], failed=[1])],
    )
    verdict = judge(records, plan)
    assert verdict.accuracy is None
    assert getattr(verdict.overall, "reason", None) == "missing_answers"
    with pytest.raises(ValueError, match="no word"):
        _word(verdict)


def test_more_passes_would_decide_what_one_cannot() -> None:
    plan = make.plan(accuracy=make.accuracy_plan(200, margin_pp=2.0), latency=None)
    right = [i >= 5 for i in range(200)]
    other = [i >= 5 or i < 1 for i in range(200)]
    records = make.together([make.questions(200)], [make.one_pass(1, "A", other), make.one_pass(1, "B", right)])
    accuracy = judge(records, plan).accuracy
    assert accuracy is not None
    assert accuracy.word == "inconclusive"
    assert accuracy.passes_needed is not None
    assert accuracy.passes_needed > 1


def test_requests_that_failed_under_stress_and_what_a_guard_said_are_in_the_note() -> None:
    plan = make.plan(stress=True)
    passes = [make.questions(), *make.treatment(), *make.equal_passes()]
    stressed = [make.stress(2, "B", failed=3, guard="unchecked"), make.stress(3, "B")]
    accuracy = judge(make.together(passes, stressed), plan).accuracy
    assert accuracy is not None
    # 93 requests in each record, of which 16 are aborted.
    assert accuracy.evidence.notes[-1].endswith(
        "151 requests finished, 32 aborted, 3 failed; guard clean and unchecked in the candidate."
    )
    unstressed = judge(make.together(passes), make.plan()).accuracy
    assert unstressed is not None
    assert accuracy.evidence.notes[:-1] == unstressed.evidence.notes


@pytest.mark.parametrize(("right", "word"), [("A", "block"), ("B", "inconclusive")])
def test_every_question_changing_alike_is_judged_by_the_declared_pair(right: str, word: str) -> None:
    """All of 40 answers lost, or won, in both passes: clustered over questions that leaves no spread to go by."""
    plan = make.plan(latency=None, accuracy=make.accuracy_plan(40))
    passes = [make.one_pass(pair, role, [role == right] * 40) for pair in (1, 2) for role in ROLES]
    parts = ([make.questions(40)], make.launches(plan, 2), make.treatment(), passes)
    verdict = judge(make.together(*parts), plan)
    assert verdict.overall.word == word  # without a latency half a gain alone ships nothing
    assert verdict.accuracy is not None
    assert verdict.accuracy.word == ("regression" if right == "A" else "improved")
    evidence = verdict.accuracy.evidence
    assert (evidence.method, abs(evidence.difference_pp)) == ("tango", 100.0)
    # Tango (1998), as a score interval, is not of width 0 where every question changed.
    level = evidence.interval_pp.level
    only_b, only_a = (40, 0) if right == "B" else (0, 40)
    low, high = tango_interval(only_b, only_a, 40, confidence=level)
    assert (evidence.interval_pp.low, evidence.interval_pp.high) == pytest.approx((100 * low, 100 * high))
