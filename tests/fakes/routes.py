"""The HTTP routes of SGLang that Equipoise uses, with SGLang's paths and JSON shapes."""

import asyncio
import hashlib
import json
import os
import re
import sys
import uuid
from functools import cache
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.fakes import traces
from tests.fakes.answers import Answerer, tokens
from tests.fakes.failures import Failures
from tests.fakes.knobs import Identity, Knobs
from tests.fakes.scheduler import Profile, Scheduler, Sequence

CONTEXT = 8_192


class Routes:
    """One engine's routes."""

    def __init__(
        self, knobs: Knobs, identity: Identity, failures: Failures, scheduler: Scheduler, arguments: dict[str, Any]
    ) -> None:
        self._knobs = knobs
        self._identity = identity
        self._failures = failures
        self._scheduler = scheduler
        self._arguments = arguments
        self._answerer = Answerer(knobs, identity)
        self._tokenized: dict[tuple[int, ...], str] = {}
        self._named: dict[str, list[Sequence]] = {}
        self._aborts = self._checks = 0

    def application(self) -> web.Application:
        """The application with every route."""
        app = web.Application(client_max_size=1 << 30)
        app.add_routes(
            [
                web.get("/health", self.health),
                web.get("/health_generate", self.health),
                web.get("/model_info", self.model_info),
                web.get("/server_info", self.server_info),
                web.post("/generate", self.generate),
                web.post("/tokenize", self.tokenize),
                web.post("/abort_request", self.abort_request),
                web.post("/flush_cache", self.flush_cache),
                web.post("/start_profile", self.start_profile),
                web.post("/stop_profile", self.stop_profile),
            ]
        )
        return app

    async def health(self, request: web.Request) -> web.Response:
        """Green, whatever generation does: that is one of the failures."""
        return web.Response()

    async def model_info(self, request: web.Request) -> web.Response:
        """``GET /model_info``."""
        path = "/another/model" if "wrong_model" in self._failures else self._arguments["model_path"]
        return web.json_response(
            {
                "model_path": path,
                "tokenizer_path": path,
                "is_generation": True,
                "architectures": ["SimulatedForCausalLM"],
            }
        )

    async def server_info(self, request: web.Request) -> web.Response:
        """``GET /server_info``: configuration, and the plugin's record in the internal state; flushes the step log."""
        self._scheduler.flush()
        state: dict[str, Any] = {"effective_max_running_requests_per_dp": self._arguments["max_running_requests"]}
        if "no_attestation" not in self._failures:
            state["equipoise"] = self._attestation()
        return web.json_response(
            {
                **self._arguments,
                "version": self._identity.sglang,
                "max_total_num_tokens": self._arguments["max_total_tokens"],
                "max_req_input_len": min(CONTEXT, self._arguments["max_total_tokens"]) - 6,
                "internal_states": [state],
            }
        )

    def _attestation(self) -> dict[str, Any]:
        arm = "upstream" if "wrong_arm" in self._failures else self._identity.arm
        persistent, steps = arm == "persistent", self._scheduler.decode_steps
        policies = {"baseline": "PerCallScratch", "persistent": "PersistentScratch", "upstream": None}
        return {
            "schema": 1,
            "arm": arm,
            "launch_id": self._identity.launch_id,
            "pid": os.getpid(),
            "seam": "ok",
            "versions": {
                "python": None,
                "sglang": self._identity.sglang,
                "torch": None,
                "flashinfer": None,
                "plugin": "simulated",
            },
            "packages": packages(),
            "device": {"type": "simulated", "name": "none", "capability": None, "threads": 1},
            "decode_backend": "tests.fakes.simulated_engine",
            "kernel_path": "reference",
            "scratch": {
                "policy": policies[arm],
                "counter_bytes": 612 if persistent else None,
                "counter_rows": 17 if persistent else None,
                "counter_heads": 9 if persistent else None,
                "counters_reused": persistent if arm != "upstream" else None,
                "scale_shared": persistent if arm != "upstream" else None,
                "decode_calls": steps * self._knobs.layers if arm != "upstream" else None,
            },
            "guard": self._guard(persistent),
            **(
                {"test_delay_us": self._identity.delay_us, "test_delay_measured_us": float(self._identity.delay_us)}
                if self._identity.delay_us
                else {}
            ),
            "step_log": str(self._identity.step_log),
            "steps_seen": steps,
            "steps_written": steps,
        }

    def _guard(self, persistent: bool) -> dict[str, Any]:
        self._checks += persistent
        state, message = "clean" if persistent else "not_applicable", None
        if persistent and self._aborts and "dirty_after_abort" in self._failures:
            state, message = "dirty", "dirty counters: 1 of 153 are not zero between launches"
        return {"state": state, "message": message, "checks": self._checks}

    async def flush_cache(self, request: web.Request) -> web.Response:
        """``POST /flush_cache``; there is no cache."""
        return web.Response(text="Cache flushed.\n")

    async def start_profile(self, request: web.Request) -> web.Response:
        """``POST /start_profile``: the next ``num_steps`` forward passes go into a trace, or all until stopped."""
        body = await request.json()
        activity = "GPU" if body["activities"] == ["GPU"] else "CPU"

        def finish(steps: list[tuple[str, int]]) -> None:
            own = traces.own_kernels(self._identity, self._arguments)
            events = traces.events(self._knobs, self._identity.arm, activity, steps, own)
            traces.write(Path(body["output_dir"]), uuid.uuid4().hex[:10], events)

        while "late_profile" in self._failures and self._scheduler.decoding:
            await asyncio.sleep(0.01)
        self._scheduler.profile = Profile(body["num_steps"], [], finish)
        return web.Response(text="Start profiling.\n")

    async def stop_profile(self, request: web.Request) -> web.Response:
        """``POST /stop_profile``: the trace is written."""
        profile, self._scheduler.profile = self._scheduler.profile, None
        if profile is None:
            return web.Response(status=500, text="Profiling is not in progress. Call /start_profile first.")
        profile.finish(profile.steps)
        return web.Response(text="Stop profiling. This will take some time.\n")

    async def tokenize(self, request: web.Request) -> web.Response:
        """``POST /tokenize``; the prompt is remembered, so that its ids can be answered."""
        body = await request.json()
        prompt = body["prompt"] if "prompt" in body else "\n\n".join(turn["content"] for turn in body["messages"])
        ids, _ = tokens(prompt)
        self._tokenized[tuple(ids)] = prompt
        return web.json_response({"tokens": ids, "count": len(ids), "max_model_len": CONTEXT})

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """``POST /generate`` with ``text`` or ``input_ids``, plain or streaming."""
        body = await request.json()
        if "no_generation" in self._failures:
            await asyncio.Event().wait()
        if "text" in body:
            return await self._answer(body)
        if "input_ids" not in body:
            message = "Either text, input_ids or input_embeds should be provided."
            return web.json_response({"error": {"message": message}}, status=400)
        if body.get("return_logprob"):
            return self._choices(body)
        if not body["stream"]:
            return await self._answer(body | {"text": self._tokenized[tuple(body["input_ids"])]})
        prompts = body["input_ids"]
        prompts = prompts if isinstance(prompts[0], list) else [prompts]
        new_tokens = body["sampling_params"]["max_new_tokens"]
        sequences = [Sequence(len(prompt), new_tokens, from_text=False) for prompt in prompts]
        name = body.get("rid", uuid.uuid4().hex)
        self._named[name] = sequences
        try:
            return await self._stream(request, sequences, new_tokens)
        finally:
            del self._named[name]

    async def abort_request(self, request: web.Request) -> web.Response:
        """``POST /abort_request`` by ``rid``; as in SGLang, one that is not there is no error."""
        for sequence in self._named.get((await request.json())["rid"], []):
            self._scheduler.abort(sequence)
            self._aborts += sequence.aborted
        return web.Response()

    async def _answer(self, body: dict[str, Any]) -> web.Response:
        prompt = body["text"]
        if self._failures.refuses(prompt):
            return web.json_response({"error": {"message": "simulated failure"}}, status=500)
        print(f"asked {hashlib.sha256(prompt.encode()).hexdigest()}", flush=True)
        sampling = body["sampling_params"]
        ids, pieces = tokens(self._answerer.answer(prompt))
        limit = sampling["max_new_tokens"]
        finish = {"type": "length", "length": limit} if len(ids) > limit else {"type": "stop", "matched": 2}
        ids, pieces = ids[:limit], pieces[:limit]
        sequence = Sequence(len(prompt.split()), len(ids), from_text=True)
        self._scheduler.submit([sequence])
        while await sequence.emitted.get() < sequence.new_tokens:
            pass
        self._failures.after_answer()
        meta = _meta(sequence, sequence.done, finish)
        return web.json_response({"text": "".join(pieces), "output_ids": ids, "meta_info": meta})

    def _choices(self, body: dict[str, Any]) -> web.Response:
        """What a remembered prompt's answer goes on with; every other token is a little less probable."""
        ids, new_tokens = body["input_ids"], body["sampling_params"]["max_new_tokens"]
        prompt = max((known for known in self._tokenized if ids[: len(known)] == [*known]), key=len)
        answer, _ = tokens(self._answerer.answer(self._tokenized[prompt]))
        done = len(ids) - len(prompt)
        out = [*answer, 2, 2][done : done + new_tokens]
        asked = body["token_ids_logprob"]
        meta = {
            "finish_reason": {"type": "length", "length": new_tokens},
            "output_top_logprobs": [[[-0.25, token, None], [-1.75, 7, None]] for token in out],
            "output_token_ids_logprobs": [
                [[-0.25 if token == one else -1.75, one, None] for one in asked] for token in out
            ],
        }
        return web.json_response({"text": "", "output_ids": out, "meta_info": meta})

    async def _stream(self, request: web.Request, sequences: list[Sequence], new_tokens: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        refuses = self._failures.get("refuses_long")
        if refuses and max(sequence.prompt_tokens for sequence in sequences) > refuses.after:
            await response.write(b'data: {"error": {"message": "The input is longer than the context."}}\n\n')
            await response.write(b"data: [DONE]\n\n")
            return response
        self._scheduler.submit(sequences)
        for _ in range(new_tokens):
            for index, sequence in enumerate(sequences):
                done = await sequence.emitted.get()
                if "garbage_stream" in self._failures:
                    await response.write(b"data: \xff\xfe not json\n\n")
                    continue
                await response.write(b"data: " + _chunk(index, sequence, done) + b"\n\n")
                if sequence.aborted and sequence.emitted.empty():
                    await response.write(b"data: [DONE]\n\n")
                    return response
            if "truncated_stream" in self._failures:
                return response
        await response.write(b"data: [DONE]\n\n")
        return response


@cache
def packages() -> dict[str, str]:
    """Every package of this process's environment with its version, as the plugin lists them.

    By the names of their folders: what is in those takes longer to read than all else that an engine does.
    """
    found = [folder.stem.split("-") for path in reversed(sys.path) for folder in Path(path).glob("*.dist-info")]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def _chunk(index: int, sequence: Sequence, done: int) -> bytes:
    finish: dict[str, Any] | None = {"type": "length", "length": done} if done == sequence.new_tokens else None
    if sequence.aborted and sequence.emitted.empty():
        finish = {"type": "abort", "message": "Aborted by AbortReq."}
    body = {
        "text": " x" * done,
        "output_ids": [1000 + (index + place) % 100 for place in range(done)],
        "meta_info": _meta(sequence, done, finish),
        "index": index,
    }
    return json.dumps(body).encode()


def _meta(sequence: Sequence, done: int, finish: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "id": uuid.uuid4().hex,
        "finish_reason": finish,
        "prompt_tokens": sequence.prompt_tokens,
        "completion_tokens": done,
        "cached_tokens": 0,
    }
