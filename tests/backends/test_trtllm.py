"""The arms in SGLang's real TRTLLM MHA backend, with FlashInfer replaced by a recorder.

Expected values are the issue's: who passes which buffer at which call site, and the sizing rule written out again.
"""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise_backends.scratch import CapacityError, PersistentScratch, ReplacedBufferError
from equipoise_backends.settings import Arm
from tests.backends.trtllm_sites import sites
from tests.backends.trtllm_stage import HEADS, KV_HEADS, SM_COUNT, Stage, make_runner, staged

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("EQUIPOISE_CACHE", "~/.cache/equipoise")).expanduser()
FLOOR_ROWS = 8_192
GPUS = pytest.mark.parametrize("sm90", [True, False], ids=["sm90", "sm100"])


def call_sites(stage: Stage, backend: Any) -> dict[str, list[dict[str, Any]]]:
    """The decode-kernel calls of each call site, which must be as many as the site makes."""
    found = {}
    for name, (run, calls) in sites(stage).items():
        before = len(stage.recorder.decode)
        run(stage, backend)
        found[name] = stage.recorder.decode[before:]
        assert len(found[name]) == calls, name
    return found


@GPUS
def test_every_call_site_passes_the_backends_own_buffer_in_the_persistent_arm(sm90: bool) -> None:
    with staged(Arm.PERSISTENT, sm90=sm90, draft_tokens=3) as stage:
        backend = stage.backend()
        own = backend.scratch.memory
        found = call_sites(stage, backend)
        assert {"decode", "encoder_only_verify", "ragged_verify", "verify", "draft_extend", "split_decode"} <= set(
            found
        )
        assert sm90 or "mixed_tail" in found
        for site, calls in found.items():
            assert all(call["multi_ctas_kv_counter_buffer"] is own for call in calls), site
        assert stage.arm is not None
        assert stage.arm.process.counters_made == stage.arm.process.scales_made == 0


@GPUS
def test_no_call_site_passes_a_buffer_in_the_baseline_arm(sm90: bool) -> None:
    with staged(Arm.BASELINE, sm90=sm90, draft_tokens=3) as stage:
        found = call_sites(stage, stage.backend())
        for site, calls in found.items():
            assert all(call.get("multi_ctas_kv_counter_buffer") is None for call in calls), site
        assert stage.arm is not None
        # What the baseline arm restores: FlashInfer's allocation, where its kernel uses one, and two fills a write.
        assert stage.arm.process.counters_made == (0 if sm90 else sum(map(len, found.values())))
        assert stage.arm.process.scales_made == 2 * len(stage.recorder.scales) > 0


@GPUS
def test_upstream_is_what_it_is_without_hooks(sm90: bool) -> None:
    def passed(stage: Stage, backend: Any) -> dict[str, list[bool]]:
        own = backend._multi_ctas_kv_counter_buffer
        assert own is not None
        return {
            site: [call["multi_ctas_kv_counter_buffer"] is own for call in calls]
            for site, calls in call_sites(stage, backend).items()
        }

    with staged(None, sm90=sm90, draft_tokens=3) as stage:
        plain = passed(stage, stage.backend())
    with staged(Arm.UPSTREAM, sm90=sm90, draft_tokens=3) as stage:
        backend = stage.backend()
        assert passed(stage, backend) == plain
        assert not hasattr(backend, "scratch")
        assert stage.arm is not None
        assert stage.arm.held() is None


def test_prefill_gets_the_default_scale_and_no_counters() -> None:
    with staged(Arm.PERSISTENT, sm90=False) as stage:
        backend = stage.backend()
        backend.forward_metadata = stage.metadata(2, max_seq_len_q=3)
        stage.run(backend, "EXTEND", 6)
        assert stage.recorder.decode == []
        assert ["multi_ctas_kv_counter_buffer" in call for call in stage.recorder.prefill] == [False]
        default = backend.scratch.default_scale()
        assert [scale.data_ptr() for pair in stage.recorder.scales for scale in pair] == [default.data_ptr()] * 2


@pytest.mark.parametrize("arm", list(Arm))
def test_layers_with_checkpoint_scales_keep_theirs(arm: Arm) -> None:
    with staged(arm, sm90=True) as stage:
        backend = stage.backend()
        backend.forward_metadata = stage.metadata(2)
        k_scale, v_scale = torch.tensor([0.5]), torch.tensor([0.25])
        stage.run(backend, "DECODE", 2, layer=stage.layer(k_scale=k_scale, v_scale=v_scale), decode=True)
        [(k, v)] = stage.recorder.scales
        assert (float(k), float(v)) == (0.5, 0.25)
        observed = backend.equipoise.observation
        assert (observed.checkpoint_scales, observed.own_scales, observed.other_scales) == (2, 0, 0)
        assert observed.scale_shared is None


def test_one_checkpoint_scale_alone_leaves_the_default_for_the_other() -> None:
    with staged(Arm.PERSISTENT, sm90=True) as stage:
        backend = stage.backend()
        backend.forward_metadata = stage.metadata(2)
        stage.run(backend, "DECODE", 2, layer=stage.layer(k_scale=torch.tensor([0.5])), decode=True)
        [(k, v)] = stage.recorder.scales
        assert float(k) == 0.5
        assert v.data_ptr() == backend.scratch.default_scale().data_ptr()


def test_two_backends_never_share_counters_and_always_the_scale() -> None:
    with staged(Arm.PERSISTENT, sm90=False) as stage:
        draft = stage.module.TRTLLMHAAttnMultiStepDraftBackend(make_runner(is_draft_worker=True), 1, 4)
        backends = [stage.backend(), stage.backend(skip_prefill=True), *draft.attn_backends]
        assert len(backends) == 5
        memories = [backend.scratch.memory for backend in backends]
        spans = sorted((memory.data_ptr(), memory.data_ptr() + memory.numel()) for memory in memories)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert len({backend.scratch.default_scale().data_ptr() for backend in backends}) == 1
        for backend in backends:
            found = call_sites(stage, backend)
            passed = {call["multi_ctas_kv_counter_buffer"].data_ptr() for calls in found.values() for call in calls}
            assert passed == {backend.scratch.memory.data_ptr()}
        assert stage.arm is not None
        described = stage.arm.describe()["backends"]
        assert isinstance(described, dict)
        assert list(described) == ["0:draft", "1:draft", "2:draft", "3:target", "4:target"]


@settings(max_examples=40, deadline=None)
@given(
    running=st.integers(1, 5_000),
    draft_tokens=st.one_of(st.none(), st.integers(0, 16)),
    heads=st.integers(1, 128),
    sm_count=st.just(SM_COUNT),
)
def test_the_buffer_follows_the_rule_over_random_shapes(
    running: int, draft_tokens: int | None, heads: int, sm_count: int
) -> None:
    with staged(Arm.PERSISTENT, sm90=False, draft_tokens=draft_tokens) as stage:
        runner = make_runner(
            max_running_requests=running,
            model_config={"num_attention_heads": heads, "get_num_kv_heads": lambda _size: KV_HEADS},
        )
        backend = stage.backend(runner)
    rows = max(FLOOR_ROWS, (running + 1) * max(1, draft_tokens or 1))
    counters = max(rows * heads, sm_count)
    memory = backend._multi_ctas_kv_counter_buffer
    assert memory.numel() * memory.element_size() == (counters + 7) // 8 * 8 * 4
    assert backend.scratch.capacity() == (rows, heads)
    assert memory.data_ptr() % 16 == 0
    assert not memory.any()


def test_a_batch_above_the_rule_but_below_the_floor_is_served() -> None:
    # Without SGLang's floor a captured batch above (16 + 1) rows fails.
    with staged(Arm.PERSISTENT, sm90=False) as stage:
        backend = stage.backend()
        backend.forward_metadata = stage.metadata(100)
        stage.run(backend, "DECODE", 100, decode=True)
        assert len(stage.recorder.decode) == 1


def test_a_batch_above_the_capacity_is_refused_with_the_knob_before_the_kernel_runs() -> None:
    with staged(Arm.PERSISTENT, sm90=False) as stage:
        backend = stage.backend()
        rows = FLOOR_ROWS + 1
        backend.forward_metadata = stage.metadata(rows)
        with pytest.raises(CapacityError, match=f"--max-running-requests to at least {FLOOR_ROWS}"):
            stage.run(backend, "DECODE", rows, decode=True)
        assert stage.recorder.decode == []


def test_growth_by_the_host_is_found() -> None:
    # The fault of the sister backend: the attribute gets a larger buffer while graphs hold the old address.
    with staged(Arm.PERSISTENT, sm90=False) as stage:
        backend = stage.backend()
        backend.scratch.check()
        backend._multi_ctas_kv_counter_buffer = torch.zeros(2 * backend.scratch.memory.numel(), dtype=torch.uint8)
        with pytest.raises(ReplacedBufferError, match="replaced after capture"):
            backend.scratch.check()


def test_calls_of_other_backends_pass_through_untouched() -> None:
    with staged(Arm.PERSISTENT, sm90=False) as stage:
        stage.backend()
        flashinfer = sys.modules["flashinfer"]
        flashinfer.decode.trtllm_batch_decode_with_kv_cache(query=torch.zeros(1, HEADS, 16))
        assert "multi_ctas_kv_counter_buffer" not in stage.recorder.decode[0]
        assert stage.arm is not None
        assert stage.arm.process.paths == {"trtllm-gen": 0}


@GPUS
@pytest.mark.parametrize("arm", list(Arm))
def test_the_evidence_says_which_half_this_gpu_exercises(arm: Arm, sm90: bool) -> None:
    with staged(arm, sm90=sm90) as stage:
        backend = stage.backend()
        assert stage.arm is not None
        exercised = stage.arm.describe()["exercised"]
        assert isinstance(exercised, dict)
        assert "no decode kernel was called" in exercised["counters"]
        call_sites(stage, backend)
        exercised = stage.arm.describe()["exercised"]
        assert isinstance(exercised, dict)
        assert exercised["scales"] == "exercised"
        wanted = "not exercised: xqa returns before it looks at the counter buffer" if sm90 else "exercised"
        assert exercised["counters"] == wanted
        assert stage.arm.process.kernel_path == ("xqa" if sm90 else "trtllm-gen")
        json.dumps(stage.arm.describe())


def test_xqa_semaphores_are_part_of_the_guard_on_sm90_only() -> None:
    for sm90 in (True, False):
        with staged(Arm.PERSISTENT, sm90=sm90) as stage:
            backend = stage.backend()
            assert isinstance(backend.scratch, PersistentScratch)
            assert len(backend.scratch._further_checks) == (2 if sm90 else 1)


@pytest.fixture(scope="module")
def seen_in_0_5_17() -> dict[str, Any]:
    """What the class of SGLang 0.5.17 shows, in a process of its own with that version's wheel on its path."""
    wheels = sorted((CACHE / "wheels").glob("sglang-0.5.17-*.whl"))
    if not wheels:
        pytest.skip(
            f"SGLang 0.5.17's wheel is not in {CACHE / 'wheels'}; tests/contract/test_seam_wheels.py fetches it"
        )
    path = os.pathsep.join([str(ROOT), str(ROOT / "backends")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.backends.trtllm_sites", str(wheels[0])],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["sglang"] == "0.5.17"
    return found


@pytest.mark.parametrize("gpu", ["sm90", "sm100"])
@pytest.mark.parametrize("arm", list(Arm))
def test_every_call_site_of_0_5_17(arm: Arm, gpu: str, seen_in_0_5_17: dict[str, Any]) -> None:
    found = seen_in_0_5_17[f"{arm.value} {gpu}"]
    wanted = "own" if arm is Arm.PERSISTENT else "none"
    names = ["decode", "encoder_only_verify", "ragged_verify", "verify", "draft_extend"]
    assert found["sites"] == {name: [wanted] for name in names}
    assert found["scales"] == 2 * len(names)
    assert found["default_scales"] == (found["scales"] if arm is Arm.PERSISTENT else 0)
    assert found["treatment"]["scales_made_per_call"] == (0 if arm is Arm.PERSISTENT else found["scales"])
    made = 0 if arm is Arm.PERSISTENT or gpu == "sm90" else len(names)
    assert found["treatment"]["counters_made_per_call"] == made
    assert found["kernel_path"] == {"sm90": "xqa", "sm100": "trtllm-gen"}[gpu]
