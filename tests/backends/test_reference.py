"""The CPU reference: equal to SGLang's ``torch_native`` with clean counters, wrong or refused with others."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

from equipoise_backends.bare_step import BareStep, Shape, decode, make_step
from equipoise_backends.reference import (
    NEVER,
    SPLIT_TOKENS,
    ReferenceAttnBackend,
    UnsupportedLayerError,
    Workspace,
    plan_decode,
)
from equipoise_backends.scratch import (
    CapacityError,
    DirtyCountersError,
    PerCallScratch,
    PersistentScratch,
    Scratch,
    persistent_sizing,
)

CPU = torch.device("cpu")
MAX_REQUESTS = 12
# Values are normal, outputs are weighted means of them: float32 rounding of sums over at most 400 terms of size < 6.
ROUNDING = {"rtol": 1e-5, "atol": 5e-6}

shapes = st.builds(
    lambda layers, kv_heads, group, head_size, value_size: Shape(
        layers, kv_heads * group, kv_heads, head_size, value_size
    ),
    layers=st.integers(1, 2),
    kv_heads=st.integers(1, 4),
    group=st.integers(1, 5),
    head_size=st.sampled_from([8, 16, 64]),
    value_size=st.sampled_from([8, 16, 64]),
)
lengths = st.lists(st.integers(1, 400), min_size=1, max_size=MAX_REQUESTS)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def step_of(shape: Shape, seq_lens: list[int], seed: int, dtype: torch.dtype = torch.float32) -> BareStep:
    return make_step(shape, seq_lens, generator(seed), max_running_requests=MAX_REQUESTS, dtype=dtype)


def persistent(shape: Shape) -> PersistentScratch:
    return PersistentScratch(persistent_sizing(MAX_REQUESTS, None, shape.heads), CPU)


def assert_equal_to_torch_native(step: BareStep, scratch: Scratch) -> None:
    expected = decode(TorchNativeAttnBackend(step.runner), step)
    keys = step.kv.get_kv_buffer(0)[0].clone()
    found = decode(ReferenceAttnBackend(step.runner, scratch), step)
    torch.testing.assert_close(found, expected, **ROUNDING)
    # A scale of 1.0 must not change what is written.
    assert torch.equal(step.kv.get_kv_buffer(0)[0], keys)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(shape=shapes, seq_lens=lengths, seed=st.integers(0, 2**31))
def test_both_arms_equal_torch_native_on_random_shapes(shape: Shape, seq_lens: list[int], seed: int) -> None:
    step = step_of(shape, seq_lens, seed)
    held = persistent(shape)
    for scratch in (PerCallScratch(CPU), held):
        assert_equal_to_torch_native(step, scratch)
    held.check()


@pytest.mark.parametrize("tokens", [1, SPLIT_TOKENS - 1, SPLIT_TOKENS, SPLIT_TOKENS + 1, 3 * SPLIT_TOKENS])
def test_lengths_around_the_end_of_a_split(tokens: int) -> None:
    shape = Shape(1, 6, 2, 16, 16)
    assert_equal_to_torch_native(step_of(shape, [tokens, 1, 200], tokens), persistent(shape))


@settings(deadline=None, max_examples=15, derandomize=True)
@given(batches=st.lists(lengths, min_size=2, max_size=5), seed=st.integers(0, 2**31))
def test_one_buffer_serves_batches_that_grow_and_shrink(batches: list[list[int]], seed: int) -> None:
    shape = Shape(1, 6, 2, 16, 16)
    scratch = persistent(shape)
    address, buffer = scratch.buffer.data_ptr(), scratch.buffer
    for number, seq_lens in enumerate(batches):
        assert_equal_to_torch_native(step_of(shape, seq_lens, seed + number), scratch)
        scratch.check()
    assert scratch.buffer is buffer
    assert scratch.buffer.data_ptr() == address
    assert scratch.observation.counters_reused is True
    assert scratch.observation.scale_shared is True
    assert scratch.observation.calls == len(batches)


def test_reduced_precision_stays_within_one_rounding_of_the_output() -> None:
    # Both compute in float32 and round the result to bfloat16 (8 bits of mantissa) once.
    shape = Shape(2, 9, 3, 64, 64)
    step = step_of(shape, [5, 64, 300], 3, torch.bfloat16)
    expected = decode(TorchNativeAttnBackend(step.runner), step)
    found = decode(ReferenceAttnBackend(step.runner, persistent(shape)), step)
    assert {layer.dtype for layer in found} == {torch.bfloat16}
    torch.testing.assert_close(found, expected, rtol=2**-7, atol=2**-9)


def test_scales_multiply_what_is_written() -> None:
    class DoublingScratch(PerCallScratch):
        def default_scale(self) -> torch.Tensor:
            return torch.full((1,), 2.0)

    shape = Shape(1, 4, 2, 8, 8)
    step = step_of(shape, [3, 9], 5)
    decode(ReferenceAttnBackend(step.runner, DoublingScratch(CPU)), step)
    keys, values = step.kv.get_kv_buffer(0)
    _, k, v = step.qkv[0]
    assert torch.equal(keys[step.batch.out_cache_loc], 2 * k)
    assert torch.equal(values[step.batch.out_cache_loc], 2 * v)


# The contract with dirty counters. Expected values come from the contract itself: a counter that starts at d makes the
# split with ticket n - 1, which is split n - 1 - d, the merger; it sees the first n - d splits only.


@pytest.mark.parametrize("dirt", [1, 2, 3])
def test_a_dirty_counter_merges_too_early_and_stays_dirty(dirt: int) -> None:
    splits, shape = 4, Shape(1, 4, 2, 16, 16)
    step = step_of(shape, [splits * SPLIT_TOKENS - 5], 11)
    clean = decode(ReferenceAttnBackend(step.runner, persistent(shape)), step)[0].view(4, 16)
    scratch = persistent(shape)
    scratch.buffer[0, 2] = dirt
    found = decode(ReferenceAttnBackend(step.runner, scratch), step)[0].view(4, 16)

    early = step.batch
    early.seq_lens = torch.tensor([(splits - dirt) * SPLIT_TOKENS])
    truncated = decode_without_write(ReferenceAttnBackend(step.runner, persistent(shape)), step).view(4, 16)

    torch.testing.assert_close(found[2], truncated[2], **ROUNDING)
    assert not torch.allclose(found[2], clean[2], atol=1e-3)
    others = [0, 1, 3]
    torch.testing.assert_close(found[others], clean[others], **ROUNDING)
    assert scratch.buffer[0].tolist() == [0, 0, dirt, 0]
    with pytest.raises(DirtyCountersError, match="1 of"):
        scratch.check()


def decode_without_write(backend: ReferenceAttnBackend, step: BareStep) -> torch.Tensor:
    """Decode with what the cache holds already."""
    with torch.inference_mode():
        backend.init_forward_metadata(step.batch)
        q, _, _ = step.qkv[0]
        return backend.forward_decode(q, None, None, step.layers[0], step.batch)


@pytest.mark.parametrize("dirt", [4, 1000, -1])
def test_a_counter_beyond_the_splits_means_that_nobody_merges(dirt: int) -> None:
    splits, shape = 4, Shape(1, 4, 2, 16, 16)
    step = step_of(shape, [splits * SPLIT_TOKENS], 13)
    scratch = persistent(shape)
    scratch.buffer[0, 1] = dirt
    found = decode(ReferenceAttnBackend(step.runner, scratch), step)[0].view(4, 16)
    assert found[1].isnan().all()
    assert not found[[0, 2, 3]].isnan().any()
    # Four arrivals and no reset.
    assert scratch.buffer[0].tolist() == [0, dirt + splits, 0, 0]
    with pytest.raises(DirtyCountersError):
        scratch.check()


def test_a_batch_beyond_capacity_is_refused_with_the_name_of_the_knob() -> None:
    shape = Shape(1, 4, 2, 16, 16)
    step = step_of(shape, [3, 4, 5], 17)
    scratch = PersistentScratch(persistent_sizing(1, None, shape.heads), CPU)
    with pytest.raises(CapacityError, match="--max-running-requests to at least 2"):
        decode(ReferenceAttnBackend(step.runner, scratch), step)


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [
        ("is_cross_attention", True, "cross attention"),
        ("sliding_window_size", 128, "sliding windows"),
        ("k_scale", torch.nn.Parameter(torch.ones(1)), "checkpoint KV scales"),
    ],
)
def test_what_is_not_specified_is_refused(attribute: str, value: object, reason: str) -> None:
    shape = Shape(1, 4, 2, 16, 16)
    step = step_of(shape, [3], 19)
    setattr(step.layers[0], attribute, value)
    with pytest.raises(UnsupportedLayerError, match=reason):
        decode(ReferenceAttnBackend(step.runner, persistent(shape)), step)


def test_a_step_that_was_not_planned_is_refused() -> None:
    shape = Shape(1, 4, 2, 16, 16)
    step = step_of(shape, [3], 23)
    backend = ReferenceAttnBackend(step.runner, persistent(shape))
    q, k, v = step.qkv[0]
    with pytest.raises(UnsupportedLayerError, match="without init_forward_metadata"):
        backend.forward_decode(q, k, v, step.layers[0], step.batch)


def test_plan_by_hand() -> None:
    # Two requests of 3 and 1 tokens, splits of 2 tokens, one key/value head.
    req_to_token = torch.tensor([[7, 8, 9, 0], [4, 0, 0, 0]], dtype=torch.int32)
    plan = plan_decode(req_to_token, torch.tensor([0, 1]), torch.tensor([3, 1]), 1, 2)
    assert plan.splits == 2
    assert plan.slots.view(2, 4).tolist() == [[7, 8, 9, 9], [4, 4, 4, 4]]
    assert (plan.bias.view(2, 4) == 0).tolist() == [[True, True, True, False], [True, False, False, False]]
    assert plan.arrival.view(2, 2).tolist() == [[0, 1], [0, NEVER]]
    assert plan.expected.flatten().tolist() == [2, 1]
    assert plan.last_ticket.flatten().tolist() == [1, 0]


def test_workspace_keeps_memory_while_a_context_grows() -> None:
    workspace = Workspace()
    addresses = [workspace.take("k", (1, length, 16), torch.float32).data_ptr() for length in range(65, 129)]
    # 65 to 128 rows of 16 fit into one power of two.
    assert len(list(itertools.groupby(addresses))) == 1
    assert workspace.take("k", (2, 3), torch.float32).shape == (2, 3)
