"""Whether a fill stands between kernels that programmatic dependent launch links. Pure: marks go in, a count comes out.

Models with the fused rope-gate kernel (Qwen3.5) launch SGLang's ``fused_fp8_qkv_kv_cache`` so that it can begin while
that kernel ends. A fill launched in between is what it then waits for.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Literal, NamedTuple

from equipoise_evals.model import FILLS, PdlLinks

FIRST, SECOND = "fused_qk_rmsnorm_rope_gate", "fused_fp8_qkv_kv_cache"
"""Parts of the kernels' names in a trace, as in SGLang 0.5.17 to 0.5.23."""


class Mark(NamedTuple):
    """The start of a kernel that matters here; in order of device, stream and time."""

    stream: str
    start_us: float
    kind: Literal["first", "fill", "second"]


def mark_of(event: Mapping[str, Any]) -> Mark | None:
    """The mark that an event of a GPU trace leaves; None for kernels that do not matter here."""
    name = str(event["name"])
    kind: Literal["first", "fill", "second"]
    if FIRST in name:
        kind = "first"
    elif SECOND in name:
        kind = "second"
    elif FILLS.search(name):
        kind = "fill"
    else:
        return None
    place = event.get("args", {})
    return Mark(f"{place.get('device')}/{place.get('stream')}", event["ts"], kind)


def links(marks: Iterable[Mark], steps: int) -> PdlLinks:
    """Pairs of linked kernels per decode step, and the fills that start between the two of a pair on their stream.

    Args:
        marks: Of all decode steps, in any order.
        steps: Decode steps that they cover, at least 1.
    """
    pairs = fills = 0
    for _, of_stream in groupby(sorted(marks), key=lambda mark: mark.stream):
        since_first: int | None = None
        for mark in of_stream:
            if mark.kind == "first":
                since_first = 0
            elif mark.kind == "fill":
                since_first = None if since_first is None else since_first + 1
            elif since_first is not None:
                pairs, fills, since_first = pairs + 1, fills + since_first, None
    return PdlLinks(links_per_step=pairs / steps, fills_between_per_step=fills / steps)
