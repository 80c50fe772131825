"""Client-side timing of streamed answers: what is a first token, what is time per token.

Pure: chunks with their arrival times go in, one timing per request comes out. The rules:

* A chunk without a new token (a role, an empty delta) starts no clock and ends none.
* TTFT is the arrival of the first chunk that holds a token, less the start of the request.
* TPOT is (last token's arrival - first token's arrival) / (n - 1) over the n tokens of the answer, however many tokens
  a chunk holds; the gap between two chunks is not a token's latency.
* A request without a token, or with one alone, has no timing: that is an error, never a zero.
* An engine that holds tokens back (``--stream-interval`` above 1) tells nothing of them: its clients measure nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pydantic import JsonValue

from equipoise_evals.model.records import ClientTiming, StepColumns


class Chunk(NamedTuple):
    """One chunk of one request: when it arrived and how many tokens the request had by then."""

    arrived_s: float
    total_tokens: int


class NoTiming(Exception):
    """A streamed answer from which no timing follows."""


def timing(started_s: float, chunks: Iterable[Chunk]) -> ClientTiming:
    """The timing of one request.

    Args:
        started_s: When it was sent, on the same monotonic clock as the chunks.
        chunks: Its chunks in order of arrival.

    Raises:
        NoTiming: Fewer than two tokens came, all came at one moment, or a token count fell.
    """
    first: Chunk | None = None
    last: Chunk | None = None
    for chunk in chunks:
        known = last.total_tokens if last else 0
        if chunk.total_tokens < known:
            raise NoTiming(f"the token count fell from {known} to {chunk.total_tokens}")
        if chunk.total_tokens == known:
            continue
        first, last = first or chunk, chunk
    if first is None or last is None or last.total_tokens < 2:
        raise NoTiming(f"{last.total_tokens if last else 0} tokens came; at least 2 are needed")
    ttft_s, decode_s = first.arrived_s - started_s, last.arrived_s - first.arrived_s
    if ttft_s <= 0 or decode_s <= 0:
        raise NoTiming(f"all {last.total_tokens} tokens came in one chunk or before the request")
    return ClientTiming(
        ttft_us=ttft_s * 1e6, tpot_us=decode_s / (last.total_tokens - 1) * 1e6, output_tokens=last.total_tokens
    )


def token_by_token(server_info: Mapping[str, JsonValue]) -> bool:
    """Whether the engine streams every token as it comes, by ``/server_info``; SGLang's default is that it does."""
    return str(server_info.get("stream_interval", 1)) == "1"


def client_steps(chunks: Sequence[Sequence[Chunk]], prompt_tokens: int, steps: int) -> StepColumns:
    """Decode steps of a batch as its client saw them: one ends when the last sequence's token of it has arrived.

    The first token of each sequence comes out of its prefill and begins the first step. Tokens that arrive together
    have no time between them, and the one before them has all of it, so a block's mean is right and single steps need
    not be.

    Args:
        chunks: The chunks of each sequence in order of arrival.
        prompt_tokens: Tokens of each prompt.
        steps: Steps wanted.

    Raises:
        NoTiming: A sequence has fewer tokens.
    """
    arrivals = [_arrivals(of_one, steps + 1) for of_one in chunks]
    ends_s = [max(of_all) for of_all in zip(*arrivals, strict=True)]
    passed_us = tuple(1e6 * (end - before) for before, end in pairwise(ends_s))
    batch = len(chunks)
    return StepColumns(
        monotonic_ns=tuple(round(1e9 * end) for end in ends_s[1:]),
        graph_batch=(0,) * steps,
        real_batch=(batch,) * steps,
        context_tokens=tuple(batch * (prompt_tokens + step) for step in range(1, steps + 1)),
        busy_us=passed_us,
        period_us=passed_us,
    )


def _arrivals(chunks: Iterable[Chunk], tokens: int) -> list[float]:
    """When each of the first ``tokens`` tokens of one sequence arrived."""
    arrived: list[float] = []
    for chunk in chunks:
        arrived += [chunk.arrived_s] * (chunk.total_tokens - len(arrived))
    if len(arrived) < tokens:
        raise NoTiming(f"{len(arrived)} tokens came where {tokens} were asked for")
    return arrived[:tokens]
