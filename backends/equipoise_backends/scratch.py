"""Who owns the counters and the default K/V scales of a decode call: the one place of policy for every arm.

Owns both policies, the sizing rule, the observation of what calls really got, and the guard check. It knows neither
SGLang nor attention: a backend asks for scratch and says that it is about to use it.
"""

import weakref
from typing import NamedTuple, Protocol

import torch


class ScratchError(Exception):
    """Base of the three ways in which persistent scratch can be wrong. ``state`` is the word of the attestation."""

    state = "error"


class CapacityError(ScratchError):
    """A call needs more counters than there are."""

    state = "capacity"

    def __init__(self, needed: "Sizing", available: "Sizing") -> None:
        super().__init__(
            f"capacity: the counter buffer has {available.rows} rows of {available.heads} heads, the call needs "
            f"{needed.rows} rows of {needed.heads}; raise --max-running-requests to at least {needed.rows - 1}"
        )


class DirtyCountersError(ScratchError):
    """A kernel left counters behind: the self-reset contract is broken, later results are wrong."""

    state = "dirty"

    def __init__(self, dirty: int, total: int) -> None:
        super().__init__(f"dirty counters: {dirty} of {total} are not zero between launches")


class ReplacedBufferError(ScratchError):
    """The buffer is not the one whose address captured graphs write to."""

    state = "replaced"

    def __init__(self, pinned_address: int, found_address: int) -> None:
        super().__init__(
            f"replaced after capture: the counter buffer was at {pinned_address:#x} and is now at {found_address:#x}"
        )


class Sizing(NamedTuple):
    """Counters: one per row of a batch and query head."""

    rows: int
    heads: int


def persistent_sizing(max_running_requests: int, draft_tokens: int | None, heads: int) -> Sizing:
    """Size of a buffer that serves every batch the engine can run.

    ``(max_running_requests + 1) * max(1, draft_tokens or 1)`` rows, the rule of SGLang's
    ``layers/attention/trtllm_mha_backend.py`` (0.5.18 and later).

    Args:
        max_running_requests: SGLang's resolved ``--max-running-requests``.
        draft_tokens: ``speculative_num_draft_tokens``, None without speculative decoding.
        heads: Query heads (``config.num_attention_heads``).
    """
    return Sizing((max_running_requests + 1) * max(1, draft_tokens or 1), heads)


class Observation:
    """What decode calls really got, by identity of the tensors and not by what a policy intends."""

    def __init__(self) -> None:
        self.calls = 0
        self._first_counters: int | None = None
        self._first_scale: weakref.ref[torch.Tensor] | None = None
        self._counters_reused = True
        self._scale_shared = True

    def note(self, counters: torch.Tensor, k_scale: torch.Tensor, v_scale: torch.Tensor) -> None:
        """Record one decode call of one layer."""
        self.calls += 1
        if self._first_scale is None:
            # A weak reference: a strong one would keep a per-call tensor alive and so change what is observed.
            self._first_scale = weakref.ref(k_scale)
            self._first_counters = counters.data_ptr()
        first = self._first_scale()
        self._scale_shared &= k_scale is first and v_scale is first
        self._counters_reused &= counters.data_ptr() == self._first_counters

    @property
    def scale_shared(self) -> bool | None:
        """Whether all calls used one and the same tensor for K and V. None before the first call."""
        return self._scale_shared if self.calls else None

    @property
    def counters_reused(self) -> bool | None:
        """Whether all calls started at one address. None before the first call.

        True is necessary, not sufficient, for a persistent buffer: an allocator may hand out one address again.
        """
        return self._counters_reused if self.calls else None


class Scratch(Protocol):
    """What a decode backend needs from a policy."""

    observation: Observation

    def counters(self, need: Sizing) -> torch.Tensor:
        """Zeroed int32 counters ``[need.rows, need.heads]``."""

    def default_scale(self) -> torch.Tensor:
        """Float32 ``[1]`` tensor of 1.0 for a layer whose checkpoint has no scale."""

    def capacity(self) -> Sizing | None:
        """What the policy holds between calls, None when it holds nothing."""

    def counter_bytes(self) -> int | None:
        """Size of the held buffer in bytes, None when nothing is held."""

    def check(self) -> None:
        """Raise a `ScratchError` when what is held between calls is not as the contract wants it."""


class PerCallScratch:
    """The baseline arm: every call allocates and fills its own, as SGLang up to 0.5.17 makes FlashInfer do."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.observation = Observation()

    def counters(self, need: Sizing) -> torch.Tensor:
        """New counters: one ``aten::zeros``."""
        return torch.zeros((need.rows, need.heads), dtype=torch.int32, device=self._device)

    def default_scale(self) -> torch.Tensor:
        """A new scale: one ``aten::ones``. The caller asks once for K and once for V."""
        return torch.ones(1, dtype=torch.float32, device=self._device)

    def capacity(self) -> Sizing | None:
        """Nothing is held."""
        return None

    def counter_bytes(self) -> int | None:
        """Nothing is held."""
        return None

    def check(self) -> None:
        """Nothing outlives a call, so there is nothing to check."""


class PersistentScratch:
    """The persistent arm: one buffer and one scale for the life of a backend, made before any graph is captured.

    The buffer is never grown, replaced or freed: a captured graph keeps writing to its address.

    Attributes:
        buffer: Int32 counters ``[sizing.rows, sizing.heads]``, zero between launches.
        observation: What calls got.
    """

    def __init__(self, sizing: Sizing, device: torch.device) -> None:
        self._sizing = sizing
        self.buffer = torch.zeros((sizing.rows, sizing.heads), dtype=torch.int32, device=device)
        # A second reference: whoever replaces `buffer` is found out, and the pinned memory is not freed meanwhile.
        self._pinned = self.buffer
        self._scale = torch.ones(1, dtype=torch.float32, device=device)
        self.observation = Observation()

    def counters(self, need: Sizing) -> torch.Tensor:
        """The first rows of the buffer.

        Raises:
            CapacityError: The call needs more rows or heads than the buffer has.
        """
        held = Sizing(*self.buffer.shape)
        if need.rows > held.rows or need.heads > held.heads:
            raise CapacityError(need, held)
        return self.buffer[: need.rows, : need.heads]

    def default_scale(self) -> torch.Tensor:
        """The one scale that K and V of all layers share."""
        return self._scale

    def capacity(self) -> Sizing | None:
        """Size of the buffer that calls use now."""
        return Sizing(*self.buffer.shape)

    def counter_bytes(self) -> int | None:
        """Bytes of the buffer that calls use now."""
        return self.buffer.numel() * self.buffer.element_size()

    def check(self) -> None:
        """Verify the buffer between launches.

        Raises:
            ReplacedBufferError: `buffer` is another tensor than the one made at the start.
            CapacityError: The buffer has become smaller than the sizing rule wants.
            DirtyCountersError: A counter is not zero.
        """
        if self.buffer is not self._pinned:
            raise ReplacedBufferError(self._pinned.data_ptr(), self.buffer.data_ptr())
        held = Sizing(*self.buffer.shape)
        if held.rows < self._sizing.rows or held.heads < self._sizing.heads:
            raise CapacityError(self._sizing, held)
        if self.buffer.is_cuda:
            # Launches of another stream may be under way, and their counters are rightly not zero.
            torch.cuda.synchronize(self.buffer.device)
        dirty = int(torch.count_nonzero(self.buffer))
        if dirty:
            raise DirtyCountersError(dirty, self.buffer.numel())
