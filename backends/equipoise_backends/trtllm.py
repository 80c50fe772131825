"""The TRTLLM MHA arms: who owns counters and default scales in SGLang's ``TRTLLMHAAttnBackend``, 0.5.17 to 0.5.23.

The class and its name stay SGLang's; only methods are hooked, because draft, draft-extend and multi-step backends
construct the class directly. Where the arms differ:

* ``baseline``: from 0.5.18 on the two tensors that upstream gives each backend are taken away after ``__init__``, so
  that FlashInfer allocates counters and the fused write fills scales in every call, as in 0.5.17.
* ``persistent``: each backend gets its own counter buffer, made by SGLang's helper outside any capture, and shares the
  default scale. Every decode-kernel call made while the backend is at work gets the buffer, also where the version's
  call site does not pass one.
* ``upstream``: nothing is changed.

All three pass through the same hooks, and none of them runs while a graph is replayed.
"""

import contextlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

import torch

from equipoise_backends.calls import CallObservation, ProcessCalls, describe_calls
from equipoise_backends.host import ForwardBatch, Layer, ModelRunner, TrtllmBackend
from equipoise_backends.names import BACKEND, DECODE_KERNEL, FUSED_WRITE, HELPER_MODULE
from equipoise_backends.scratch import (
    DirtySemaphoresError,
    HeldMemory,
    PerCallScratch,
    PersistentScratch,
    ReplacedBufferError,
    Scratch,
    Sizing,
    nonzero_after_launches,
    persistent_sizing,
)
from equipoise_backends.settings import Arm

Output = TypeVar("Output")

SCALE_NAME = "trtllm_mha_default_kv_scale"
"""The name under which upstream keeps its default scale in ``get_buffer``, from 0.5.18 on."""
SEMAPHORE_BYTES = 8 * 1024 * 1024
"""Head of the workspace that ``xqa_batch_decode_with_kv_cache`` uses as semaphores; zero before every launch."""


class Equipment(NamedTuple):
    """What a backend carries of ours: its scratch policy, None in the upstream arm, and what its calls got."""

    scratch: Scratch | None
    observation: CallObservation


class AtWork(NamedTuple):
    """What the backend whose layer is being run carries, the call site, and the layer."""

    equipment: Equipment
    site: str
    layer: Layer


class TrtllmMha:
    """The arm in all TRTLLM MHA backends of one process; its methods are the hooks, listed by `hooks`.

    Args:
        arm: The arm.

    Attributes:
        process: What the libraries did by themselves.
    """

    def __init__(self, arm: Arm) -> None:
        self._arm = arm
        self._stack: list[AtWork] = []
        self._observed: dict[str, CallObservation] = {}
        self._scratches: list[Scratch] = []
        self.process = ProcessCalls()

    def hooks(self) -> list[tuple[str, Callable[..., object], str]]:
        """Target, hook and kind, for SGLang's hook registry."""
        return [
            (f"{BACKEND}.__init__", self.after_init, "AFTER"),
            (f"{BACKEND}.forward_decode", self.around_forward_decode, "AROUND"),
            (f"{BACKEND}.forward_extend", self.around_forward_extend, "AROUND"),
            (DECODE_KERNEL, self.around_decode_kernel, "AROUND"),
            ("flashinfer.decode.xqa_batch_decode_with_kv_cache", self.before_xqa, "BEFORE"),
            ("flashinfer.decode.get_trtllm_gen_fmha_module", self.before_trtllm_gen, "BEFORE"),
            ("flashinfer.utils._get_trtllm_gen_multi_ctas_kv_counter_buffer", self.before_counters_made, "BEFORE"),
            (f"{FUSED_WRITE}.fused_fp8_qkv_kv_cache", self.around_fused_write, "AROUND"),
            (f"{FUSED_WRITE}._scale_to_f32", self.before_scale, "BEFORE"),
        ]

    def after_init(
        self, _result: None, backend: TrtllmBackend, model_runner: ModelRunner, *_args: object, **_kwargs: object
    ) -> None:
        """AFTER ``TRTLLMHAAttnBackend.__init__``: give the backend what the arm gives it."""
        equipment = self._equipment(backend, model_runner)
        backend.equipoise = equipment
        role = "draft" if model_runner.is_draft_worker else "target"
        self._observed[f"{len(self._observed)}:{role}"] = equipment.observation
        if equipment.scratch is not None:
            equipment.scratch.observation = equipment.observation
            backend.scratch = equipment.scratch
            self._scratches.append(equipment.scratch)

    def around_forward_decode(
        self, original: Callable[..., Output], backend: TrtllmBackend, *args: object, **kwargs: object
    ) -> Output:
        """AROUND ``forward_decode``: the backend is at work."""
        with self._at_work("forward_decode", backend, args, kwargs):
            return original(backend, *args, **kwargs)

    def around_forward_extend(
        self, original: Callable[..., Output], backend: TrtllmBackend, *args: object, **kwargs: object
    ) -> Output:
        """AROUND ``forward_extend``, which calls the decode kernel for verify, draft extend and mixed chunks."""
        with self._at_work("forward_extend", backend, args, kwargs):
            return original(backend, *args, **kwargs)

    def around_decode_kernel(self, original: Callable[..., Output], *args: object, **kwargs: object) -> Output:
        """AROUND FlashInfer's decode kernel: add the buffer of the backend at work where the call brings none."""
        if not self._stack:
            return original(*args, **kwargs)
        (scratch, observation), site, _layer = self._stack[-1]
        if isinstance(scratch, PersistentScratch):
            scratch.counters(_need(kwargs))
            if kwargs.get("multi_ctas_kv_counter_buffer") is None:
                kwargs["multi_ctas_kv_counter_buffer"] = scratch.memory
        observation.note_decode(site, _tensor(kwargs.get("multi_ctas_kv_counter_buffer")))
        return original(*args, **kwargs)

    def around_fused_write(self, original: Callable[..., Output], *args: object, **kwargs: object) -> Output:
        """AROUND the fused FP8 cache write: the default scale for layers without checkpoint scales."""
        if not self._stack:
            return original(*args, **kwargs)
        (scratch, observation), _site, layer = self._stack[-1]
        for name, checkpoint in (("k_scale", layer.k_scale), ("v_scale", layer.v_scale)):
            if kwargs.get(name) is None and isinstance(scratch, PersistentScratch):
                kwargs[name] = scratch.default_scale()
            observation.note_write(_tensor(kwargs.get(name)), checkpoint)
        return original(*args, **kwargs)

    def before_xqa(self, *_args: object, **_kwargs: object) -> None:
        """BEFORE FlashInfer's XQA kernel."""
        self.process.paths["xqa"] += bool(self._stack)

    def before_trtllm_gen(self, *_args: object, **_kwargs: object) -> None:
        """BEFORE FlashInfer fetches the TRTLLM-GEN module, which it does in every call on that path."""
        self.process.paths["trtllm-gen"] += bool(self._stack)

    def before_counters_made(self, *_args: object, **_kwargs: object) -> None:
        """BEFORE FlashInfer allocates and zeroes a counter buffer of its own."""
        self.process.counters_made += bool(self._stack)

    def before_scale(self, scale: torch.Tensor | None, *_args: object, **_kwargs: object) -> None:
        """BEFORE the fused write turns a scale into float32, or fills a new one."""
        self.process.scales_made += scale is None and bool(self._stack)

    def held(self) -> "AllScratch | None":
        """The scratch of every backend as one, None in the upstream arm."""
        return AllScratch(self._scratches) if self._scratches else None

    def describe(self) -> dict[str, object]:
        """Evidence for the attestation."""
        return describe_calls(self.process, self._observed)

    @contextlib.contextmanager
    def _at_work(
        self, method: str, backend: TrtllmBackend, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> Iterator[None]:
        layer, batch = _layer_and_batch(*args, **kwargs)  # type: ignore[arg-type]  # SGLang's own arguments
        self._stack.append(AtWork(backend.equipoise, f"{method}:{batch.forward_mode.name}", layer))
        try:
            yield
        finally:
            self._stack.pop()

    def _equipment(self, backend: TrtllmBackend, model_runner: ModelRunner) -> Equipment:
        if self._arm is Arm.UPSTREAM:
            # What upstream gives it, nothing up to 0.5.17.
            counters = getattr(backend, "_multi_ctas_kv_counter_buffer", None)
            return Equipment(None, CallObservation(counters, getattr(backend, "_default_kv_scale", None)))
        if self._arm is Arm.BASELINE:
            backend._multi_ctas_kv_counter_buffer = backend._default_kv_scale = None
            return Equipment(PerCallScratch(torch.device(backend.device)), CallObservation(None, None))
        held = make_held(backend, model_runner)
        backend._multi_ctas_kv_counter_buffer, backend._default_kv_scale = held
        return Equipment(persistent_scratch(backend, model_runner, held), CallObservation(held.counters, held.scale))


class AllScratch:
    """The scratch of all backends of a process, for the guard."""

    def __init__(self, scratches: list[Scratch]) -> None:
        self._scratches = scratches
        self.observation = scratches[0].observation

    def capacity(self) -> Sizing | None:
        """Of the first backend, which is the target's."""
        return self._scratches[0].capacity()

    def check(self) -> None:
        """Raise the first `ScratchError`."""
        for scratch in self._scratches:
            scratch.check()


def buffer_sizing(backend: TrtllmBackend, model_runner: ModelRunner) -> Sizing:
    """Rows and heads that a backend's buffer serves: the sizing rule, at least the 8,192 rows of SGLang's helper."""
    rule = persistent_sizing(
        model_runner.max_running_requests,
        backend.speculative_num_draft_tokens,
        model_runner.model_config.num_attention_heads,
    )
    floor = pkgutil.resolve_name(f"{HELPER_MODULE}.TRTLLM_MLA_MAX_BATCH_SIZE")
    return rule._replace(rows=max(floor, rule.rows))


def make_held(backend: TrtllmBackend, model_runner: ModelRunner) -> HeldMemory:
    """A counter buffer by SGLang's own helper, zeroed, and the scale that all backends of the process share."""
    device = torch.device(backend.device)
    sizing = buffer_sizing(backend, model_runner)
    make = pkgutil.resolve_name(f"{HELPER_MODULE}.make_persistent_multi_ctas_kv_counter_buffer")
    get_buffer = pkgutil.resolve_name("sglang.srt.runtime_context.get_buffer")
    return HeldMemory(
        make(device, num_q_heads=sizing.heads, max_batch_size=sizing.rows),
        get_buffer(SCALE_NAME, lambda: torch.ones(1, dtype=torch.float32, device=device)),
    )


def persistent_scratch(backend: TrtllmBackend, model_runner: ModelRunner, held: HeldMemory) -> PersistentScratch:
    """The policy around held memory, with the checks of this backend."""

    def check_attribute() -> None:
        now = backend._multi_ctas_kv_counter_buffer
        if now is not held.counters:
            raise ReplacedBufferError(held.counters.data_ptr(), 0 if now is None else now.data_ptr())

    def check_semaphores() -> None:
        semaphores = backend.workspace_buffer[:SEMAPHORE_BYTES].view(torch.int32)
        dirty = nonzero_after_launches(semaphores)
        if dirty:
            raise DirtySemaphoresError(dirty, semaphores.numel())

    # XQA never writes the counters; what it leaves behind between launches are its semaphores.
    checks = (check_attribute, check_semaphores) if backend.is_xqa_impl else (check_attribute,)
    sizing = buffer_sizing(backend, model_runner)
    return PersistentScratch(sizing, held.counters.device, held=held, further_checks=checks)


def _need(call: Mapping[str, object]) -> Sizing:
    """Rows and heads that a decode-kernel call needs, by the rule of FlashInfer's wrapper."""
    query, ragged, per_request = (
        _tensor(call["query"]),
        _tensor(call.get("cum_seq_lens_q")),
        call.get("q_len_per_req", 1),
    )
    if query is None:
        raise TypeError("the decode kernel was called without a query tensor")
    if ragged is not None:
        return Sizing(ragged.shape[0] - 1, query.shape[1])
    return Sizing(query.shape[0] // int(str(per_request)), query.shape[1])


def _tensor(value: object) -> torch.Tensor | None:
    return value if isinstance(value, torch.Tensor) else None


def _layer_and_batch(
    _q: object, _k: object, _v: object, layer: Layer, forward_batch: ForwardBatch, *_args: object, **_kwargs: object
) -> tuple[Layer, ForwardBatch]:
    return layer, forward_batch
