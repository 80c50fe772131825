"""Writes profiler traces in the form that torch writes them and SGLang stores them, with the fills of each arm."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fakes.knobs import Identity, Knobs

GPU_FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >"
GPU_OTHER = ("fmhaSm90Kernel_XQA", "void at::native::elementwise_kernel<128, 2>")
CPU_OTHER = ("aten::mm", "aten::bmm", "aten::empty")
STEP_US = 1000.0


def fills(knobs: Knobs, arm: str, activity: str) -> dict[str, int]:
    """Fills per layer and decode step: three where each call brings its own scratch, none where the backend has it."""
    if knobs.treatment and arm == "persistent":
        return {}
    return {GPU_FILL: 3} if activity == "GPU" else {"aten::zeros": 1, "aten::ones": 2}


def write(folder: Path, name: str, events: list[dict[str, Any]]) -> Path:
    """Store events as ``NAME-TP-0.trace.json.gz``, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-TP-0.trace.json.gz"
    document = {
        "schemaVersion": 1,
        "deviceProperties": [],
        "traceEvents": events,
        "traceName": str(path),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
    }
    partial = path.with_suffix(".part")
    with gzip.open(partial, "wt", compresslevel=1) as stream:
        json.dump(document, stream)
    partial.rename(path)
    return path


def own_kernels(identity: Identity, arguments: Mapping[str, Any]) -> list[str]:
    """Kernels whose names follow from how this engine was started, as those of real ones do."""
    backend, cache = arguments.get("attention_backend", "default"), arguments.get("kv_cache_dtype", "auto")
    return [f"attention::{backend}<{cache}>", f"sampling::{identity.sglang}"]


def events(
    knobs: Knobs, arm: str, activity: str, steps: Sequence[tuple[str, int]], own: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The events of forward passes of the given kinds and batch sizes."""
    found: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 7, "tid": 7, "args": {"name": "python"}}]
    category, others = ("kernel", GPU_OTHER) if activity == "GPU" else ("cpu_op", CPU_OTHER)
    per_layer = fills(knobs, arm, activity)
    names = [name for name, number in per_layer.items() for _ in range(number)] + [*others, *own]
    for step, (kind, batch) in enumerate(steps):
        began = step * STEP_US
        if activity == "CPU":
            found.append(_event("user_annotation", f"step[{kind} bs={batch}]", began, STEP_US * 0.9))
        gap = STEP_US * 0.8 / (knobs.layers * len(names))
        for place, name in enumerate(names * knobs.layers):
            found.append(_event(category, name, began + place * gap, gap / 2))
    return found


def _event(category: str, name: str, at: float, lasting: float) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": 7, "ts": at, "dur": lasting, "args": {}}
