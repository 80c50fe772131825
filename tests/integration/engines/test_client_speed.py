"""The client at the rates of a real engine: what it reports of an engine of known speed is that speed."""

import asyncio
import sys

import pytest

from equipoise_service.engines.client import EngineClient

TOKENS_PER_S = 100.0
SEQUENCES = 64
PROMPT_TOKENS = 50_000
TOKENS = 150


@pytest.mark.engine  # no real engine, but like those it must have the machine to itself: a speed is measured
async def test_a3_09_long_prompts_throttle_no_stream() -> None:
    """64 streams of 100 tokens a second, after prompts of 50,000 tokens each, are seen at 100 tokens a second +-2 %."""
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fakes.paced", "--token-s", str(1 / TOKENS_PER_S), "--tokens", str(TOKENS),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert engine.stdout is not None
        port = int(await engine.stdout.readline())
        async with EngineClient(port, request_s=60) as client:
            prompts = [[1000 + place % 7] * PROMPT_TOKENS for place in range(SEQUENCES)]
            timings = await client.stream_batch(prompts, TOKENS)
    finally:
        engine.kill()
        await engine.wait()
    assert len(timings) == SEQUENCES
    assert {timing.output_tokens for timing in timings} == {TOKENS}
    for timing in timings:
        assert 1e6 / timing.tpot_us == pytest.approx(TOKENS_PER_S, rel=0.02)
