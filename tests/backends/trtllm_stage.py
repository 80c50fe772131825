"""SGLang's real TRTLLM MHA backend on a CPU, over a FlashInfer that records its calls and computes nothing.

Works with SGLang 0.5.17 to 0.5.23, whichever is imported. Replaced is only what needs a GPU or a whole engine: the
parent class's constructor, the question which GPU this is, the compiled cache write, and FlashInfer. Hooks are put on
by SGLang's own registry.
"""

import contextlib
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import torch

from equipoise_backends.names import FUSED_WRITE, HELPER_MODULE, MODULE
from equipoise_backends.settings import Arm
from equipoise_backends.trtllm import TrtllmMha

HEADS, KV_HEADS, HEAD_SIZE, PAGE = 4, 2, 16, 16
SM_COUNT = 132
OUT = torch.bfloat16


class Recorder:
    """What FlashInfer and the cache write were called with."""

    def __init__(self, *, sm90: bool) -> None:
        self.sm90 = sm90
        self.decode: list[dict[str, Any]] = []
        self.prefill: list[dict[str, Any]] = []
        self.scales: list[tuple[torch.Tensor, torch.Tensor]] = []

    def modules(self) -> dict[str, ModuleType]:
        """A package ``flashinfer`` with the names that SGLang and the plugin touch."""
        package, decode, utils, prefill = (
            ModuleType(name) for name in ("flashinfer", "flashinfer.decode", "flashinfer.utils", "flashinfer.prefill")
        )

        def counter_bytes(batch_size: int, num_qo_heads: int, sm_count: int) -> int:
            # flashinfer/utils.py, get_trtllm_gen_multi_ctas_kv_counter_bytes: int32, rounded up to 8.
            return -(-max(batch_size * num_qo_heads, sm_count) // 8) * 8 * 4

        def fresh(batch_size: int, num_qo_heads: int, sm_count: int, device: torch.device) -> torch.Tensor:
            return torch.zeros(counter_bytes(batch_size, num_qo_heads, sm_count), dtype=torch.uint8, device=device)

        def decode_kernel(query: torch.Tensor, **call: Any) -> torch.Tensor:
            # The order of flashinfer/decode.py: XQA returns before the counter buffer is looked at.
            self.decode.append({"query": query, **call})
            if self.sm90:
                return decode.xqa_batch_decode_with_kv_cache(query=query)
            decode.get_trtllm_gen_fmha_module()
            if call.get("multi_ctas_kv_counter_buffer") is None:
                utils._get_trtllm_gen_multi_ctas_kv_counter_buffer(1, query.shape[1], SM_COUNT, query.device)
            return answer(query, call)

        def answer(query: torch.Tensor, call: dict[str, Any]) -> torch.Tensor:
            out = call.get("out")
            return torch.zeros(query.shape, dtype=OUT) if out is None else out

        def prefill_kernel(query: torch.Tensor, **call: Any) -> torch.Tensor:
            self.prefill.append({"query": query, **call})
            return answer(query, call)

        vars(utils).update(
            get_device_sm_count=lambda _device: SM_COUNT,
            get_trtllm_gen_multi_ctas_kv_counter_bytes=counter_bytes,
            _get_trtllm_gen_multi_ctas_kv_counter_buffer=fresh,
        )
        vars(decode).update(
            trtllm_batch_decode_with_kv_cache=decode_kernel,
            xqa_batch_decode_with_kv_cache=lambda query: torch.zeros(query.shape, dtype=OUT),
            get_trtllm_gen_fmha_module=lambda: None,
        )
        vars(prefill).update(
            trtllm_batch_context_with_kv_cache=prefill_kernel, trtllm_fmha_v2_prefill=lambda _qkv, **call: call["out"]
        )
        vars(package).update(decode=decode, utils=utils, prefill=prefill)
        return {module.__name__: module for module in (package, decode, utils, prefill)}

    def write(self, q: Any, _k: Any, _v: Any, q_out: Any, *rest: Any) -> None:
        """The compiled cache write: only its scales matter here."""
        del q, q_out
        self.scales.append((rest[-2], rest[-1]))


class Stage(NamedTuple):
    """A stage set for one arm.

    Attributes:
        module: SGLang's module with the backend.
        recorder: What FlashInfer saw.
        arm: The arm at work; None without hooks.
    """

    module: Any
    recorder: Recorder
    arm: TrtllmMha | None

    def backend(self, runner: SimpleNamespace | None = None, **kwargs: Any) -> Any:
        """A backend, constructed by SGLang's own ``__init__``."""
        return self.module.TRTLLMHAAttnBackend(runner or make_runner(), **kwargs)

    def layer(self, **changes: Any) -> SimpleNamespace:
        """An attention layer without checkpoint scales."""
        kind = self.module.AttentionType
        return SimpleNamespace(
            **{
                "layer_id": 0,
                "tp_q_head_num": HEADS,
                "tp_k_head_num": KV_HEADS,
                "tp_v_head_num": KV_HEADS,
                "head_dim": HEAD_SIZE,
                "v_head_dim": HEAD_SIZE,
                "scaling": 0.25,
                "sliding_window_size": -1,
                "k_scale": None,
                "v_scale": None,
                "attn_type": kind.DECODER,
                **changes,
            }
        )

    def metadata(self, rows: int, **changes: Any) -> Any:
        """Metadata of a batch of ``rows`` requests."""
        lengths = torch.full((rows,), 5, dtype=torch.int32)
        cumulated = torch.arange(rows + 1, dtype=torch.int32)
        return self.module.TRTLLMMHAMetadata(
            **{
                "cache_seqlens_int32": lengths,
                "max_seq_len_q": 1,
                "cu_seqlens_q": cumulated,
                "cu_seqlens_k": cumulated * 5,
                "page_table": torch.zeros((rows, 4), dtype=torch.int32),
                **changes,
            }
        )

    def run(self, backend: Any, mode: str, tokens: int, *, layer: Any = None, decode: bool = False) -> None:
        """Run one layer through ``forward_decode`` or ``forward_extend`` as ``AttentionBackend.forward`` would."""
        modes = importlib.import_module("sglang.srt.model_executor.forward_batch_info").ForwardMode
        batch = SimpleNamespace(
            forward_mode=modes[mode],
            batch_size=tokens,
            out_cache_loc=torch.arange(tokens),
            _attn_output=None,
            spec_info=None,
        )
        q = torch.zeros((tokens, HEADS * HEAD_SIZE), dtype=torch.bfloat16)
        k, v = (torch.zeros((tokens, KV_HEADS, HEAD_SIZE), dtype=torch.bfloat16) for _ in range(2))
        forward = backend.forward_decode if decode else backend.forward_extend
        forward(q, k, v, layer or self.layer(), batch, save_kv_cache=True)


def make_runner(**changes: Any) -> SimpleNamespace:
    """A model runner of an engine with an FP8 KV cache."""
    pool = SimpleNamespace(
        get_kv_buffer=lambda _layer: tuple(
            torch.zeros((8 * PAGE, KV_HEADS, HEAD_SIZE), dtype=torch.float8_e4m3fn) for _ in range(2)
        )
    )
    config = {
        "context_len": 64,
        "hidden_size": 64,
        "num_attention_heads": HEADS,
        "head_dim": HEAD_SIZE,
        "v_head_dim": HEAD_SIZE,
        **changes.pop("model_config", {}),
    }
    return SimpleNamespace(
        **{
            "model_config": SimpleNamespace(**config),
            "kv_cache_dtype": torch.float8_e4m3fn,
            "dtype": OUT,
            "page_size": PAGE,
            "device": "cpu",
            "req_to_token_pool": SimpleNamespace(req_to_token=torch.zeros((4, 64), dtype=torch.int32)),
            "token_to_kv_pool": pool,
            "token_to_kv_pool_allocator": SimpleNamespace(get_kvcache=lambda: pool),
            "model": SimpleNamespace(modules=list),
            "server_args": SimpleNamespace(speculative_eagle_topk=1),
            "spec_algorithm": SimpleNamespace(is_frozen_kv_mtp=lambda: False),
            "is_draft_worker": False,
            "max_running_requests": 16,
            "prefill_attention_backend_str": "triton",
            "decode_attention_backend_str": "trtllm_mha",
            **changes,
        }
    )


@contextlib.contextmanager
def staged(arm: Arm | None, *, sm90: bool, draft_tokens: int | None = None) -> Iterator[Stage]:
    """Set the stage, put the arm's hooks on, and take everything away again."""
    recorder = Recorder(sm90=sm90)
    # SGLang is imported first: it looks for FlashInfer's installation, which the recorder is not.
    module, helper, write = map(importlib.import_module, (MODULE, HELPER_MODULE, FUSED_WRITE))
    with contextlib.ExitStack() as stack:
        stack.enter_context(_changed(sys.modules, recorder.modules()))
        stack.enter_context(_changed(vars(module), _answers(recorder, draft_tokens)))
        stack.enter_context(_changed(vars(helper), {"flashinfer": sys.modules["flashinfer"]}))
        compiled = SimpleNamespace(fused_fp8_qkv_kv_cache=recorder.write)
        known = {"_jit_fused_fp8_qkv_kv_cache_module": lambda *_: compiled, "is_arch_support_pdl": lambda: False}
        stack.enter_context(_changed(vars(write), known))
        _replace_parents(stack, module)
        trtllm = None if arm is None else TrtllmMha(arm)
        if trtllm is not None:
            stack.enter_context(_hooked(trtllm))
        yield Stage(module, recorder, trtllm)


def _answers(recorder: Recorder, draft_tokens: int | None) -> dict[str, Any]:
    """What the module asks of a GPU and of a running engine, under the names of every version."""
    spec = SimpleNamespace(speculative_num_draft_tokens=draft_tokens, speculative_eagle_topk=1)
    return {
        "flashinfer": sys.modules["flashinfer"],
        "get_spec": lambda: spec,
        "get_platform": lambda: SimpleNamespace(is_sm90=recorder.sm90, is_sm120=False),
        "is_sm90_supported": lambda: recorder.sm90,
        "is_sm120_supported": lambda: False,
        "is_cp_active": lambda _batch: False,
        "is_cp_v2_active": lambda _batch: False,
        "DEFAULT_WORKSPACE_SIZE_MB": 16,
    }


def _replace_parents(stack: contextlib.ExitStack, module: Any) -> None:
    access = SimpleNamespace(kind=module.KVCacheAttentionAccessKind.PLAIN, scale_recipe=None)

    def init(self: Any, model_runner: Any, *_args: Any, **_kwargs: Any) -> None:
        self.kv_cache_quant_method = SimpleNamespace(resolve_attention_access=lambda *_: access)
        self.token_to_kv_pool = model_runner.token_to_kv_pool
        self.use_sliding_window_kv_pool = False
        self._swa_kv_pool = None
        self.kv_index_translator = SimpleNamespace(is_translating=False)

    def init_steps(self: Any, _model_runner: Any, _topk: int, speculative_num_steps: int) -> None:
        self.speculative_num_steps = speculative_num_steps
        self.attn_backends = [None] * (speculative_num_steps - 1)
        self.kv_indptr = [None] * (speculative_num_steps - 1)
        self.kv_last_page_len = None

    for parent, replacement in (("FlashInferAttnBackend", init), ("FlashInferMultiStepDraftBackend", init_steps)):
        kind = getattr(module, parent)
        original = kind.__init__
        kind.__init__ = replacement
        stack.callback(setattr, kind, "__init__", original)


@contextlib.contextmanager
def _hooked(trtllm: TrtllmMha) -> Iterator[None]:
    registry = importlib.import_module("sglang.srt.plugins.hook_registry")
    registry.HookRegistry.reset()
    places = []
    for target, hook, kind in trtllm.hooks():
        owner, _, name = target.rpartition(".")
        place = pkgutil.resolve_name(owner)
        places.append((place, name, getattr(place, name)))
        registry.HookRegistry.register(target, hook, registry.HookType[kind])
    registry.HookRegistry.apply_hooks()
    applied = set(registry.HookRegistry._patched)
    try:
        missing = {target for target, _, _ in trtllm.hooks()} - applied
        if missing:
            raise AssertionError(f"SGLang's registry did not apply {sorted(missing)}")
        yield
    finally:
        for place, name, original in places:
            setattr(place, name, original)
        registry.HookRegistry.reset()


@contextlib.contextmanager
def _changed(names: dict[str, Any], values: dict[str, Any]) -> Iterator[None]:
    before = {name: names[name] for name in values if name in names}
    names.update(values)
    try:
        yield
    finally:
        for name in values:
            if name in before:
                names[name] = before[name]
            else:
                del names[name]
