"""The treatment, counted by torch's profiler in the operators of the backend alone."""

from collections import Counter

import pytest
import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

from equipoise_backends.bare_step import SMOLLM2_135M, BareStep, DecodingBackend, decode, make_step
from equipoise_backends.reference import ReferenceAttnBackend
from equipoise_backends.scratch import PerCallScratch, PersistentScratch, persistent_sizing

CPU = torch.device("cpu")
SHAPE = SMOLLM2_135M._replace(layers=5)
STEPS = 3


def count_fills(backend: DecodingBackend, step: BareStep) -> tuple[int, int]:
    decode(backend, step)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(STEPS):
            decode(backend, step)
    names = Counter(event.name for event in profiler.events())
    assert names["aten::index_put_"] == 2 * SHAPE.layers * STEPS, "the profile does not show the cache writes"
    return names["aten::zeros"], names["aten::ones"]


@pytest.fixture
def step() -> BareStep:
    generator = torch.Generator().manual_seed(29)
    return make_step(SHAPE, [70, 3, 200], generator, max_running_requests=16, dtype=torch.float32)


def test_baseline_allocates_one_counter_and_two_scales_per_layer_and_step(step: BareStep) -> None:
    calls = SHAPE.layers * STEPS
    assert count_fills(ReferenceAttnBackend(step.runner, PerCallScratch(CPU)), step) == (calls, 2 * calls)


def test_persistent_allocates_nothing(step: BareStep) -> None:
    scratch = PersistentScratch(persistent_sizing(16, None, SHAPE.heads), CPU)
    assert count_fills(ReferenceAttnBackend(step.runner, scratch), step) == (0, 0)


def test_upstream_has_no_fills_that_could_be_mistaken_for_the_treatment(step: BareStep) -> None:
    assert count_fills(TorchNativeAttnBackend(step.runner), step) == (0, 0)
