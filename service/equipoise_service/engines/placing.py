"""Where engines run: a pool of GPUs cut into device sets, and whether two engines fit on one. Nothing is started here.

A device set is as many GPUs as the arms' flags ask for, by tensor, pipeline and data parallelism, the first ones of
the pool. The estimate of memory is that of weights and KV pool, which is what SGLang's ``--mem-fraction-static``
limits. It is a lower bound: activations and graphs come on top. So two engines that do not fit by it do not fit, and
two that do may still be too large, which their start says. Where weights may take less than their files, none is made.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from equipoise_evals.decode.schedule import device_sets
from equipoise_evals.model import ArmPair, ArmSpec, Layout, ModelRef, Plan, Role
from equipoise_evals.model.plan import DEVICE_SETS
from equipoise_service.engines.backends import value_of
from equipoise_service.engines.environment import MEMORY_FRACTIONS

PARALLEL = {
    "tensor": ("--tp-size", "--tensor-parallel-size", "--tp"),
    "pipeline": ("--pp-size", "--pipeline-parallel-size", "--pp"),
    "data": ("--dp-size", "--data-parallel-size", "--dp"),
}
"""Flags of SGLang that multiply the GPUs of an engine, under every name of each."""
SHARED_DATA_PARALLEL = "--enable-dp-attention"
"""With it data parallelism is inside the GPUs of tensor parallelism and takes none of its own."""
WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
GIB = 1024**3
OTHER_WEIGHTS = ("--quantization", "--dtype", "--load-format", "--torchao-config", "--cpu-offload-gb")
"""Flags by which an engine holds its weights otherwise than in the files."""
OTHER_CACHES = ("kv_lora_rank", "layer_types", "hybrid_override_pattern", "sliding_window_pattern")
"""Fields of a ``config.json`` whose models keep less than K and V of every head in every layer."""


class Place(NamedTuple):
    """Where a comparison's engines run.

    Attributes:
        devices: Its pool of GPUs, as ``CUDA_VISIBLE_DEVICES`` names them; empty where none is chosen.
        node: The machine of a cluster, empty for the service's own.
    """

    devices: tuple[str, ...] = ()
    node: str = ""


def gpus_of_engine(arms: ArmPair) -> int:
    """GPUs that one engine takes: the larger number of the two arms, whose flags are whole numbers."""
    return max(_gpus_of_arm(arm) for arm in (arms.baseline, arms.candidate))


def _gpus_of_arm(arm: ArmSpec) -> int:
    kinds = [kind for kind in PARALLEL if kind != "data" or SHARED_DATA_PARALLEL not in arm.flags]
    return math.prod(max(int(value_of(name, arm.flags) or 1) for name in PARALLEL[kind]) for kind in kinds)


def gpus_needed(arms: ArmPair, layout: Layout) -> int:
    """GPUs that a launch pair takes, both device sets of ``crossover`` together."""
    return gpus_of_engine(arms) * DEVICE_SETS[layout]


def devices_of(plan: Plan, pair: int, role: Role, pool: Sequence[str]) -> tuple[str, ...]:
    """The GPUs of one engine out of the pool; none where the pool is empty."""
    size = gpus_of_engine(plan.arms)
    start = size * device_sets(plan, pair)[role]
    return tuple(pool[start : start + size])


def engine_bytes(model: ModelRef, arm: ArmSpec) -> int | None:
    """Bytes of weights and KV pool of an arm's engine, over all its GPUs; None where files or flags do not say."""
    folder = Path(model.path)
    weights = _weights(folder)
    tokens = value_of("--max-total-tokens", arm.flags)
    if not weights or tokens is None or not (folder / "config.json").is_file():
        return None
    config = json.loads((folder / "config.json").read_text())
    if any(value_of(flag, arm.flags) is not None for flag in OTHER_WEIGHTS) or _is_wide(config):
        return None
    of_token = kv_bytes_per_token(config.get("text_config", config), value_of("--kv-cache-dtype", arm.flags))
    return None if of_token is None else sum(file.stat().st_size for file in weights) + int(tokens) * of_token


def _weights(folder: Path) -> list[Path]:
    """The files that SGLang loads: those of the index, since some models hold the same weights in two layouts."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = set(json.loads(index.read_text())["weight_map"].values())
        return [file for name in sorted(names) if (file := folder / name).is_file()]
    return next((found for pattern in WEIGHTS if (found := list(folder.glob(pattern)))), [])


def _is_wide(config: dict[str, object]) -> bool:
    """Whether weights are stored in four bytes, of which SGLang loads two."""
    return "float32" in (config.get("torch_dtype"), config.get("dtype"))


def kv_bytes_per_token(config: dict[str, object], dtype: str | None) -> int | None:
    """Bytes of K and V of one token over all layers, by a model's ``config.json``; None where it does not say."""

    def whole(*names: str) -> int | None:
        return next((value for name in names if isinstance(value := config.get(name), int)), None)

    if any(config.get(name) for name in OTHER_CACHES):
        return None
    layers, heads = whole("num_hidden_layers"), whole("num_attention_heads")
    kv_heads, size = whole("num_key_value_heads", "num_attention_heads"), whole("head_dim")
    hidden = whole("hidden_size")
    if size is None and hidden and heads:
        size = hidden // heads
    if not layers or not kv_heads or not size:
        return None
    return 2 * layers * kv_heads * size * (1 if (dtype or "").startswith("fp8") else 2)


def chosen_layout(model: ModelRef, arms: ArmPair, device_bytes: int | None) -> tuple[Layout, str]:
    """``co_resident``, or ``alternating`` where two engines do not fit on one device set; and why, for the plan.

    Args:
        model: The model with its files.
        arms: Both arms; the larger engine counts.
        device_bytes: Memory of one GPU; None where there is none to ask.
    """
    sizes = [engine_bytes(model, arm) for arm in (arms.baseline, arms.candidate)]
    known = [size for size in sizes if size is not None]
    if device_bytes is None or len(known) < len(sizes):
        return "co_resident", "the default: how much of a GPU's memory two engines need is not known here"
    needed, share = max(known) / gpus_of_engine(arms), MEMORY_FRACTIONS["cuda"][0]
    sentence = (
        f"by its files and flags weights and KV pool of one engine take at least {needed / GIB:.1f} GiB of each of its "
        f"GPUs, and of two that share it the first gets {share:.0%} of {device_bytes / GIB:.1f} GiB"
    )
    if needed <= share * device_bytes:
        return "co_resident", f"two engines fit beside each other: {sentence}"
    return "alternating", f"two engines do not fit beside each other: {sentence}"
