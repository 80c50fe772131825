"""Presets: pairs of arms that differ in one thing."""

from collections.abc import Sequence

from equipoise_evals.model import ArmPair, ArmSpec
from equipoise_service.engines.environment import Device

CPU_FLAGS = (
    "--device", "cpu", "--attention-backend", "torch_native", "--dtype", "float32", "--sleep-on-idle",
    "--disable-radix-cache", "--random-seed", "1", "--max-total-tokens", "16384",
)  # fmt: skip
"""``--sleep-on-idle`` because an idle engine otherwise spins a core; float32 because bfloat16 breaks A/A identity."""

CUDA_FLAGS = (
    "--prefill-attention-backend", "triton", "--decode-attention-backend", "trtllm_mha", "--kv-cache-dtype",
    "fp8_e4m3", "--page-size", "64", "--disable-radix-cache", "--cuda-graph-backend-prefill", "disabled",
    "--sleep-on-idle", "--random-seed", "1", "--max-total-tokens", "65536",
)  # fmt: skip
"""Decode-only TRTLLM MHA: its prefill is refused below SM100 by SGLang 0.5.17, and decoding is what is compared."""

CPU_ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
"""One thread per engine: on two cores the spread of ABBA quads at batch 16 falls from 4.9 % to 2.3 %."""


def persistent_buffer(device: Device, batch_sizes: Sequence[int] = (1, 16)) -> ArmPair:
    """The preset ``persistent-buffer``: per-call scratch against scratch that the backend owns.

    Args:
        device: Decides the flags, the same for both arms.
        batch_sizes: Batch sizes that will be timed; graphs are captured for exactly these.
    """
    if device == "cuda":
        captured = tuple(str(batch) for batch in sorted(set(batch_sizes)))
        flags, environment = (*CUDA_FLAGS, "--cuda-graph-bs-decode", *captured), {}
    else:
        running = str(max(16, *batch_sizes))
        flags, environment = (*CPU_FLAGS, "--max-running-requests", running), dict(CPU_ENVIRONMENT)
    return ArmPair(
        baseline=ArmSpec(name="baseline", flags=flags, environment=environment, scratch="baseline"),
        candidate=ArmSpec(name="persistent", flags=flags, environment=environment, scratch="persistent"),
    )
