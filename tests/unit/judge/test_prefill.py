"""Prefill blocks and goodput, on blocks whose times are stated."""

from collections.abc import Sequence

import pytest

from equipoise_evals.decode.schedule import planned_blocks
from equipoise_evals.judge import judge
from equipoise_evals.judge.goodput import good_per_s, met_share
from equipoise_evals.model import (
    BlockRecord,
    ClientTiming,
    LatencyEvidence,
    LatencyPlan,
    Plan,
    Record,
    Role,
    Slo,
    StepColumns,
)
from tests.support import records as make

PREFILL = make.LATENCY.model_copy(update={"phase": "prefill", "prompt_tokens": 512})


def prefill_plan(pairs: int = 3) -> Plan:
    return make.plan(pairs, accuracy=None, latency=PREFILL, preset="prefill")


def prefill_blocks(plan: Plan, ratios: Sequence[float], *, ttft_us: float = 500.0) -> list[Record]:
    """Noiseless blocks of 20 ms prefills; the candidate's take ``ratios`` times as long, pair by pair."""
    assert plan.latency is not None
    blocks: list[Record] = []
    for pair, ratio in enumerate(ratios, start=1):
        for planned in planned_blocks(plan.latency, pair):
            us = 20_000.0 * (ratio if planned.role == "B" else 1.0)
            # The first four are still warming up and would spoil any mean that they entered.
            times = [10 * us] * plan.latency.warmup_steps + [us] * 20
            columns = make.prefill_steps(planned.batch, times, plan.latency)
            steps = StepColumns.model_validate(columns.model_dump() | {"period_us": [t + ttft_us for t in times]})
            blocks.append(BlockRecord(**(planned.model_dump() | {"pair": pair, "steps": steps, "client": ()})))
    return blocks


def evidence_of(plan: Plan, blocks: list[Record]) -> LatencyEvidence:
    verdict = judge(make.together(make.launches(plan, 6), make.treatment(), blocks), plan)
    assert verdict.latency is not None
    return verdict.latency.evidence


def test_a_prefill_block_is_its_prefills_after_the_warm_up() -> None:
    evidence = evidence_of(prefill_plan(), prefill_blocks(prefill_plan(), [0.95, 0.96, 0.97]))
    assert evidence.phase == "prefill"
    assert (evidence.busy.baseline_us, evidence.period.baseline_us) == pytest.approx((20_000, 20_500))
    assert evidence.busy.per_pair == pytest.approx((-0.05, -0.04, -0.03))
    # (20,000 r + 500) / 20,500 - 1 for r = 0.95, 0.96, 0.97
    assert evidence.period.per_pair == pytest.approx((-1_000 / 20_500, -800 / 20_500, -600 / 20_500))
    assert (evidence.client, evidence.goodput) == (None, None)


@pytest.mark.parametrize(
    ("ratios", "word", "said"),
    [
        ([0.95, 0.9501, 0.9502], "faster", "the candidate prefills faster at batch 16, by more than the margin"),
        ([1.05, 1.0501, 1.0502], "slower", "the candidate prefills slower at batch 16, by more than the margin"),
        ([1.0, 1.0001, 0.9999], "equivalent", "prefilling at batch 16 is equally fast within the margin"),
        ([0.9, 1.0, 1.1], "inconclusive", "prefill speed at batch 16 is not decided (the interval of prefill time"),
    ],
)
def test_the_words_name_what_was_timed(ratios: list[float], word: str, said: str) -> None:
    plan = prefill_plan()
    verdict = judge(make.together(make.launches(plan, 3), make.treatment(), prefill_blocks(plan, ratios)), plan)
    assert verdict.latency is not None
    assert verdict.latency.word == word
    assert said in verdict.headline
    assert "prefill time changes by" in verdict.how_sure
    assert "the time to first token by" in verdict.how_sure
    if word == "slower":
        assert "it prefills slower than the margin allows" in verdict.what_to_do


def test_a_faster_prefill_whose_first_token_comes_later_is_not_faster() -> None:
    """The sensitive clock proves the mechanism, and what a user waits for must not get worse."""
    plan = prefill_plan()
    blocks = [
        block.model_copy(update={"steps": block.steps.model_copy(update={"period_us": (30_000.0 + block.pair,) * 24})})
        if isinstance(block, BlockRecord) and block.role == "B"
        else block
        for block in prefill_blocks(plan, [0.95, 0.9501, 0.9502])
    ]
    assert judge(make.together(make.launches(plan, 3), blocks), plan).overall.word == "block"


SLO = Slo(ttft_ms=30, tpot_ms=5)


def request(ttft_ms: float, tpot_ms: float, tokens: int = 11) -> ClientTiming:
    return ClientTiming(ttft_us=1_000 * ttft_ms, tpot_us=1_000 * tpot_ms, output_tokens=tokens)


def test_a_request_meets_an_objective_with_both_of_its_times() -> None:
    requests = [request(30, 5), request(31, 1), request(1, 5.1), request(1, 1)]
    assert met_share(requests, SLO) == 0.5
    assert met_share(requests, Slo(ttft_ms=30)) == 0.75
    assert met_share(requests, Slo(tpot_ms=5)) == 0.75
    # The slowest took 30 ms and 10 gaps of 5 ms; two were good.
    assert good_per_s(requests, SLO) == pytest.approx(2 / 0.080)


def test_an_objective_that_asks_for_nothing_is_none() -> None:
    with pytest.raises(ValueError, match="ttft_ms, tpot_ms or both"):
        Slo()


def test_prefills_take_no_objective() -> None:
    with pytest.raises(ValueError, match="slo needs phase decode: of prefills no times of whole requests are recorded"):
        LatencyPlan.model_validate(PREFILL.model_dump() | {"slo": {"ttft_ms": 10}})


def test_an_inactive_treatment_is_told_of_what_was_traced() -> None:
    def headline(plan: Plan) -> str:
        return judge(make.together(make.launches(plan, 1), make.treatment(60.0, 60.0)), plan).headline

    assert "the same fills and allocations per prefill:" in headline(prefill_plan())
    assert "the same fills and allocations per decode step:" in headline(make.plan())


def goodput_blocks(plan: Plan, met: dict[Role, list[float]]) -> list[Record]:
    """Decode blocks of which so many of four requests of each arm's block meet the objective, pair by pair."""
    blocks = make.exact_blocks([0.001 * pair for pair in range(len(met["A"]))])
    return [
        block.model_copy(
            update={"client": tuple(request(10, 1 if n < met[block.role][block.pair - 1] else 9) for n in range(4))}
        )
        if isinstance(block, BlockRecord)
        else block
        for block in blocks
    ]


def test_goodput_is_a_share_with_an_interval_over_launch_pairs() -> None:
    plan = make.plan(accuracy=None, latency=make.LATENCY.model_copy(update={"slo": SLO}))
    blocks = goodput_blocks(plan, {"A": [4, 4, 4], "B": [4, 3, 2]})
    goodput = evidence_of(plan, blocks).goodput
    assert goodput is not None
    assert (goodput.batch, goodput.pairs, goodput.slo) == (16, 3, SLO)
    assert (goodput.baseline_share, goodput.candidate_share) == (1.0, 0.75)
    # Differences of 0, -25 and -50 points: mean -25, SD 25, t_2(0.975) = 4.302653 (any table) over sqrt(3).
    assert goodput.difference_pp == -25
    assert goodput.interval_pp is not None
    half = 4.302653 * 25 / 3**0.5
    assert (goodput.interval_pp.low, goodput.interval_pp.high) == pytest.approx((-25 - half, -25 + half), abs=1e-3)
    # Ten gaps after 10 ms: 20 ms where all four are good, 100 ms where one is not.
    assert goodput.baseline_per_s == pytest.approx(4 / 0.020)
    assert goodput.candidate_per_s == pytest.approx((4 / 0.020 + 3 / 0.100 + 2 / 0.100) / 3)


def test_shares_that_never_differ_have_no_interval() -> None:
    plan = make.plan(accuracy=None, latency=make.LATENCY.model_copy(update={"slo": SLO}))
    goodput = evidence_of(plan, goodput_blocks(plan, {"A": [4, 4, 4], "B": [4, 4, 4]})).goodput
    assert goodput is not None
    assert (goodput.difference_pp, goodput.interval_pp) == (0.0, None)


def test_where_two_pairs_make_one_unit_their_mean_is_one_number() -> None:
    """A pair by itself also holds what device sets differ by; only whole units count."""
    plan = make.plan(
        6, accuracy=None, latency=make.LATENCY.model_copy(update={"slo": SLO}), layout="crossover", looks=()
    )
    blocks = goodput_blocks(plan, {"A": [4, 4, 4, 4, 4], "B": [2, 4, 3, 4, 1]})
    goodput = evidence_of(plan, blocks).goodput
    assert goodput is not None
    # Units of pairs 1 and 2, 3 and 4: -25 and -12.5 points; t of 0.975 at 1 degree of freedom is 12.7062.
    assert goodput.pairs == 4
    assert goodput.difference_pp == pytest.approx(-18.75)
    assert goodput.interval_pp is not None
    half = 12.7062 * (12.5 / 2**0.5) / 2**0.5
    limits = (goodput.interval_pp.low, goodput.interval_pp.high)
    assert limits == pytest.approx((-18.75 - half, -18.75 + half), abs=1e-2)
    first = [block for block in blocks if isinstance(block, BlockRecord) and block.pair == 1]
    assert judge(make.together(make.launches(plan, 1), make.treatment(), first), plan).latency is None
