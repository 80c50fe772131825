"""The two scratch policies: sizes, identities, refusals and the guard."""

import pytest
import torch

from equipoise_backends.scratch import (
    CapacityError,
    DirtyCountersError,
    Observation,
    PerCallScratch,
    PersistentScratch,
    ReplacedBufferError,
    Sizing,
    persistent_sizing,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize(("draft_tokens", "rows"), [(None, 17), (0, 17), (1, 17), (4, 68)])
def test_sizing_is_the_rule_of_sglang(draft_tokens: int | None, rows: int) -> None:
    # (16 + 1) * max(1, draft_tokens or 1), by hand.
    assert persistent_sizing(16, draft_tokens, 9) == Sizing(rows, 9)


def test_per_call_scratch_makes_new_tensors_each_time() -> None:
    scratch = PerCallScratch(CPU)
    first, second = scratch.counters(Sizing(3, 5)), scratch.counters(Sizing(3, 5))
    assert first.data_ptr() != second.data_ptr()
    assert first.shape == (3, 5)
    assert first.dtype == torch.int32
    assert not first.any()
    k_scale, v_scale = scratch.default_scale(), scratch.default_scale()
    assert k_scale is not v_scale
    assert (k_scale.tolist(), k_scale.dtype) == ([1.0], torch.float32)
    assert scratch.capacity() is None
    assert scratch.counter_bytes() is None


def test_persistent_scratch_gives_views_of_one_buffer_and_one_scale() -> None:
    scratch = PersistentScratch(Sizing(17, 9), CPU)
    address = scratch.buffer.data_ptr()
    for rows in (1, 17, 4):
        counters = scratch.counters(Sizing(rows, 9))
        assert counters.data_ptr() == address
        assert counters.shape == (rows, 9)
    assert scratch.default_scale() is scratch.default_scale()
    assert scratch.default_scale().tolist() == [1.0]
    assert scratch.capacity() == Sizing(17, 9)
    assert scratch.counter_bytes() == 17 * 9 * 4
    scratch.check()


@pytest.mark.parametrize("need", [Sizing(18, 9), Sizing(17, 10)])
def test_beyond_capacity_is_refused_with_the_name_of_the_knob(need: Sizing) -> None:
    scratch = PersistentScratch(Sizing(17, 9), CPU)
    with pytest.raises(CapacityError, match=f"--max-running-requests to at least {need.rows - 1}"):
        scratch.counters(need)


def test_guard_reports_dirty_counters_with_their_number() -> None:
    scratch = PersistentScratch(Sizing(17, 9), CPU)
    scratch.buffer[3, 4] = 1
    scratch.buffer[16, 0] = -2
    with pytest.raises(DirtyCountersError, match="2 of 153 are not zero"):
        scratch.check()


def test_guard_reports_a_replaced_buffer_although_it_is_clean_and_larger() -> None:
    scratch = PersistentScratch(Sizing(17, 9), CPU)
    scratch.buffer = torch.zeros(34, 9, dtype=torch.int32)
    with pytest.raises(ReplacedBufferError, match="replaced after capture"):
        scratch.check()


def test_guard_reports_a_buffer_that_was_shortened_in_place() -> None:
    scratch = PersistentScratch(Sizing(17, 9), CPU)
    scratch.buffer.resize_(8, 9)
    with pytest.raises(CapacityError, match="8 rows of 9 heads, the call needs 17 rows"):
        scratch.check()


def test_the_three_violations_have_three_words() -> None:
    states = {error.state for error in (CapacityError, DirtyCountersError, ReplacedBufferError)}
    assert states == {"capacity", "dirty", "replaced"}


def test_observation_knows_nothing_before_the_first_call() -> None:
    seen = Observation()
    assert (seen.calls, seen.scale_shared, seen.counters_reused) == (0, None, None)


def test_observation_sees_sharing_by_identity_not_by_value() -> None:
    counters, scale = torch.zeros(2, 2, dtype=torch.int32), torch.ones(1)
    shared, distinct = Observation(), Observation()
    shared.note(counters, scale, scale)
    shared.note(counters[:1], scale, scale)
    distinct.note(counters, scale, torch.ones(1))
    distinct.note(torch.zeros(2, 2, dtype=torch.int32), scale, scale)
    assert (shared.calls, shared.scale_shared, shared.counters_reused) == (2, True, True)
    assert (distinct.calls, distinct.scale_shared, distinct.counters_reused) == (2, False, False)


def test_observation_is_not_fooled_by_a_scale_that_was_freed() -> None:
    seen = Observation()
    counters = torch.zeros(2, 2, dtype=torch.int32)
    for _ in range(3):
        # Each scale is freed before the next is made, so an allocator may use its address, and Python its id, again.
        scale = torch.ones(1)
        seen.note(counters, scale, scale)
        del scale
    assert seen.scale_shared is False
