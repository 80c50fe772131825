"""Who owns the counters and the default K/V scales of a decode call: the one place of policy for every arm.

Owns both policies, the sizing rule, the observation of what calls really got, and the guard check. It knows neither
SGLang nor attention: a backend asks for scratch and says that it is about to use it.
"""

import time
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch

LATE_RESET_WAIT_S = 0.05
"""How long a check waits before it looks again at counters that were not zero: a kernel that resets them after its
launch has ended is another fault than one that never does."""
ALIGNMENT_BYTES = 16
"""What FlashInfer 0.7.2 asks of a counter buffer (``flashinfer.utils._check_workspace_buffer_alignment``)."""


class ScratchError(Exception):
    """Base of the ways in which persistent scratch can be wrong. ``state`` is the word of the attestation."""

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


class LateResetError(ScratchError):
    """Counters became zero only some time after the last launch had ended: a launch in between would have met them."""

    state = "late_reset"

    def __init__(self, dirty: int, total: int) -> None:
        super().__init__(
            f"late reset: {dirty} of {total} counters were not zero after the last launch had ended, and were "
            f"{LATE_RESET_WAIT_S * 1000:g} ms later"
        )


class DirtySemaphoresError(ScratchError):
    """XQA left semaphores behind in the head of its workspace, where the next launch expects zeros."""

    state = "semaphores"

    def __init__(self, dirty: int, total: int) -> None:
        super().__init__(f"dirty semaphores: {dirty} of {total} words at the head of the workspace are not zero")


class UnusableMemoryError(ScratchError):
    """Memory for counters that cannot serve: misaligned, too small, or made while a graph was being captured."""

    state = "unusable"


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


class HeldMemory(NamedTuple):
    """Persistent tensors that the host made: flat zeroed counters of any integer type, and a float32 ``[1]`` of 1.0."""

    counters: torch.Tensor
    scale: torch.Tensor


def as_counters(memory: torch.Tensor, sizing: Sizing) -> torch.Tensor:
    """A view of flat memory as int32 counters ``[sizing.rows, sizing.heads]``.

    Raises:
        UnusableMemoryError: The memory is misaligned or too small, or a graph is being captured.
    """
    if memory.is_cuda and torch.cuda.is_current_stream_capturing():
        raise UnusableMemoryError("counters made while a graph is captured would be freed or reused with its pool")
    if memory.data_ptr() % ALIGNMENT_BYTES:
        raise UnusableMemoryError(f"counters at {memory.data_ptr():#x} are not aligned to {ALIGNMENT_BYTES} bytes")
    total = sizing.rows * sizing.heads
    counters = memory.view(torch.int32)
    if counters.numel() < total:
        raise UnusableMemoryError(f"{counters.numel()} counters cannot hold {sizing.rows} rows of {sizing.heads} heads")
    return counters[:total].view(sizing.rows, sizing.heads)


def nonzero_after_launches(memory: torch.Tensor) -> int:
    """How many elements are not zero, once every launch on the device has ended.

    Launches of other streams may be under way when this is called, and their counters are rightly not zero.
    """
    if memory.is_cuda:
        torch.cuda.synchronize(memory.device)
    return int(torch.count_nonzero(memory))


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

    Args:
        sizing: What the buffer must hold.
        device: Where it lies.
        held: Memory and scale that the host made, in place of own ones.
        further_checks: What `check` verifies beside the buffer itself, each raising a `ScratchError`.

    Attributes:
        memory: What kernels get: `buffer`, or the tensor that the host made, of which `buffer` is a view.
        buffer: Int32 counters ``[sizing.rows, sizing.heads]``, zero between launches.
        observation: What calls got.
    """

    def __init__(
        self,
        sizing: Sizing,
        device: torch.device,
        *,
        held: "HeldMemory | None" = None,
        further_checks: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._sizing = sizing
        if held is None:
            self.buffer = torch.zeros((sizing.rows, sizing.heads), dtype=torch.int32, device=device)
            self.memory = self.buffer
            self._scale = torch.ones(1, dtype=torch.float32, device=device)
        else:
            self.buffer = as_counters(held.counters, sizing)
            self.memory = held.counters
            self._scale = held.scale
        # A second reference: whoever replaces `buffer` is found out, and the pinned memory is not freed meanwhile.
        self._pinned = self.buffer
        self._further_checks = further_checks
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
            LateResetError: A counter was not zero, and is now.
            DirtyCountersError: A counter is not zero and stays so.
            ScratchError: A further check failed.
        """
        if self.buffer is not self._pinned:
            raise ReplacedBufferError(self._pinned.data_ptr(), self.buffer.data_ptr())
        held = Sizing(*self.buffer.shape)
        if held.rows < self._sizing.rows or held.heads < self._sizing.heads:
            raise CapacityError(self._sizing, held)
        dirty = nonzero_after_launches(self.buffer)
        if dirty:
            time.sleep(LATE_RESET_WAIT_S)
            kind = DirtyCountersError if nonzero_after_launches(self.buffer) else LateResetError
            raise kind(dirty, self.buffer.numel())
        for further in self._further_checks:
            further()
