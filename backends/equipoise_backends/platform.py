"""Entry point of the CPU platform: decides whether it is wanted, and imports nothing to do so.

SGLang 0.5.17 has no ``sglang.srt.platforms.cpu``, and on a GPU host an activated platform would win over CUDA or clash
with it. Therefore the class lives in `cpu_platform`, and the answer is None unless ``SGLANG_PLATFORM`` names us.
"""

import os

NAME = "equipoise-cpu"


def activate() -> str | None:
    """The dotted name of the platform class when ``SGLANG_PLATFORM`` is "equipoise-cpu", else None."""
    if os.environ.get("SGLANG_PLATFORM") != NAME:
        return None
    return "equipoise_backends.cpu_platform.EquipoiseCpuPlatform"
