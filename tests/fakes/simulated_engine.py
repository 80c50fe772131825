"""A simulated engine as a process of its own, started with SGLang's command line.

``python -m tests.fakes.simulated_engine --model-path … --port …``. It speaks the parts of SGLang's HTTP interface
that Equipoise uses and writes the plugin's step log; ``EQUIPOISE_SIM`` holds its knobs. It computes nothing.
"""

import argparse
import asyncio
import os
import time
from pathlib import Path
from typing import Any

os.environ["SSL_CERT_FILE"] = os.devnull  # aiohttp reads all of the system's certificates, which no engine needs

from aiohttp import web

from tests.fakes.failures import Failures
from tests.fakes.knobs import Identity, from_environment
from tests.fakes.memory import take_memory
from tests.fakes.routes import Routes
from tests.fakes.scheduler import Scheduler
from tests.fakes.world import World


def parse(argv: list[str] | None = None) -> dict[str, Any]:
    """SGLang's flags that matter here; all others are kept as they are, with ``True`` where no value follows."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--nccl-port", type=int)
    parser.add_argument("--max-total-tokens", type=int, default=16384)
    parser.add_argument("--max-running-requests", type=int, default=256)
    parser.add_argument("--chunked-prefill-size", type=int, default=8192)
    parser.add_argument("--random-seed", type=int, default=1)
    known, rest = parser.parse_known_args(argv)
    arguments = vars(known)
    for place, word in enumerate(rest):
        if word.startswith("--"):
            value = rest[place + 1] if place + 1 < len(rest) and not rest[place + 1].startswith("--") else True
            arguments[word[2:].replace("-", "_")] = value
    return arguments


async def serve(arguments: dict[str, Any]) -> None:
    """Serve until killed."""
    knobs, identity = from_environment(), Identity.from_environment()
    failures = Failures(knobs, identity)
    world = World(knobs, identity, failures.slowdown)
    scheduler = Scheduler(
        world,
        identity,
        max_running=arguments["max_running_requests"],
        pool_tokens=arguments["max_total_tokens"],
        chunk_tokens=arguments["chunked_prefill_size"],
        time_scale=knobs.time_scale,
    )
    scheduler.on_step = lambda: failures.after_block_step(scheduler.id_prompt_steps)
    loop = asyncio.create_task(scheduler.run())
    runner = web.AppRunner(Routes(knobs, identity, failures, scheduler, arguments).application())
    await runner.setup()
    await web.TCPSite(runner, arguments["host"], arguments["port"]).start()
    print("The server is fired up and ready to roll!", flush=True)
    await loop


def wait_at_the_gate(gate: str | None) -> None:
    """As the plugin does where it is asked to."""
    if gate is None:
        return
    print("equipoise: at the start gate", flush=True)
    while not Path(gate).exists():
        time.sleep(0.02)
    print("equipoise: through the start gate", flush=True)


def main() -> None:
    """Start, misbehave if told to, serve."""
    arguments = parse()
    knobs = from_environment()
    failures = Failures(knobs, Identity.from_environment())
    failures.at_start()
    gate = os.environ.get("EQUIPOISE_START_GATE")
    wait_at_the_gate(gate)
    if knobs.device is not None:
        take_memory(knobs.device, kept="keeps_memory" in failures)
    if gate is not None:
        print("Memory pool end. avail mem=1.00 GB", flush=True)
    asyncio.run(serve(arguments))


if __name__ == "__main__":
    main()
