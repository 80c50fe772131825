"""Fills between PDL-linked kernels, in traces written by hand; each expected count is read off its list of kernels."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from equipoise_evals.model import PdlLinks
from equipoise_service.engines.trace import count
from tests.fakes import traces

GATE = "_fused_qk_rmsnorm_rope_gate_kernel"
WRITE = "void (anonymous namespace)::fused_fp8_qkv_kv_cache_kernel<__nv_bfloat16, long, 8, true, true>(FusedQkvParams)"
FILL = traces.GPU_FILL
OTHER = "fmhaSm100fKernel_QkvE4m3OBfloat16H256PagedKv"


def kernels(step: int, *names: str, stream: int = 7, start: float = 0.0) -> list[dict[str, Any]]:
    """Kernels of one graph launch, one after the other on a stream."""
    return [
        {
            "ph": "X", "cat": "gpu_memset" if name.startswith("Memset") else "kernel", "name": name, "pid": 0,
            "tid": stream, "ts": 1_000.0 * step + start + place, "dur": 0.9,
            "args": {"device": 0, "stream": stream, "correlation": step},
        }
        for place, name in enumerate(names)
    ]  # fmt: skip


def links(tmp_path: Path, events: list[dict[str, Any]]) -> PdlLinks | None:
    return count(traces.write(tmp_path, "x", events), "GPU", 1).pdl


def test_fills_between_linked_kernels_are_counted_per_step(tmp_path: Path) -> None:
    # A layer of the baseline: K and V scale between the two, the counters' fill after them, where nothing is linked.
    layer = (OTHER, GATE, FILL, FILL, WRITE, FILL, OTHER)
    events = [event for step in (1, 2) for event in kernels(step, *layer * 10)]
    assert links(tmp_path, events) == PdlLinks(links_per_step=10, fills_between_per_step=20)


def test_a_memset_between_them_is_a_fill_too(tmp_path: Path) -> None:
    events = kernels(1, *(GATE, "Memset (Device)", WRITE, OTHER) * 3)
    assert links(tmp_path, events) == PdlLinks(links_per_step=3, fills_between_per_step=3)


def test_fills_elsewhere_do_not_stand_between(tmp_path: Path) -> None:
    events = kernels(1, *(FILL, GATE, WRITE, FILL, OTHER) * 10)
    assert links(tmp_path, events) == PdlLinks(links_per_step=10, fills_between_per_step=0)


@pytest.mark.parametrize("layer", [(FILL, FILL, WRITE, OTHER), (GATE, FILL, OTHER)])
def test_a_model_without_both_kernels_has_no_links(tmp_path: Path, layer: tuple[str, ...]) -> None:
    # SmolLM2 and Llama have the cache write alone; a Qwen3.5 without an FP8 KV cache has the gate alone.
    assert links(tmp_path, kernels(1, *layer * 10)) == PdlLinks(links_per_step=0, fills_between_per_step=0)


def test_other_streams_and_the_order_of_the_file_do_not_matter(tmp_path: Path) -> None:
    # The fills run on stream 9 while stream 7 is between its two kernels; one stands on stream 7 in the first layer.
    own = kernels(1, GATE, FILL, OTHER, WRITE, OTHER, *(GATE, OTHER, OTHER, WRITE, OTHER) * 3)
    beside = kernels(1, *(FILL,) * 20, stream=9, start=0.5)
    events = [event for pair in zip(reversed(own), beside, strict=True) for event in pair]
    assert links(tmp_path, events) == PdlLinks(links_per_step=4, fills_between_per_step=1)


def test_only_whole_steps_are_looked_at(tmp_path: Path) -> None:
    # The launch that the profiler caught halfway has fills between its kernels, the whole one has none.
    halfway = kernels(1, GATE, FILL, WRITE)
    assert links(tmp_path, halfway + kernels(2, *(GATE, WRITE, OTHER) * 5)) == PdlLinks(
        links_per_step=5, fills_between_per_step=0
    )


def test_fills_without_links_cannot_be_stored() -> None:
    with pytest.raises(ValidationError, match="kernels that do not run"):
        PdlLinks(links_per_step=0, fills_between_per_step=1)
