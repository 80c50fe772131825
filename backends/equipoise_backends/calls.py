"""What the TRTLLM MHA calls of one engine process really got: tensors by identity, and what was made beside them.

Owns the counts and what follows from them for the attestation. It changes no call; `trtllm` does that. All counting
happens while Python runs a layer (warm-up, capture, eager steps), never in the replay of a graph.
"""

from collections import Counter
from collections.abc import Mapping

import torch

from equipoise_backends.scratch import Observation

COUNTERS_UNUSED = "not exercised: {path} returns before it looks at the counter buffer"
SCALES_UNUSED = "not exercised: no fused FP8 cache write of a layer without checkpoint scales was seen"
NOTHING_SEEN = "not exercised: no decode kernel was called"


class CallObservation(Observation):
    """Decode-kernel calls and fused FP8 cache writes of one backend.

    A tensor that was not passed is None here: the callee makes one for that call alone.

    Args:
        memory: The backend's own counter buffer, None where it owns none.
        scale: The backend's own default scale, None where it owns none.

    Attributes:
        sites: Decode-kernel calls by call site.
        own_counters: Calls that got the backend's own buffer; ``other_counters`` got none or another one.
        own_scales: Scales written with that were the backend's default; ``other_scales`` were neither that nor a
            checkpoint's.
        checkpoint_scales: Scales that came with the checkpoint.
    """

    def __init__(self, memory: torch.Tensor | None, scale: torch.Tensor | None) -> None:
        super().__init__()
        self._memory = memory
        self._scale = scale
        self.sites: Counter[str] = Counter()
        self.own_counters = 0
        self.other_counters = 0
        self.own_scales = 0
        self.other_scales = 0
        self.checkpoint_scales = 0

    def note_decode(self, site: str, counters: torch.Tensor | None) -> None:
        """Record one call of the decode kernel."""
        self.calls += 1
        self.sites[site] += 1
        if counters is not None and counters is self._memory:
            self.own_counters += 1
        else:
            self.other_counters += 1

    def note_write(self, passed: torch.Tensor | None, checkpoint: torch.Tensor | None) -> None:
        """Record the K or the V scale of one fused cache write, and the layer's own scale."""
        if checkpoint is not None and passed is checkpoint:
            self.checkpoint_scales += 1
        elif passed is not None and passed is self._scale:
            self.own_scales += 1
        else:
            self.other_scales += 1

    @property
    def scale_shared(self) -> bool | None:
        """Whether every write without a checkpoint scale used the one default. None before the first such write."""
        return self.other_scales == 0 if self.own_scales + self.other_scales else None

    @property
    def counters_reused(self) -> bool | None:
        """Whether every decode call got the one buffer. None before the first call."""
        return self.other_counters == 0 if self.calls else None


class ProcessCalls:
    """What FlashInfer and the fused write did by themselves, in all backends of the process.

    Attributes:
        paths: Decode-kernel calls by the kernel family that served them: ``xqa`` or ``trtllm-gen``.
        counters_made: Counter buffers that FlashInfer allocated and zeroed because a call brought none.
        scales_made: Scale tensors that the fused write filled because it was given none.
    """

    def __init__(self) -> None:
        self.paths: Counter[str] = Counter()
        self.counters_made = 0
        self.scales_made = 0

    @property
    def kernel_path(self) -> str | None:
        """The kernel families that ran, joined by "+"; None when none did."""
        return "+".join(sorted(self.paths)) or None


def describe_calls(process: ProcessCalls, observed: Mapping[str, CallObservation]) -> dict[str, object]:
    """The attestation's evidence of the treatment.

    Args:
        process: What the libraries did by themselves.
        observed: Observations of each backend of the process, by a name.

    Returns:
        Counts, and for both halves of the treatment whether this hardware and model exercise it, with the reason.
    """
    seen = observed.values()
    scaled = sum(one.own_scales + one.other_scales for one in seen)
    return {
        "kernel_calls": dict(process.paths),
        "counters_made_per_call": process.counters_made,
        "scales_made_per_call": process.scales_made,
        "backends": {
            name: {
                "decode_calls": dict(one.sites),
                "own_counters": one.own_counters,
                "other_counters": one.other_counters,
                "own_scales": one.own_scales,
                "other_scales": one.other_scales,
                "checkpoint_scales": one.checkpoint_scales,
            }
            for name, one in observed.items()
        },
        "exercised": {
            "counters": _counter_half(process),
            "scales": "exercised" if scaled else SCALES_UNUSED,
        },
    }


def _counter_half(process: ProcessCalls) -> str:
    if "trtllm-gen" in process.paths:
        return "exercised"
    return COUNTERS_UNUSED.format(path=process.kernel_path) if process.paths else NOTHING_SEEN
