"""Every call site of the decode kernel in the installed SGLang's TRTLLM MHA backend, run once each on a stage.

    python -m tests.backends.trtllm_sites [WHEEL]

prints, as JSON, what the recorder saw: for versions of SGLang that are not installed, in a process of their own.
"""

import json
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers.models.auto import configuration_auto

from equipoise_backends.settings import Arm
from tests.backends.trtllm_stage import Stage, staged


def decode(stage: Stage, backend: Any) -> None:
    """Plain decode."""
    backend.forward_metadata = stage.metadata(3)
    stage.run(backend, "DECODE", 3, decode=True)


def encoder_only_verify(stage: Stage, backend: Any) -> None:
    """Target verify of a bidirectional layer: single-token rows over the whole window."""
    rows = {"encoder_cache_seqlens": torch.full((6,), 5, dtype=torch.int32)}
    table = {"encoder_page_table": torch.zeros((6, 4), dtype=torch.int32)}
    backend.forward_metadata = stage.metadata(2, max_seq_len_q=3, **rows, **table)
    layer = stage.layer(attn_type=stage.module.AttentionType.ENCODER_ONLY)
    stage.run(backend, "TARGET_VERIFY", 6, layer=layer)


def ragged_verify(stage: Stage, backend: Any) -> None:
    """Target verify of unequal windows."""
    lengths = torch.tensor([0, 2, 6], dtype=torch.int32)
    backend.forward_metadata = stage.metadata(2, max_seq_len_q=4, cu_seqlens_q=lengths, is_ragged_verify=True)
    stage.run(backend, "TARGET_VERIFY", 6)


def verify(stage: Stage, backend: Any) -> None:
    """Plain target verify."""
    backend.forward_metadata = stage.metadata(2, max_seq_len_q=3)
    stage.run(backend, "TARGET_VERIFY", 6)


def draft_extend(stage: Stage, backend: Any) -> None:
    """Draft extend."""
    backend.forward_metadata = stage.metadata(2, max_seq_len_q=3)
    stage.run(backend, "DRAFT_EXTEND_V2", 6)


def mixed_tail(stage: Stage, backend: Any) -> None:
    """The decode tail of a mixed chunk, inside ``forward_extend``; the prefill head stays the prefill kernel's."""
    backend.forward_metadata = stage.metadata(3, max_seq_len_q=4, mixed_prefill_reqs=1, mixed_prefill_tokens=4)
    stage.run(backend, "MIXED", 6)


def split_decode(stage: Stage, backend: Any) -> None:
    """Decode split by length into two calls."""
    backend.decode_seq_len_splits = 2
    decode(stage, backend)
    backend.decode_seq_len_splits = 1


COMMON: dict[str, tuple[Callable[[Stage, Any], None], int]] = {
    "decode": (decode, 1),
    "encoder_only_verify": (encoder_only_verify, 1),
    "ragged_verify": (ragged_verify, 1),
    "verify": (verify, 1),
    "draft_extend": (draft_extend, 1),
}
"""Call sites of every version, and how many calls of the decode kernel each makes."""


def sites(stage: Stage) -> dict[str, tuple[Callable[[Stage, Any], None], int]]:
    """The call sites of the imported version on this GPU."""
    found = dict(COMMON)
    if hasattr(stage.module.TRTLLMHAAttnBackend, "_run_fixed_q_len_decode"):
        found["split_decode"] = (split_decode, 2)
    # SM90 prefills mixed chunks otherwise, so the tail never reaches the decode kernel there.
    if "mixed_prefill_reqs" in stage.module.TRTLLMMHAMetadata.__dataclass_fields__ and not stage.recorder.sm90:
        found["mixed_tail"] = (mixed_tail, 1)
    return found


def seen(arm: Arm, *, sm90: bool) -> dict[str, Any]:
    """Run every site on one backend and tell whose counters and scales each call got."""
    with staged(arm, sm90=sm90, draft_tokens=3) as stage:
        backend = stage.backend()
        own = backend._multi_ctas_kv_counter_buffer if arm is not Arm.UPSTREAM else None
        found: dict[str, Any] = {"sites": {}, "bytes": None if own is None else own.numel()}
        for name, (run, _) in sites(stage).items():
            before = len(stage.recorder.decode)
            run(stage, backend)
            calls = stage.recorder.decode[before:]
            found["sites"][name] = [
                "own"
                if own is not None and call.get("multi_ctas_kv_counter_buffer") is own
                else "none"
                if call.get("multi_ctas_kv_counter_buffer") is None
                else "other"
                for call in calls
            ]
        default = backend.scratch.default_scale() if arm is Arm.PERSISTENT else None
        written = [scale for pair in stage.recorder.scales for scale in pair]
        found["default_scales"] = sum(
            default is not None and scale.data_ptr() == default.data_ptr() for scale in written
        )
        found["scales"] = len(written)
        found["prefill_with_counters"] = sum("multi_ctas_kv_counter_buffer" in call for call in stage.recorder.prefill)
        found["treatment"] = stage.arm.describe() if stage.arm else None
        found["kernel_path"] = stage.arm.process.kernel_path if stage.arm else None
        return found


def import_from(wheel: Path, folder: Path) -> None:
    """Let ``import sglang`` find the version in a wheel, beside the newer libraries of this environment."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    sys.path.insert(0, str(folder))
    registry = configuration_auto._LazyConfigMapping
    register = registry.register
    # transformers has meanwhile got model types of its own under the names that old versions register.
    registry.register = lambda self, key, value, exist_ok=False: register(self, key, value, exist_ok=True)


def main() -> int:
    """Print what every arm shows on both kinds of GPU, with the installed SGLang or with that of a wheel."""
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            import_from(Path(sys.argv[1]), Path(folder))
        found = {f"{arm.value} {gpu}": seen(arm, sm90=gpu == "sm90") for arm in Arm for gpu in ("sm90", "sm100")}
        sys.stdout.write(json.dumps({"sglang": version("sglang"), **found}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
