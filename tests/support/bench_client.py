"""How much of an engine's throughput a GSM8K pass reaches, beside SGLang's own benchmark client on the same engine.

``python -m tests.support.bench_client ENGINE_PYTHON TOKENIZER``; ``make bench-client`` keeps what it prints. The engine
is ``tests.fakes.paced``, a process of its own whose answers take a fixed time. The pass is the product's: prompts with
five worked examples, the client, running score, every answer stored in a database. 100 % is the time that the engine
itself needs for these requests: rounds of CONCURRENCY answers that each take their fixed time.
"""

import asyncio
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple, cast

import httpx

from equipoise_evals.gsm8k.load import load_shipped
from equipoise_evals.gsm8k.passes import run_pass
from equipoise_evals.gsm8k.prompt import Prompt, build_prompts
from equipoise_evals.model import AnswerRecord, PromptProbe, SamplingPlan
from equipoise_evals.ports import Asked, Engine, Generation
from equipoise_service.engines.client import EngineClient
from equipoise_service.progress import EventProgress
from equipoise_service.store import NewComparison, Store, StoredRecorder
from tests.support.records import accuracy_plan

QUESTIONS = 1_319
SHOTS = 5
TOKENS = 100
TOKEN_S = {1: 0.002, 32: 0.005, 256: 0.025}
"""Seconds a token by requests in flight, prefills included: about an 8B model's on one H200; at batch 1 less."""
WANTED = 0.97
NOISE = 0.005
"""Share by which a client's time differs from run to run."""


class Run(NamedTuple):
    """One client's pass: seconds, and what the engine counted."""

    seconds: float
    requests: int
    most_open: int


class AskedAlone:
    """As much of an engine as a pass asks for."""

    role = "A"

    def __init__(self, client: EngineClient) -> None:
        self._client = client

    async def probe(self, prompt: Asked) -> PromptProbe:
        """The engine has no tokenizer."""
        return PromptProbe(tokens=800, head=(1,), bos=None)

    async def generate(self, prompt: Asked, sampling: SamplingPlan) -> Generation:
        """Answer one prompt."""
        return await self._client.generate(prompt, sampling)


def prompts() -> tuple[Prompt, ...]:
    """1,319 prompts of the shipped questions, asked over and over under ids of their own."""
    found = load_shipped()
    questions = islice(cycle(found.test), QUESTIONS)
    asked = [question.model_copy(update={"id": place}) for place, question in enumerate(questions)]
    return build_prompts(asked, found.train[:SHOTS])


async def ours(port: int, concurrency: int, asked: Sequence[Prompt], folder: Path) -> float:
    """Seconds of a whole pass, from the first question until its record is stored."""
    store = Store.open(f"sqlite:///{folder}/bench-{concurrency}.db")
    comparison, _ = store.comparisons.add(NewComparison("bench", "paced", "{}", "0" * 64, "{}"))
    recorder = StoredRecorder(store.records, comparison.id)
    plan = accuracy_plan(len(asked), concurrency=concurrency, sampling=SamplingPlan(max_new_tokens=TOKENS))
    async with EngineClient(port, request_s=60) as client:
        began_s = time.monotonic()
        done = await run_pass(
            cast("Engine", AskedAlone(client)), plan, asked, pair=1, clock=time.monotonic,
            progress=EventProgress(store.events, comparison.id, time.monotonic),
            on_answer=lambda answer: recorder.append(AnswerRecord(pair=1, role="A", answer=answer)),
        )  # fmt: skip
        recorder.append(done)
        seconds = time.monotonic() - began_s
    store.database.close()
    if any(answer.state != "answered" for answer in done.answers):
        raise RuntimeError("a request failed")
    return seconds


async def sglangs(port: int, concurrency: int, python: str, tokenizer: str, folder: Path) -> float:
    """Seconds that SGLang's benchmark client says it took for the same prompts, without streaming as ours."""
    out = folder / f"sglang-{concurrency}.jsonl"
    process = await asyncio.create_subprocess_exec(
        python, "-W", "ignore", "-m", "sglang.benchmark.serving", "--backend", "sglang", "--disable-stream",
        "--base-url", f"http://127.0.0.1:{port}", "--model", tokenizer, "--tokenizer", tokenizer,
        "--dataset-name", "custom", "--dataset-path", str(folder / "prompts.jsonl"), "--num-prompts", str(QUESTIONS),
        "--sharegpt-output-len", str(TOKENS), "--max-concurrency", str(concurrency), "--warmup-requests", "0",
        "--disable-tqdm", "--output-file", str(out),
        env=os.environ | {"HF_HUB_OFFLINE": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(said.decode()[-2000:])
    result = json.loads(out.read_text())
    if result["completed"] != QUESTIONS:
        raise RuntimeError(f"{result['completed']} of {QUESTIONS} requests completed")
    return float(result["duration"])


async def compared(concurrency: int, python: str, tokenizer: str, folder: Path) -> dict[str, Run]:
    """Both clients, one after the other, on one engine."""
    token_s = TOKEN_S[concurrency]
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fakes.paced", "--token-s", str(token_s), "--tokens", str(TOKENS),
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert engine.stdout is not None
        port = int(await engine.stdout.readline())
        runs = {}
        asked = prompts()
        for name in ("ours", "sglang"):
            seconds = (
                await ours(port, concurrency, asked, folder)
                if name == "ours"
                else await sglangs(port, concurrency, python, tokenizer, folder)
            )
            async with httpx.AsyncClient(trust_env=False) as http:
                counted = (await http.get(f"http://127.0.0.1:{port}/stats")).json()
            runs[name] = Run(seconds, counted["requests"], counted["most_open"])
        return runs
    finally:
        engine.kill()
        await engine.wait()


async def main(python: str, tokenizer: str) -> int:
    """Print the table; 1 if a figure misses its limit."""
    version = subprocess.run(
        [python, "-c", "from importlib.metadata import version; print(version('sglang'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    print(f"{QUESTIONS} questions, {SHOTS} worked examples, answers of {TOKENS} tokens; {time.strftime('%Y-%m-%d')}")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; SGLang {version}")
    policy = "real-time" if os.sched_getscheduler(0) in {os.SCHED_RR, os.SCHED_FIFO} else "normal"
    print(f"load of the machine at the start {os.getloadavg()[0]:.1f}; engine and clients scheduled as {policy}")
    print("100 % is the engine's own time: rounds of so many answers in flight, each of its fixed time\n")
    print("in flight  answer  engine's   ours            sglang.bench_serving   requests, most in flight")
    held = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = (
            json.dumps({"conversations": [{"content": prompt.text}, {"content": "x x x x"}]}) for prompt in prompts()
        )
        (folder / "prompts.jsonl").write_text("\n".join(lines))
        for concurrency, token_s in TOKEN_S.items():
            answer_s = TOKENS * token_s
            ideal_s = math.ceil(QUESTIONS / concurrency) * answer_s
            runs = await compared(concurrency, python, tokenizer, folder)
            mine, theirs = runs["ours"], runs["sglang"]
            held &= ideal_s / mine.seconds >= WANTED and mine.seconds <= (1 + NOISE) * theirs.seconds
            print(
                f"{concurrency:9}  {answer_s:5.2f}s  {ideal_s:7.1f}s  "
                f"{mine.seconds:6.1f}s {ideal_s / mine.seconds:6.1%}  "
                f"{theirs.seconds:6.1f}s {ideal_s / theirs.seconds:6.1%}        "
                f"{mine.requests}, {mine.most_open}; {theirs.requests}, {theirs.most_open}",
                flush=True,
            )
    word = "holds" if held else "FAILS"
    print(f"\nat least {WANTED:.0%} at each, nowhere slower than SGLang's by over {NOISE:.1%}: {word}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:3])))
