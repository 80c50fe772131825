"""Kernels that break the contract, through the guard object and the persistent arm of the real backend.

The kernel is simulated where FlashInfer's is called: it counts its splits up in the buffer that the call brought, as
TRTLLM-GEN does, and then resets them, or forgets to, or resets them late. Each fault has an error of its own.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from equipoise_backends import scratch
from equipoise_backends.attest import Guard
from equipoise_backends.settings import Arm
from tests.backends.trtllm_stage import Stage, staged

Kernel = Callable[[torch.Tensor], None]
RESET_AFTER_S = 0.02


def resets(counters: torch.Tensor) -> None:
    counters[:4] += 1
    counters[:4] = 0


def forgets(counters: torch.Tensor) -> None:
    counters[:4] += 1


def resets_late(counters: torch.Tensor) -> None:
    counters[:4] += 1
    threading.Timer(RESET_AFTER_S, counters[:4].zero_).start()


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged(Arm.PERSISTENT, sm90=False) as set_up:
        yield set_up


def launch(stage: Stage, backend: Any, kernel: Kernel) -> None:
    """One decode step of one layer whose kernel does this to its counters."""
    backend.forward_metadata = stage.metadata(2)
    stage.run(backend, "DECODE", 2, decode=True)
    kernel(stage.recorder.decode[-1]["multi_ctas_kv_counter_buffer"].view(torch.int32))


def guarded(stage: Stage) -> Guard:
    assert stage.arm is not None
    guard = Guard()
    guard.check(stage.arm.held())
    return guard


def test_a_kernel_that_resets_leaves_the_guard_clean(stage: Stage) -> None:
    launch(stage, stage.backend(), resets)
    guard = guarded(stage)
    assert (guard.state, guard.message) == ("clean", None)


@pytest.mark.parametrize(
    ("kernel", "state", "says"),
    [(forgets, "dirty", "4 of 32768 are not zero"), (resets_late, "late_reset", "4 of 32768 counters were not zero")],
    ids=["forgets", "late"],
)
def test_a_kernel_that_breaks_the_contract_is_caught_with_its_own_error(
    stage: Stage, kernel: Kernel, state: str, says: str
) -> None:
    launch(stage, stage.backend(), kernel)
    guard = guarded(stage)
    # 8192 rows of 4 heads.
    assert guard.state == state
    assert says in str(guard.message)


def test_growth_after_capture_is_caught(stage: Stage) -> None:
    backend = stage.backend()
    launch(stage, backend, resets)
    # What the sister backend did when a prefill chunk of more than 8,192 rows came.
    grown = torch.zeros(2 * backend._multi_ctas_kv_counter_buffer.numel(), dtype=torch.uint8)
    backend._multi_ctas_kv_counter_buffer = grown
    guard = guarded(stage)
    assert guard.state == "replaced"
    assert "replaced after capture" in str(guard.message)


def test_a_batch_beyond_the_capacity_is_caught(stage: Stage) -> None:
    backend = stage.backend()
    backend.forward_metadata = stage.metadata(9_000)
    with pytest.raises(scratch.CapacityError, match="--max-running-requests to at least 8999"):
        stage.run(backend, "DECODE", 9_000, decode=True)


def test_dirty_semaphores_are_caught_on_sm90() -> None:
    with staged(Arm.PERSISTENT, sm90=True) as stage:
        backend = stage.backend()
        assert guarded(stage).state == "clean"
        backend.workspace_buffer[4096] = 1
        try:
            guard = guarded(stage)
        finally:
            # The workspace is shared by name, also with backends of later tests.
            backend.workspace_buffer[4096] = 0
        assert guard.state == "semaphores"
        assert "1 of 2097152 words" in str(guard.message)


def test_the_guard_covers_every_backend_of_the_process(stage: Stage) -> None:
    stage.backend()
    draft = stage.backend()
    launch(stage, draft, forgets)
    assert guarded(stage).state == "dirty"


def test_all_faults_have_different_words() -> None:
    kinds = [
        kind for kind in vars(scratch).values() if isinstance(kind, type) and issubclass(kind, scratch.ScratchError)
    ]
    assert len({kind.state for kind in kinds}) == len(kinds) == 7


def test_the_other_arms_hold_nothing_to_guard() -> None:
    for arm in (Arm.BASELINE, Arm.UPSTREAM):
        with staged(arm, sm90=False) as stage:
            launch(stage, stage.backend(), lambda _counters: None) if arm is Arm.UPSTREAM else stage.backend()
            assert guarded(stage).state == "not_applicable"


@pytest.mark.parametrize("memory", [torch.zeros(64, dtype=torch.uint8), torch.zeros(4096, dtype=torch.uint8)[4:]])
def test_memory_that_cannot_serve_is_refused(memory: torch.Tensor) -> None:
    held = scratch.HeldMemory(memory, torch.ones(1))
    with pytest.raises(scratch.UnusableMemoryError, match=r"cannot hold|not aligned"):
        scratch.PersistentScratch(scratch.Sizing(17, 4), memory.device, held=held)
