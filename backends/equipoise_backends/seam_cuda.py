"""Internals of SGLang and FlashInfer that the TRTLLM MHA arms touch: a part of the list in `seam`."""

from equipoise_backends.names import BACKEND, DECODE_KERNEL, FUSED_WRITE, HELPER_MODULE, MODULE
from equipoise_backends.requirement import Requirement

_LAYER = ("self", "q", "k", "v", "layer", "forward_batch", "save_kv_cache")

CUDA = (
    Requirement(f"{BACKEND}.__init__", "AFTER hook: counters and scale by the arm", ("self", "model_runner"), own=True),
    Requirement(f"{BACKEND}.forward_decode", "AROUND hook: the backend at work", _LAYER, own=True),
    Requirement(f"{BACKEND}.forward_extend", "AROUND hook: the backend at work", _LAYER, own=True),
    Requirement(
        BACKEND,
        "reads workspace, kernel family and draft tokens; its calls go through flashinfer.decode",
        attributes=(
            "self.device",
            "self.workspace_buffer",
            "self.is_xqa_impl",
            "self.speculative_num_draft_tokens",
            f"{DECODE_KERNEL}(",
        ),
    ),
    Requirement(
        BACKEND,
        "the baseline arm takes both tensors away, the persistent arm replaces them",
        attributes=(
            "multi_ctas_kv_counter_buffer=self._multi_ctas_kv_counter_buffer",
            "self._default_kv_scale",
        ),
        since="0.5.18",
    ),
    Requirement(
        f"{BACKEND}._fused_fp8_qkv_kv_cache",
        "fetches the fused write by name at each call, with scales by keyword",
        ("self", "q", "k", "v", "layer", "forward_batch"),
        attributes=(f"from {FUSED_WRITE} import", "k_scale=", "v_scale="),
    ),
    Requirement(
        f"{MODULE}.TRTLLMHAAttnMultiStepDraftBackend.__init__",
        "constructs the hooked class for each draft step",
        ("self", "model_runner"),
        attributes=("TRTLLMHAAttnBackend(",),
    ),
    Requirement(
        f"{HELPER_MODULE}.make_persistent_multi_ctas_kv_counter_buffer",
        "makes the counter buffer",
        ("device", "num_q_heads", "max_batch_size"),
    ),
    Requirement(f"{HELPER_MODULE}.TRTLLM_MLA_MAX_BATCH_SIZE", "least rows of the counter buffer"),
    Requirement("sglang.srt.runtime_context.get_buffer", "shares the default scale", ("name", "factory")),
    Requirement(
        f"{FUSED_WRITE}.fused_fp8_qkv_kv_cache",
        "AROUND hook: the default scale",
        ("q", "k", "v", "k_cache", "v_cache", "cache_loc", "k_scale", "v_scale"),
    ),
    Requirement(f"{FUSED_WRITE}._scale_to_f32", "BEFORE hook: counts scales made per call", ("scale", "device")),
    Requirement(
        "sglang.srt.layers.radix_attention.RadixAttention",
        "a scale that is not None came with the checkpoint",
        attributes=("self.k_scale", "self.v_scale"),
    ),
    Requirement(
        "sglang.srt.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner.capture",
        "AFTER hook: guard check before the first replay",
        ("self",),
    ),
    Requirement(
        "sglang.srt.managers.scheduler.Scheduler",
        "counts batches between guard checks",
        attributes=("self.forward_ct",),
    ),
    Requirement(
        DECODE_KERNEL,
        "AROUND hook: the counter buffer",
        ("query", "kv_cache", "workspace_buffer", "block_tables", "seq_lens"),
        attributes=("multi_ctas_kv_counter_buffer", "q_len_per_req", "cum_seq_lens_q"),
    ),
    Requirement(
        "flashinfer.decode.xqa_batch_decode_with_kv_cache",
        "BEFORE hook: counts calls; its semaphores are the first 8 MiB of the workspace",
        ("query", "kv_cache", "workspace_buffer"),
        attributes=("[: 8 * 1024 * 1024]",),
    ),
    Requirement("flashinfer.decode.get_trtllm_gen_fmha_module", "BEFORE hook: counts calls of TRTLLM-GEN"),
    Requirement(
        "flashinfer.utils._get_trtllm_gen_multi_ctas_kv_counter_buffer",
        "BEFORE hook: counts buffers made per call",
        ("batch_size", "num_qo_heads"),
    ),
)
