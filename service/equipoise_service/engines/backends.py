"""Which GPUs each SGLang version lets TRTLLM MHA run on, known before an engine starts or a model is fetched. Pure.

From ``handle_attention_backend_compatibility`` of SGLang 0.5.17 and of 0.5.23 (``arg_groups/attention_hook.py``).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

TRTLLM = "trtllm_mha"
Phase = Literal["prefill", "decode"]
PREFILL_ON_SM90_SINCE = (0, 5, 23)
"""Earlier versions have TRTLLM's prefill for SM100 and SM103 only."""


class Capability(NamedTuple):
    """A GPU's compute capability."""

    major: int
    minor: int

    def __str__(self) -> str:
        """As SGLang and CUDA write it."""
        return f"SM{self.major}{self.minor}"


def backend_of(phase: Phase, flags: Sequence[str]) -> str | None:
    """The attention backend that these flags ask for in one phase; None leaves it to SGLang."""
    named = value_of(f"--{phase}-attention-backend", flags)
    return named if named is not None else value_of("--attention-backend", flags)


def value_of(name: str, flags: Sequence[str]) -> str | None:
    """A flag's value, as ``--flag value`` or ``--flag=value``; the last one wins, as in SGLang. None if absent."""
    value = None
    for place, word in enumerate(flags):
        if word == name:
            value = flags[place + 1] if place + 1 < len(flags) else None
        elif word.startswith(f"{name}="):
            value = word.removeprefix(f"{name}=")
    return value


def unsupported(flags: Sequence[str], version: str, gpu: Capability) -> str | None:
    """Why an engine with these flags would refuse to start on this GPU; None if it would not."""
    for phase in ("prefill", "decode"):
        if backend_of(phase, flags) != TRTLLM:
            continue
        majors = _majors(phase, version)
        if gpu.major not in majors:
            needed = " or ".join(f"SM{major}0" for major in majors)
            return f"{TRTLLM} {phase} needs {needed} in SGLang {version}, found {gpu}"
    return None


def _majors(phase: Phase, version: str) -> tuple[int, ...]:
    return (10,) if phase == "prefill" and _numbers(version) < PREFILL_ON_SM90_SINCE else (9, 10, 12)


def _numbers(version: str) -> tuple[int, ...]:
    """``0.5.17.post1`` and ``0.5.23+cu130`` as the numbers that they begin with."""
    return tuple(int(part) for part in version.split("+", maxsplit=1)[0].split(".")[:3] if part.isdigit())
