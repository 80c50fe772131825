"""Client-side timing. The cases A3-01 to A3-07 of the public fault collection, their figures worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError

from equipoise_evals.model import ClientTiming
from equipoise_service.engines.streaming import Chunk, NoTiming, client_steps, timing, token_by_token


def test_a3_01_a_chunk_of_several_tokens_is_not_one_tokens_latency() -> None:
    seen = timing(0.0, [Chunk(0.200, 1), Chunk(0.260, 4), Chunk(0.320, 7)])

    assert seen.ttft_us == pytest.approx(200_000)
    assert seen.tpot_us == pytest.approx(20_000)  # (320 - 200) / (7 - 1) ms
    assert seen.output_tokens == 7


def test_a3_03_a_chunk_without_a_token_starts_no_clock() -> None:
    seen = timing(0.0, [Chunk(0.05, 0), Chunk(0.45, 1), Chunk(0.65, 2)])

    assert seen.ttft_us == pytest.approx(450_000)
    assert seen.tpot_us == pytest.approx(200_000)


def test_a3_05_mean_and_percentiles_have_one_formula() -> None:
    seen = timing(5.0, [Chunk(5.1 + 0.02 * place, place + 1) for place in range(10)])

    assert seen.ttft_us == pytest.approx(100_000)
    assert seen.tpot_us == pytest.approx(20_000)
    # (latency - TTFT) / (n - 1), with the same n: 280 ms less 100 ms over 9 gaps.
    assert seen.tpot_us == pytest.approx((280_000 - 100_000) / (seen.output_tokens - 1))


def test_a3_07_a_request_without_a_first_token_has_no_timing_and_none_is_negative() -> None:
    with pytest.raises(NoTiming, match="0 tokens came"):
        timing(1_000.0, [])  # status 200 without any chunk, ended at 1,002
    with pytest.raises(ValidationError, match="greater than 0"):
        ClientTiming(ttft_us=-1_000_000_000, tpot_us=1, output_tokens=2)


def test_a_last_chunk_without_a_token_ends_no_clock() -> None:
    assert timing(0.0, [Chunk(1, 1), Chunk(2, 2), Chunk(9, 2)]).tpot_us == pytest.approx(1_000_000)


@pytest.mark.parametrize(
    ("chunks", "says"),
    [
        ([], "0 tokens came"),
        ([Chunk(1, 0)], "0 tokens came"),
        ([Chunk(1, 1)], "1 tokens came"),
        ([Chunk(1, 5)], "one chunk"),
        ([Chunk(0, 1), Chunk(1, 2)], "before the request"),
        ([Chunk(1, 3), Chunk(2, 2)], "fell from 3 to 2"),
    ],
)
def test_what_gives_no_timing_is_an_error_and_never_a_zero(chunks: list[Chunk], says: str) -> None:
    with pytest.raises(NoTiming, match=says):
        timing(0.0, chunks)


@given(
    gaps_s=st.lists(st.floats(0.001, 10), min_size=2, max_size=50),
    started_s=st.floats(0, 1e6),
)
def test_ttft_and_tpot_add_up_to_the_latency(gaps_s: list[float], started_s: float) -> None:
    arrivals = [started_s + sum(gaps_s[: place + 1]) for place in range(len(gaps_s))]
    seen = timing(started_s, [Chunk(arrived, place + 1) for place, arrived in enumerate(arrivals)])

    latency_us = (arrivals[-1] - started_s) * 1e6
    assert seen.ttft_us + seen.tpot_us * (seen.output_tokens - 1) == pytest.approx(latency_us, rel=1e-6)


@pytest.mark.parametrize(
    ("info", "streams"),
    [({}, True), ({"stream_interval": 1}, True), ({"stream_interval": 50}, False)],
)
def test_a3_21_tokens_that_the_engine_holds_back_are_not_measured(info: dict[str, JsonValue], streams: bool) -> None:
    assert token_by_token(info) is streams


def test_a_step_ends_when_the_last_sequence_has_its_token() -> None:
    first = [Chunk(1.0, 1), Chunk(1.010, 2), Chunk(1.020, 3)]
    second = [Chunk(1.001, 1), Chunk(1.012, 2), Chunk(1.021, 3), Chunk(1.040, 4)]
    steps = client_steps([first, second], prompt_tokens=32, steps=2)
    assert steps.period_us == pytest.approx((11_000.0, 9_000.0))
    assert steps.busy_us == steps.period_us
    assert (steps.real_batch, steps.graph_batch, steps.context_tokens) == ((2, 2), (0, 0), (66, 68))
    assert steps.monotonic_ns == (1_012_000_000, 1_021_000_000)


def test_tokens_that_arrive_together_leave_the_mean_right() -> None:
    whole = [Chunk(1.0, 1), Chunk(1.030, 4)]
    steps = client_steps([whole], prompt_tokens=1, steps=3)
    assert steps.busy_us == pytest.approx((30_000.0, 0.0, 0.0))
    assert sum(steps.busy_us) / 3 == pytest.approx(timing(0.5, whole).tpot_us)


def test_a_stream_with_too_few_tokens_has_no_steps() -> None:
    with pytest.raises(NoTiming, match="2 tokens came where 4 were asked for"):
        client_steps([[Chunk(1.0, 1), Chunk(1.1, 2)]], prompt_tokens=1, steps=3)
