"""Entry point of SGLang's group ``sglang.srt.plugins``: installs the hooks in the process that schedules.

Owns which hook goes where. What hooks do is the business of `attest`, `stepclock`, `trtllm` and `reference`. Nothing of
SGLang is imported before `install` runs, because versions differ in what they have.
"""

import logging
import os
import pkgutil
import sys
from collections.abc import Callable

import torch

from equipoise_backends import attest, gate, platform, seam
from equipoise_backends.delay import Delay, DeviceDelay, HostDelay
from equipoise_backends.host import InternalState, ModelRunner, Scheduler
from equipoise_backends.scratch import PerCallScratch, PersistentScratch, Scratch, persistent_sizing
from equipoise_backends.settings import Arm, Settings, SettingsError
from equipoise_backends.stepclock import StepClock
from equipoise_backends.trtllm import TrtllmMha

logger = logging.getLogger(__name__)

SCHEDULER = "sglang.srt.managers.scheduler"
EXECUTOR = "sglang.srt.model_executor"


class Plugin:
    """The plugin at work in one scheduler process; its methods are the hooks.

    Args:
        settings: The parsed environment.
        unmet: Requirements of the seam that do not hold.
        trtllm: The arm in TRTLLM MHA backends; None where there can be none.
    """

    def __init__(self, settings: Settings, unmet: list[str], trtllm: TrtllmMha | None = None) -> None:
        self._settings = settings
        self._unmet = unmet
        self._trtllm = trtllm
        self._guard = attest.Guard()
        header = {"arm": settings.arm.value, "launch_id": settings.launch_id, "pid": os.getpid()}
        kind = HostDelay if trtllm is None else DeviceDelay
        self._delay: Delay | None = kind(settings.test_delay_us) if settings.test_delay_us else None
        self.clock = StepClock(
            settings.step_log,
            header,
            every=settings.clock_every,
            alternating=settings.clock_alternating,
            prefills=settings.clock_prefill,
            delay=self._delay,
        )

    def after_get_internal_state(
        self, result: InternalState, scheduler: Scheduler, *_args: object, **_kwargs: object
    ) -> InternalState:
        """AFTER ``Scheduler.get_internal_state``: check the guard, flush the steps, add the record."""
        self._guard.check(*self._held_and_work(scheduler))
        self.clock.flush()
        # This call stands between two steps; it must not be charged to the next one.
        self.clock.break_chain()
        record = attest.record(scheduler, self._settings, self._unmet, self.clock, self._guard)
        record["test_delay_measured_us"] = self._delay.measured_us if self._delay else None
        if self._trtllm is not None:
            record |= {"kernel_path": self._trtllm.process.kernel_path, "treatment": self._trtllm.describe()}
        result.internal_state["equipoise"] = record
        return result

    def after_on_idle(self, _result: object, scheduler: Scheduler, *_args: object, **_kwargs: object) -> None:
        """AFTER ``Scheduler.on_idle``: guard check once per change from busy to idle."""
        self._guard.check_if_used(*self._held_and_work(scheduler))

    def after_capture(self, _result: object, *_args: object, **_kwargs: object) -> None:
        """AFTER ``DecodeCudaGraphRunner.capture``: guard check before the first replay."""
        if self._trtllm is not None:
            self._guard.check(self._trtllm.held())

    def _held_and_work(self, scheduler: Scheduler) -> tuple[attest.Guarded | None, int | None]:
        """What the guard checks, and a count of the engine's work."""
        if self._trtllm is not None:
            # Graphs replay decode calls that no hook sees; batches are counted by the scheduler itself.
            return self._trtllm.held(), scheduler.forward_ct
        return attest.scratch_of(attest.decode_backend(scheduler)), None

    def make_scratch(self, model_runner: ModelRunner) -> Scratch:
        """The scratch policy of the arm, for one backend instance."""
        device = torch.device(model_runner.device)
        if self._settings.arm is Arm.BASELINE:
            return PerCallScratch(device)
        sizing = persistent_sizing(
            model_runner.max_running_requests,
            model_runner.server_args.speculative_num_draft_tokens,
            model_runner.model_config.num_attention_heads,
        )
        return PersistentScratch(sizing, device)


class RefusedPlugin:
    """What is left of the plugin when its settings are wrong: a record that says so, so that attestation fails."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def after_get_internal_state(self, result: InternalState, *_args: object, **_kwargs: object) -> InternalState:
        """AFTER ``Scheduler.get_internal_state``: the reason instead of a record."""
        result.internal_state["equipoise"] = {"schema": attest.SCHEMA, "refused": self._reason, "pid": os.getpid()}
        return result


def install() -> None:
    """Install the hooks of the arm that ``EQUIPOISE_ARM`` names.

    SGLang calls this in each of its processes. Only the scheduler's process decodes and answers for itself; its module
    is loaded there by the time of this call, and elsewhere the hooks would cost an import of the whole model executor.
    """
    if SCHEDULER not in sys.modules:
        return
    try:
        settings = Settings.from_env(os.environ)
    except SettingsError as error:
        _refuse(str(error))
        return
    if (refusal := seam.refusal_of_version(allow_unchecked=settings.unchecked_sglang)) is not None:
        _refuse(refusal)
        return
    if settings.start_gate is not None:
        try:
            gate.wait(settings.start_gate)
        except gate.GateError as error:
            _refuse(str(error))
            return
    on_cpu = os.environ.get("SGLANG_PLATFORM") == platform.NAME
    trtllm = None if on_cpu else TrtllmMha(settings.arm)
    plugin = Plugin(settings, seam.check(os.environ.get("SGLANG_PLATFORM")), trtllm)
    _hook(f"{SCHEDULER}.Scheduler.get_internal_state", plugin.after_get_internal_state, "AFTER")
    _hook(f"{SCHEDULER}.Scheduler.on_idle", plugin.after_on_idle, "AFTER")
    _hook_clock(plugin.clock)
    if trtllm is not None:
        _hook(
            f"{EXECUTOR}.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner.capture", plugin.after_capture, "AFTER"
        )
        for target, hook, kind in trtllm.hooks():
            _hook(target, hook, kind)
    elif settings.arm is not Arm.UPSTREAM:
        _replace_torch_native(plugin)


def _refuse(reason: str) -> None:
    logger.error("equipoise: %s", reason)
    _hook(f"{SCHEDULER}.Scheduler.get_internal_state", RefusedPlugin(reason).after_get_internal_state, "AFTER")


def _hook(target: str, hook: Callable[..., object], kind: str) -> None:
    registry = pkgutil.resolve_name("sglang.srt.plugins.hook_registry")
    registry.HookRegistry.register(target, hook, registry.HookType[kind])


def _hook_clock(clock: StepClock) -> None:
    _hook(f"{SCHEDULER}.Scheduler.run_batch", clock.before_batch, "BEFORE")
    _hook(f"{EXECUTOR}.runner.eager_runner.EagerRunner._execute_decode", clock.around_eager_decode, "AROUND")
    _hook(f"{EXECUTOR}.runner.eager_runner.EagerRunner._execute_extend", clock.around_extend, "AROUND")
    _hook(
        f"{EXECUTOR}.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner.execute",
        clock.around_graph_decode,
        "AROUND",
    )
    _hook(
        f"{EXECUTOR}.runner_backend.full_cuda_graph_backend.FullCudaGraphBackend.replay",
        clock.around_graph_replay,
        "AROUND",
    )


def _replace_torch_native(plugin: Plugin) -> None:
    # Importing it needs the CPU platform's SGLang, so only here.
    from equipoise_backends.reference import make_reference_factory  # noqa: PLC0415

    registry = pkgutil.resolve_name("sglang.srt.layers.attention.attention_registry")
    registry.ATTENTION_BACKENDS["torch_native"] = make_reference_factory(plugin.make_scratch)
