"""Dotted names of SGLang that several modules of the plugin use. Imports nothing: `wheels` must not need torch."""

MODULE = "sglang.srt.layers.attention.trtllm_mha_backend"
BACKEND = f"{MODULE}.TRTLLMHAAttnBackend"
HELPER_MODULE = "sglang.srt.layers.attention.trtllm_mla_backend"
FUSED_WRITE = "sglang.kernels.ops.kvcache.fused_fp8_qkv_kv_cache"
DECODE_KERNEL = "flashinfer.decode.trtllm_batch_decode_with_kv_cache"
