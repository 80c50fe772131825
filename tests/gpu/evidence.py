"""``make gpu-evidence``: sends a step's request down the product's own line and keeps the raw records.

    python -m tests.gpu.evidence --models FOLDER [--out docs/evidence] [STEP…]

A step whose files are there is not run again. Each step leaves ``STEP.records.json.xz``, which ``equipoise judge``
reads, and ``STEP.json``: command, date, commit, versions, GPU, the request, what was claimed and seen, the verdict.
"""

import argparse
import asyncio
import json
import lzma
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from equipoise_evals.model import LaunchRecord
from equipoise_service.cli.client import ApiClient
from equipoise_service.interchange import RecordsDocument
from equipoise_service.machine import Machine
from equipoise_service.server import bind, running_server
from equipoise_service.settings import Settings
from tests.gpu.claims import Claim, reproduces
from tests.gpu.steps import STEPS, Step

ROOT = Path(__file__).resolve().parents[2]
LARGEST_FILE_BYTES = 5 * 1024 * 1024
PACKAGES = ("equipoise-evals", "equipoise-service", "numpy", "scipy", "statsmodels", "pydantic", "aiohttp")


async def run(step: Step, models: Path) -> tuple[dict[str, Any], str]:
    """Submit a step to a service of our own, wait for its end, and return its view and its records document."""
    listening = bind("127.0.0.1", 0)
    async with running_server(Settings.from_env(), listening, url=None), ApiClient(listening.url) as client:
        comparison_id = await client.submit(step.body(models))
        async for event in client.events(comparison_id):
            print(f"{datetime.now(UTC):%H:%M:%S} {event.kind} {event.data}", flush=True)
        return await client.comparison(comparison_id), await client.text(f"/comparisons/{comparison_id}/records")


def evidence_of(name: str, view: dict[str, Any], records: str, seconds: float) -> dict[str, Any]:
    """What is kept beside the raw records."""
    document = RecordsDocument.model_validate_json(records)
    claims: list[Claim] = []
    if document.verdict is not None:
        claims = [reproduces(document), *STEPS[name].claims(document)]
    launches = document.observed.of(LaunchRecord)
    return {
        "step": name,
        "command": " ".join(sys.orig_argv),
        "date": datetime.now(UTC).isoformat("T", "seconds"),
        "seconds": round(seconds, 1),
        "commit": commit(),
        "service": {"python": sys.version.split()[0], **{package: found_version(package) for package in PACKAGES}},
        "engine": [launch.attestation.get("versions") for launch in launches[:1]],
        "device": [launch.attestation.get("device") for launch in launches[:1]],
        "gpu": nvidia_smi(),
        "status": view["status"],
        "error": view["error"],
        "claims": [claim._asdict() for claim in claims],
        "request": view["request"],
        "verdict": view["verdict"],
    }


def store(out: Path, name: str, evidence: dict[str, Any], records: str) -> None:
    """Write both files; the one that marks the step as done comes last."""
    out.mkdir(parents=True, exist_ok=True)
    packed = lzma.compress(records.encode(), preset=9)
    if len(packed) > LARGEST_FILE_BYTES:
        raise SystemExit(f"{name}: the records take {len(packed)} bytes, more than {LARGEST_FILE_BYTES}")
    failed = "" if evidence["verdict"] else "failed-"
    (out / f"{failed}{name}.records.json.xz").write_bytes(packed)
    (out / f"{failed}{name}.json").write_text(json.dumps(evidence, indent=1) + "\n")


def commit() -> str:
    """The commit of this checkout, marked where files differ from it; SOURCE_COMMIT where there is no repository."""
    told = os.environ.get("SOURCE_COMMIT")
    if told:
        return told
    head = _output("git", "-C", str(ROOT), "rev-parse", "HEAD")
    return head + ("-dirty" if _output("git", "-C", str(ROOT), "status", "--porcelain", "-uno") else "")


def nvidia_smi() -> str:
    """Name, driver and memory of the GPUs, as the driver's own tool prints them."""
    return _output("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")


def found_version(package: str) -> str:
    """Version of a package; "checkout" for one that runs from its source."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "checkout"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"unknown ({error})"


def perform(name: str, models: Path, out: Path) -> bool:
    """Run one step and store it; whether it has a verdict and every claim holds."""
    started_s = time.monotonic()
    view, records = asyncio.run(run(STEPS[name], models))
    evidence = evidence_of(name, view, records, time.monotonic() - started_s)
    store(out, name, evidence, records)
    for claim in evidence["claims"]:
        print(f"{'holds' if claim['holds'] else 'FAILS'}: {claim['claim']}: {claim['seen']}", flush=True)
    if evidence["verdict"] is None:
        print(f"FAILS: no verdict: {json.dumps(evidence['error'])}", flush=True)
        return False
    print(evidence["verdict"]["headline"], flush=True)
    return all(claim["holds"] for claim in evidence["claims"])


def main() -> int:
    """Perform the steps named, all if none is; 1 if one of them failed a claim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True, help="folder with smollm2 and llama-8b-shape")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "evidence")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.steps if name not in STEPS]
    if unknown:
        parser.error(f"unknown steps {unknown}; known: {', '.join(STEPS)}")
    held = []
    for name in arguments.steps or STEPS:
        if (arguments.out / f"{name}.json").exists():
            print(f"{name}: already there", flush=True)
            continue
        there = len(Machine(Settings.from_env()).devices())
        if STEPS[name].gpus > max(1, there):
            print(f"{name}: needs {STEPS[name].gpus} GPUs of one host, and there are {there}", flush=True)
            continue
        print(f"== {name}", flush=True)
        held.append(perform(name, arguments.models.resolve(), arguments.out))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
