"""What an engine says about itself in ``/server_info`` → ``internal_states[i]["equipoise"]``.

Owns the record and the state of the guard. It reads effects: the class of the backend that decodes, the tensors that
calls got, the counters in memory. SGLang logs failing hooks and goes on, so a registration proves nothing, and an
engine without this record has no plugin at work.
"""

import hashlib
import json
import logging
import os
import platform
import re
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Protocol

import torch

from equipoise_backends.host import Scheduler
from equipoise_backends.scratch import Observation, Scratch, ScratchError, Sizing
from equipoise_backends.seam import package_version
from equipoise_backends.settings import Settings
from equipoise_backends.stepclock import StepClock

logger = logging.getLogger(__name__)

SCHEMA = 1
REFERENCE_CLASS = "equipoise_backends.reference.ReferenceAttnBackend"
KERNEL_PATHS = {
    REFERENCE_CLASS: "reference",
    "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend": "torch_native",
}


class Guarded(Protocol):
    """What a guard checks: the scratch of one backend, or of all of a process."""

    observation: Observation

    def capacity(self) -> Sizing | None:
        """What is held between calls, None when nothing is."""

    def check(self) -> None:
        """Raise a `ScratchError` when what is held is not as the contract wants it."""


class Guard:
    """Checks held scratch between launches and never forgets a violation.

    Attributes:
        checks: Number of checks made.
        state: "unchecked", "clean", "not_applicable" (nothing is held), or the `ScratchError.state` of the first
            violation, which stays: results since then are not to be trusted, whatever the counters say later.
        message: Text of that violation.
    """

    def __init__(self) -> None:
        self.checks = 0
        self.state = "unchecked"
        self.message: str | None = None
        self._work_at_last_check = 0

    def check(self, scratch: Guarded | None, work: int | None = None) -> None:
        """Check now.

        Args:
            scratch: What is held.
            work: A count that grows with the engine's work, for `check_if_used`; by default the decode calls seen,
                which stand still while graphs are replayed.
        """
        if scratch is None or scratch.capacity() is None:
            self.state = "not_applicable"
            return
        self._work_at_last_check = scratch.observation.calls if work is None else work
        self.checks += 1
        try:
            scratch.check()
        except ScratchError as error:
            logger.error("equipoise guard: %s", error)
            if self.message is None:
                self.state, self.message = error.state, str(error)
            return
        if self.message is None:
            self.state = "clean"

    def check_if_used(self, scratch: Guarded | None, work: int | None = None) -> None:
        """Check when there was work since the last check: once per change from busy to idle."""
        if scratch is None:
            return
        work = scratch.observation.calls if work is None else work
        if work != self._work_at_last_check:
            self.check(scratch, work)


def decode_backend(scheduler: Scheduler) -> object:
    """The attention backend that serves decode steps, also where prefill has its own."""
    backend = scheduler.tp_worker.model_runner.attn_backend
    return getattr(backend, "decode_backend", backend)


def qualified_name(instance: object) -> str:
    """Module and class of an object."""
    kind = type(instance)
    return f"{kind.__module__}.{kind.__qualname__}"


def scratch_of(backend: object) -> Scratch | None:
    """The scratch policy at work in a backend, None for SGLang's own backends."""
    return getattr(backend, "scratch", None)


def describe_device() -> dict[str, object]:
    """Kind, name and capability of the device, with torch's thread count where the CPU is the device."""
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return {"type": "cuda", "name": torch.cuda.get_device_name(), "capability": f"{major}.{minor}", "threads": None}
    return {"type": "cpu", "name": platform.machine(), "capability": None, "threads": torch.get_num_threads()}


def gpu_uuid() -> str | None:
    """Which GPU of its kind this is, the first that the process sees: hosts made of one image may share a name."""
    if not torch.cuda.is_available():
        return None
    uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)  # a torch of before 2.5 has none
    return None if uuid is None else f"GPU-{uuid}"


def describe_versions() -> dict[str, str | None]:
    """Versions of what decides about results; null for what is not installed."""
    return {
        "python": platform.python_version(),
        "sglang": package_version("sglang"),
        "torch": torch.__version__,
        "flashinfer": package_version("flashinfer-python"),
        "plugin": package_version("equipoise-backends"),
    }


@cache
def describe_packages() -> dict[str, str]:
    """Every package in this process's environment with its version, by its name in small letters with hyphens.

    What setuptools brings inside itself, and puts on the path once somebody imports it, was not installed; nor was what
    a removal left half of, whose folder names nothing.
    """
    found = {
        re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower(): package.version
        for package in reversed(list(distributions()))  # what stands first on the path is what is imported
        if package.metadata["Name"] and "_vendor" not in Path(str(package.locate_file(""))).parts
    }
    return dict(sorted(found.items()))


@cache
def packages_sha256() -> str:
    """Digest of the list of packages: two launches that attest the same one had the same packages."""
    return hashlib.sha256(json.dumps(describe_packages()).encode()).hexdigest()


def describe_scratch(scratch: Scratch | None) -> dict[str, object]:
    """Policy, held counters and what calls got; every value null for SGLang's own backends."""
    if scratch is None:
        names = ("policy", "counter_bytes", "counter_rows", "counter_heads", "counters_reused", "scale_shared")
        return {**dict.fromkeys(names), "decode_calls": None}
    capacity, seen = scratch.capacity(), scratch.observation
    return {
        "policy": type(scratch).__name__,
        "counter_bytes": scratch.counter_bytes(),
        "counter_rows": None if capacity is None else capacity.rows,
        "counter_heads": None if capacity is None else capacity.heads,
        "counters_reused": seen.counters_reused,
        "scale_shared": seen.scale_shared,
        "decode_calls": seen.calls,
    }


def record(
    scheduler: Scheduler, settings: Settings, seam: list[str], clock: StepClock, guard: Guard
) -> dict[str, object]:
    """The attestation of one engine process.

    Args:
        scheduler: SGLang's scheduler.
        settings: The plugin's settings.
        seam: Unmet requirements.
        clock: The step clock, flushed by the caller.
        guard: The guard, checked by the caller.
    """
    backend = decode_backend(scheduler)
    name = qualified_name(backend)
    return {
        "schema": SCHEMA,
        "arm": settings.arm.value,
        "launch_id": settings.launch_id,
        "pid": os.getpid(),
        "seam": seam or "ok",
        "versions": describe_versions(),
        "packages": describe_packages(),
        "packages_sha256": packages_sha256(),
        "device": describe_device(),
        "gpu": gpu_uuid(),
        "decode_backend": name,
        "kernel_path": KERNEL_PATHS.get(name),
        "scratch": describe_scratch(scratch_of(backend)),
        "guard": {"state": guard.state, "message": guard.message, "checks": guard.checks},
        "step_clock": clock.describe(),
        "test_delay_us": settings.test_delay_us,
        "step_log": None if settings.step_log is None else str(settings.step_log),
        "steps_seen": clock.steps_seen,
        "steps_written": clock.steps_written,
    }
