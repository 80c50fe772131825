"""Sends a phase of the stress profile to an engine and counts how its requests ended.

It owns the requests in flight and the count. Which requests there are is `equipoise_evals.decode.stress`; whether the
engine lives, and what it attests afterwards, is `engine.py`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from equipoise_evals.decode.stress import StressRequest
from equipoise_evals.model import StressedPhase, StressPhaseName
from equipoise_evals.ports import RequestFailed
from equipoise_service.engines.client import EngineClient


class UnknownCapacity(Exception):
    """``/server_info`` does not say what the engine can hold."""


class Capacity(NamedTuple):
    """What an engine can hold: its KV pool, and the longest prompt that it takes, in tokens."""

    pool_tokens: int
    longest_tokens: int


class Ended(NamedTuple):
    """How one request ended: the engine's own reason, or the error in its place."""

    reason: str | None
    error: str | None = None


def capacity(server_info: Mapping[str, JsonValue]) -> Capacity:
    """What SGLang's scheduler reports of its pool and its longest prompt.

    A prompt of ``max_req_input_len`` tokens is refused (``validate_input_length``), and five tokens above it are left
    for the answer, so a whole request of that length is accepted.

    Raises:
        UnknownCapacity: A field is missing.
    """
    pool, longest = (server_info.get(name) for name in ("max_total_num_tokens", "max_req_input_len"))
    if not isinstance(pool, int) or not isinstance(longest, int):
        raise UnknownCapacity(f"/server_info says max_total_num_tokens {pool!r} and max_req_input_len {longest!r}")
    return Capacity(pool, longest)


async def run(
    client: EngineClient, requests: Sequence[StressRequest], prompts: Sequence[Sequence[int]]
) -> tuple[Ended, ...]:
    """Send all requests at once, each with its prompt, and read every one to its end."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_end_of(client, request, prompt))
            for request, prompt in zip(requests, prompts, strict=True)
        ]
    return tuple(task.result() for task in tasks)


async def _end_of(client: EngineClient, request: StressRequest, prompt: Sequence[int]) -> Ended:
    try:
        return Ended(await client.stream_one(prompt, request.new_tokens, request.abort_after))
    except RequestFailed as failed:
        return Ended(None, str(failed))


def stressed(name: StressPhaseName, ends: Sequence[Ended], attestation: Mapping[str, JsonValue]) -> StressedPhase:
    """The phase for the record, with what the guard said in the attestation that followed it."""
    guard = attestation.get("guard")
    said: Mapping[str, JsonValue] = guard if isinstance(guard, dict) else {}
    errors = [end.error for end in ends if end.error is not None]
    aborted = sum(end.reason == "abort" for end in ends)
    return StressedPhase.model_validate(
        {
            "name": name,
            "requests": len(ends),
            "finished": len(ends) - aborted - len(errors),
            "aborted": aborted,
            "failed": len(errors),
            "guard": said.get("state"),
            "guard_checks": said.get("checks"),
            "first_error": errors[0] if errors else None,
        }
    )
