"""A real SGLang engine on a plain CPU with the wheels from PyPI. Loaded only after `platform.activate` said yes.

SGLang's own CPU platform (``SGLANG_USE_CPU_ENGINE=1``) wants kernels that the PyPI wheels lack. As an out-of-tree
platform with no capabilities, every fused operator falls back to its ``native`` torch form.
"""

import torch
from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform


class EquipoiseCpuPlatform(CpuDeviceMixin, SRTPlatform):
    """The CPU as an out-of-tree platform: no graphs, no Triton, no pinned memory, torch operators only."""

    _enum = PlatformEnum.OOT
    capabilities = PlatformCapabilities()

    def is_pin_memory_available(self, device: object = None) -> bool:
        """There is no device to pin memory for."""
        return False

    def get_default_attention_backend(self) -> str:
        """The only attention backend of SGLang that needs nothing but torch."""
        return "torch_native"

    def get_dispatch_key_name(self) -> str:
        """Fused operators take their torch form."""
        return "native"

    def get_torch_profiler_activity_str(self) -> str:
        """Without this one ``/start_profile`` kills the engine: the base class raises."""
        return "CPU"

    def get_torch_profiler_activity(self) -> torch.profiler.ProfilerActivity:
        """What "CPU" means to torch's profiler."""
        return torch.profiler.ProfilerActivity.CPU
