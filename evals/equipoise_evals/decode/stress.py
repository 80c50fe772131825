"""Requests that put persistent scratch under stress before a comparison scores again. Pure: nothing is sent from here.

What broke scratch that outlives a call elsewhere, each in a phase of its own: long prefills, in chunks, between decode
steps; batches whose lengths differ widely; requests that are aborted halfway; and a KV pool that is full. Between
phases the engine becomes idle, so that its guard looks at the counters once per phase.
"""

import numpy as np
from pydantic import Field

from equipoise_evals.model import Frozen, StressPhaseName

GROWTH_ROWS = 8_192
"""A prefill chunk of more rows made a sister backend replace its buffer, to which captured graphs kept writing."""
DECODE_TOKENS = 128


class StressRequest(Frozen):
    """One request: random tokens in, greedy tokens out.

    ``abort_after`` is the number of streamed tokens after which the client wants it aborted; None lets it finish.
    """

    prompt_tokens: int = Field(ge=1)
    new_tokens: int = Field(ge=1)
    abort_after: int | None = Field(default=None, ge=1)


class StressPhase(Frozen):
    """Requests that are sent at the same time."""

    name: StressPhaseName
    requests: tuple[StressRequest, ...] = Field(min_length=1)


def stress_profile(pool_tokens: int, context: int, batch: int, rng: np.random.Generator) -> tuple[StressPhase, ...]:
    """The phases, in the order they are run.

    Args:
        pool_tokens: Tokens that the engine's KV pool holds (``max_total_num_tokens``).
        context: Longest request that the engine accepts, in tokens.
        batch: Largest batch that is timed, for which the engine captured a graph.
        rng: Draws lengths and the moments of aborts.
    """
    return (
        StressPhase(name="long_prefills", requests=_long_prefills(pool_tokens, context, batch)),
        StressPhase(name="mixed_lengths", requests=_mixed_lengths(pool_tokens, context, batch, rng)),
        StressPhase(name="aborts", requests=_aborts(pool_tokens, context, batch, rng)),
        StressPhase(name="full_pool", requests=_full_pool(pool_tokens, context)),
    )


def _long_prefills(pool_tokens: int, context: int, batch: int) -> tuple[StressRequest, ...]:
    """Decoding requests, and beside them prompts beyond `GROWTH_ROWS` where the engine accepts them."""
    longest = min(GROWTH_ROWS + 1, context - 1, pool_tokens // 2)
    decoding = StressRequest(prompt_tokens=16, new_tokens=min(DECODE_TOKENS, context - 16))
    return (*[decoding] * batch, *[StressRequest(prompt_tokens=longest, new_tokens=1)] * 4)


def _mixed_lengths(pool_tokens: int, context: int, batch: int, rng: np.random.Generator) -> tuple[StressRequest, ...]:
    """Prompts of lengths drawn evenly on a log scale, from one token to an equal share of the pool."""
    longest = max(2, min(context - DECODE_TOKENS, pool_tokens // batch - DECODE_TOKENS))
    lengths = np.exp(rng.uniform(0, np.log(longest), size=2 * batch)).astype(int)
    return tuple(StressRequest(prompt_tokens=int(length), new_tokens=DECODE_TOKENS) for length in lengths)


def _aborts(pool_tokens: int, context: int, batch: int, rng: np.random.Generator) -> tuple[StressRequest, ...]:
    """Every other request ends early, at a random token; the batch shrinks and grows under its captured graphs."""
    prompt = max(1, min(64, context - DECODE_TOKENS, pool_tokens // batch - DECODE_TOKENS))
    moments = rng.integers(1, DECODE_TOKENS, size=2 * batch)
    return tuple(
        StressRequest(prompt_tokens=prompt, new_tokens=DECODE_TOKENS, abort_after=int(moment) if place % 2 else None)
        for place, moment in enumerate(moments)
    )


def _full_pool(pool_tokens: int, context: int) -> tuple[StressRequest, ...]:
    """Requests that together need every token of the pool, and one that has to wait or displace another."""
    share = min(context - 1, max(2, pool_tokens // 8))
    new_tokens = min(DECODE_TOKENS, share - 1)
    filling = StressRequest(prompt_tokens=share - new_tokens, new_tokens=new_tokens)
    return (filling,) * (-(-pool_tokens // share) + 1)
