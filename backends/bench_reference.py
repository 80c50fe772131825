"""Cost of the CPU reference backend against SGLang's ``torch_native``: attention alone, and a whole decode step.

The whole step is attention plus the matrix products of SmolLM2-135M, which is what bounds a step at batch 1. The three
backends take turns within each round, so that a slow moment of the machine hits all of them; medians are compared.

    ENGINE_PYTHON backends/bench_reference.py        # with SGLANG_PLATFORM=equipoise-cpu and the plugin on PYTHONPATH
"""

import argparse
import datetime
import functools
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version

import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

from equipoise_backends.bare_step import SMOLLM2_135M, DecodingBackend, make_step
from equipoise_backends.bare_step import decode as attend
from equipoise_backends.reference import ReferenceAttnBackend
from equipoise_backends.scratch import PerCallScratch, PersistentScratch, persistent_sizing

HIDDEN, INTERMEDIATE, VOCABULARY = 576, 1536, 49152
MAX_RATIO = 1.3
CPU = torch.device("cpu")


def make_weights(layers: int) -> list[torch.Tensor]:
    """The matrices of SmolLM2-135M in the order of a step: per layer qkv, o, gate and up, down; at last the head."""
    heads = SMOLLM2_135M.heads * SMOLLM2_135M.head_size
    kv_heads = SMOLLM2_135M.kv_heads * SMOLLM2_135M.head_size
    layer = [(HIDDEN, heads + 2 * kv_heads), (heads, HIDDEN), (HIDDEN, 2 * INTERMEDIATE), (INTERMEDIATE, HIDDEN)]
    return [torch.randn(size) for size in [*layer * layers, (HIDDEN, VOCABULARY)]]


def multiply(weights: list[torch.Tensor], batch: int) -> None:
    """Pass one token per request through every matrix."""
    for weight in weights:
        torch.randn(batch, weight.shape[0]) @ weight


def time_ms(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start_ns = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start_ns) / 1e6


def measure(batch: int, context: int, rounds: int, weights: list[torch.Tensor]) -> dict[str, tuple[float, float]]:
    """Median ms of attention alone and of attention with the matrix products, for each backend."""
    generator = torch.Generator().manual_seed(batch * 10_000 + context)
    step = make_step(SMOLLM2_135M, [context] * batch, generator, max_running_requests=batch, dtype=torch.float32)
    sizing = persistent_sizing(batch, None, SMOLLM2_135M.heads)
    backends: dict[str, DecodingBackend] = {
        "torch_native": TorchNativeAttnBackend(step.runner),
        "baseline": ReferenceAttnBackend(step.runner, PerCallScratch(CPU)),
        "persistent": ReferenceAttnBackend(step.runner, PersistentScratch(sizing, CPU)),
    }
    attention: dict[str, list[float]] = {name: [] for name in backends}
    whole: dict[str, list[float]] = {name: [] for name in backends}
    for _ in range(rounds + 1):
        for name, backend in backends.items():
            products_ms = time_ms(functools.partial(multiply, weights, batch))
            attention_ms = time_ms(functools.partial(attend, backend, step))
            attention[name].append(attention_ms)
            whole[name].append(attention_ms + products_ms)
    # The first round warms caches and allocators up.
    return {name: (statistics.median(attention[name][1:]), statistics.median(whole[name][1:])) for name in backends}


def header(rounds: int) -> str:
    """What the numbers depend on."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("sglang", "torch", "equipoise-backends"))
    when = datetime.datetime.now(datetime.UTC)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}"
    return (
        f"{when:%Y-%m-%d %H:%M} UTC; {versions}; {machine}, {torch.get_num_threads()} threads; "
        f"SmolLM2-135M shapes, float32; medians of {rounds} rounds, ms per step\n"
    )


def main() -> int:
    """Print the table; 1 when a whole step costs more than 1.3 times ``torch_native``'s."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--contexts", type=int, nargs="+", default=[64, 128, 256, 512, 1024])
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    torch.manual_seed(0)
    weights = make_weights(SMOLLM2_135M.layers)
    sys.stdout.write(header(args.rounds))
    sys.stdout.write(
        f"{'batch':>5} {'context':>7}  {'backend':<12} {'attention':>9} {'ratio':>6} {'step':>8} {'ratio':>6}\n"
    )
    worst = 0.0
    for batch in args.batches:
        for context in args.contexts:
            medians = measure(batch, context, args.rounds, weights)
            native_attention, native_step = medians["torch_native"]
            for name, (attention_ms, step_ms) in medians.items():
                sys.stdout.write(
                    f"{batch:>5} {context:>7}  {name:<12} {attention_ms:>9.2f} {attention_ms / native_attention:>6.2f} "
                    f"{step_ms:>8.2f} {step_ms / native_step:>6.2f}\n"
                )
                worst = max(worst, step_ms / native_step)
            sys.stdout.flush()
    sys.stdout.write(f"largest ratio of a step: {worst:.2f}, allowed {MAX_RATIO}\n")
    return 1 if worst > MAX_RATIO else 0


if __name__ == "__main__":
    sys.exit(main())
