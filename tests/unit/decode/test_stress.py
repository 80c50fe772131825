"""The stress profile: each phase does what it is for, whatever the engine's size."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from equipoise_evals.decode.stress import GROWTH_ROWS, StressPhase, stress_profile


def profile(pool_tokens: int, context: int, batch: int, seed: int = 3) -> dict[str, StressPhase]:
    return {one.name: one for one in stress_profile(pool_tokens, context, batch, np.random.default_rng(seed))}


def test_a4_03_prefills_go_beyond_the_rows_that_made_a_sister_backend_grow() -> None:
    phase = profile(65_536, 16_384, 16)["long_prefills"]
    assert max(request.prompt_tokens for request in phase.requests) == GROWTH_ROWS + 1
    # While they are prefilled, a whole batch decodes.
    assert sum(request.new_tokens > 1 for request in phase.requests) == 16


def test_lengths_differ_by_more_than_a_hundredfold() -> None:
    lengths = [request.prompt_tokens for request in profile(65_536, 8_192, 16)["mixed_lengths"].requests]
    assert max(lengths) > 100 * min(lengths)


def test_half_of_the_requests_are_aborted_at_different_moments() -> None:
    requests = profile(65_536, 8_192, 16)["aborts"].requests
    moments = [request.abort_after for request in requests if request.abort_after is not None]
    assert len(moments) * 2 == len(requests)
    assert len(set(moments)) > 4
    assert all(moment < request.new_tokens for request in requests if (moment := request.abort_after) is not None)


@given(
    batch=st.integers(1, 64),
    pool_per_request=st.integers(512, 65_536),
    context=st.integers(512, 131_072),
    seed=st.integers(0, 1_000),
)
def test_every_request_is_one_that_the_engine_accepts(
    batch: int, pool_per_request: int, context: int, seed: int
) -> None:
    pool = batch * pool_per_request
    phases = profile(pool, context, batch, seed)
    assert list(phases) == ["long_prefills", "mixed_lengths", "aborts", "full_pool"]
    for phase in phases.values():
        for request in phase.requests:
            assert request.prompt_tokens + request.new_tokens <= min(context, pool)
    needed = sum(request.prompt_tokens + request.new_tokens for request in phases["full_pool"].requests)
    assert needed > pool


def test_the_same_seed_gives_the_same_requests() -> None:
    assert profile(16_384, 2_048, 8) == profile(16_384, 2_048, 8)
    assert profile(16_384, 2_048, 8) != profile(16_384, 2_048, 8, seed=4)
