"""Every internal of SGLang and FlashInfer that the plugin touches, as data, and the check that they are there.

An upgrade of SGLang must fail here, with names, and not in a benchmark with a wrong number. ``python -m
equipoise_backends.seam`` prints what is missing and exits with 1; the engine attests the same list at its start.
"""

import os
import sys
from importlib.metadata import PackageNotFoundError, version

from equipoise_backends.platform import NAME as PLATFORM_NAME
from equipoise_backends.requirement import Requirement, unmet
from equipoise_backends.seam_cuda import CUDA

__all__ = ["CHECKED_VERSIONS", "COMMON", "CPU", "CUDA", "Requirement", "check", "refusal_of_version", "unmet"]

CHECKED_VERSIONS = ("0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23")
"""SGLang versions whose wheels meet the list. Run were 0.5.17 (GPU) and 0.5.23 (CPU); the others were read."""


COMMON = (
    Requirement("sglang.srt.plugins.hook_registry.HookRegistry.register", "registers all hooks"),
    Requirement(
        "sglang.srt.managers.scheduler.Scheduler.get_internal_state",
        "AFTER hook: attestation, guard check on demand, flush of the step log",
        ("self", "recv_req"),
    ),
    Requirement(
        "sglang.srt.managers.scheduler.Scheduler.run_batch",
        "BEFORE hook: a batch that is no decode step ends the chain of periods",
        ("self", "batch"),
    ),
    Requirement("sglang.srt.managers.scheduler.Scheduler.on_idle", "AFTER hook: guard check at idle", ("self",)),
    Requirement(
        "sglang.srt.managers.scheduler.Scheduler",
        "reads tp_worker.model_runner to find the attention backend",
        attributes=("self.tp_worker", ".model_runner"),
    ),
    Requirement(
        "sglang.srt.managers.io_struct.GetInternalStateReqOutput",
        "its dict internal_state carries the attestation",
        attributes=("internal_state",),
    ),
    Requirement(
        "sglang.srt.model_executor.model_runner.ModelRunner",
        "reads attn_backend, is_draft_worker, max_running_requests, model_config, server_args",
        attributes=("self.attn_backend", "self.is_draft_worker", "self.max_running_requests", "self.model_config"),
    ),
    Requirement(
        "sglang.srt.layers.attention.hybrid_attn_backend.HybridAttnBackend",
        "reads decode_backend where prefill has its own",
        attributes=("self.decode_backend",),
    ),
    Requirement(
        "sglang.srt.model_executor.runner.eager_runner.EagerRunner._execute_decode",
        "AROUND hook: step clock without graphs",
        ("self", "forward_batch"),
    ),
    Requirement(
        "sglang.srt.model_executor.runner.eager_runner.EagerRunner._execute_extend",
        "AROUND hook: step clock of prefills",
        ("self", "forward_batch"),
    ),
    Requirement(
        "sglang.srt.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner.execute",
        "AROUND hook: step clock with graphs",
        ("self", "forward_batch"),
    ),
    Requirement(
        "sglang.srt.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner",
        "reads _replay_graph_key.size and replays through backend.replay",
        attributes=("self._replay_graph_key", "self.backend.replay"),
    ),
    Requirement(
        "sglang.srt.model_executor.runner_backend.full_cuda_graph_backend.FullCudaGraphBackend.replay",
        "AROUND hook: CUDA events of a step",
        ("self", "shape_key"),
    ),
    Requirement(
        "sglang.srt.model_executor.forward_batch_info.ForwardBatch",
        "reads forward_mode, batch_size, seq_lens, seq_lens_sum, extend_num_tokens, req_pool_indices, out_cache_loc",
        attributes=(
            "forward_mode:",
            "batch_size:",
            "seq_lens:",
            "seq_lens_sum:",
            "extend_num_tokens:",
            "req_pool_indices:",
            "out_cache_loc:",
        ),
    ),
)

CPU = (
    Requirement("sglang.srt.platforms.cpu.CpuDeviceMixin", "base of the CPU platform"),
    Requirement("sglang.srt.platforms.device_mixin.PlatformEnum.OOT", "marks the platform as out of tree"),
    Requirement("sglang.srt.platforms.interface.SRTPlatform", "base of the CPU platform"),
    Requirement("sglang.srt.platforms.interface.PlatformCapabilities", "declares that the platform has none"),
    Requirement(
        "sglang.srt.layers.attention.attention_registry.ATTENTION_BACKENDS", "its torch_native factory is replaced"
    ),
    Requirement(
        "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend.forward_decode",
        "overridden by the reference backend",
        ("self", "q", "k", "v", "layer", "forward_batch", "save_kv_cache"),
    ),
    Requirement(
        "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend",
        "the reference backend reads its pools",
        attributes=("self.req_to_token_pool", "self.token_to_kv_pool", "self.use_sliding_window_kv_pool"),
    ),
    Requirement("sglang.srt.mem_cache.memory_pool.KVWriteLoc", "names the slots of a cache write", ("loc",)),
    Requirement(
        "sglang.srt.mem_cache.memory_pool.MHATokenToKVPool.set_kv_buffer",
        "writes scaled K and V",
        ("self", "layer", "loc_info", "cache_k", "cache_v"),
    ),
    Requirement(
        "sglang.srt.mem_cache.memory_pool.MHATokenToKVPool.get_kv_buffer", "reads K and V", ("self", "layer_id")
    ),
    Requirement(
        "sglang.srt.layers.radix_attention.RadixAttention",
        "reads its shape, its layer_id and what the reference refuses",
        attributes=(
            "self.tp_q_head_num",
            "self.qk_head_dim",
            "self.scaling",
            "self.layer_id",
            "self.k_scale",
            "self.v_scale",
            "self.sliding_window_size",
            "self.is_cross_attention",
        ),
    ),
)


def requirements(platform: str | None) -> tuple[Requirement, ...]:
    """The internals that an engine on this ``SGLANG_PLATFORM`` needs."""
    return COMMON + (CPU if platform == PLATFORM_NAME else CUDA)


def check(platform: str | None) -> list[str]:
    """All unmet requirements at once, empty when the seam holds. Imports the modules concerned."""
    found = package_version("sglang") or "0"
    needed = (requirement for requirement in requirements(platform) if requirement.applies_to(found))
    return [reason for reason in map(unmet, needed) if reason is not None]


def refusal_of_version(*, allow_unchecked: bool) -> str | None:
    """Why the installed SGLang may not run: nobody has held this list against its version. None when it may."""
    found = package_version("sglang")
    if found in CHECKED_VERSIONS or allow_unchecked:
        return None
    return (
        f"sglang {found} was never checked (checked: {', '.join(CHECKED_VERSIONS)}); "
        "EQUIPOISE_UNCHECKED_SGLANG=1 in the engine's environment runs it all the same"
    )


def package_version(name: str) -> str | None:
    """Installed version of a distribution, None when it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main() -> int:
    """Print the state of the seam; 0 when it holds, 1 when not."""
    found = package_version("sglang")
    problems = check(os.environ.get("SGLANG_PLATFORM"))
    note = "" if found in CHECKED_VERSIONS else f" (never checked; checked: {', '.join(CHECKED_VERSIONS)})"
    sys.stdout.write(f"sglang {found}{note}: {len(problems)} unmet\n")
    sys.stdout.writelines(f"  {problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
