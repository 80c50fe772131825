"""Records what a running engine answers, for the contract test: ``python -m tests.contract.record PORT OUT.json``.

Run it against a real engine of the baseline or persistent arm, started by hand or by the launcher, when SGLang changes.
Kept are the fields that Equipoise reads and their neighbours' names; paths and host names are left out.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp

from equipoise_service.engines.attestation import KEY, REPORTED

SAMPLING = {"temperature": 0.0, "max_new_tokens": 4, "ignore_eos": True}

PACKAGES = ("aiohttp", "pydantic")
"""Packages of any engine's environment; the whole list says nothing of the form."""


async def record(port: int) -> dict[str, Any]:
    """The answers of each route, by name."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        return {
            "health": await _text(session, "GET", "/health"),
            "model_info": await _json(session, "GET", "/model_info"),
            "server_info": _trimmed(await _json(session, "GET", "/server_info")),
            "generate": await _json(session, "POST", "/generate", {"text": "1 + 1 =", "sampling_params": SAMPLING}),
            "stream": await _stream(session, {"input_ids": [[1000] * 8, [1001] * 8], "sampling_params": SAMPLING}),
            "refused": await _json(session, "POST", "/generate", {"sampling_params": SAMPLING}),
            "flush_cache": await _text(session, "POST", "/flush_cache"),
        }


async def _text(session: aiohttp.ClientSession, method: str, path: str) -> dict[str, Any]:
    async with session.request(method, path) as response:
        return {"status": response.status, "text": await response.text()}


async def _json(
    session: aiohttp.ClientSession, method: str, path: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    async with session.request(method, path, json=body) as response:
        return {"status": response.status, "json": await response.json()}


async def _stream(session: aiohttp.ClientSession, body: dict[str, Any]) -> dict[str, Any]:
    async with session.post("/generate", json={**body, "stream": True}) as response:
        lines = (await response.text()).splitlines()
        return {"status": response.status, "type": response.content_type, "lines": lines}


def _trimmed(answer: dict[str, Any]) -> dict[str, Any]:
    info = answer["json"]
    state = {**info["internal_states"][0][KEY], "step_log": "steps.jsonl"}
    if "packages" in state:
        state["packages"] = {name: state["packages"][name] for name in PACKAGES}
    kept = {name: info[name] for name in REPORTED if name in info}
    return {**answer, "json": {**kept, "internal_states": [{KEY: state}]}}


def main() -> None:
    """Record and store."""
    answers = asyncio.run(record(int(sys.argv[1])))
    answers["model_info"]["json"].update(model_path="MODEL", tokenizer_path="MODEL", served_model_name="MODEL")
    answers["model_info"]["json"].pop("embedding", None)
    Path(sys.argv[2]).write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
