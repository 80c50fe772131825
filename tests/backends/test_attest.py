"""The record in ``/server_info`` on a fake scheduler around real backends."""

import json
import os
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

from equipoise_backends import attest
from equipoise_backends.bare_step import BareStep, Shape, decode, make_step
from equipoise_backends.plugin import Plugin, RefusedPlugin
from equipoise_backends.reference import ReferenceAttnBackend
from equipoise_backends.scratch import PersistentScratch
from equipoise_backends.settings import Arm, Settings

SHAPE = Shape(3, 6, 2, 16, 16)


@pytest.fixture
def step() -> BareStep:
    generator = torch.Generator().manual_seed(31)
    return make_step(SHAPE, [70, 3], generator, max_running_requests=4, dtype=torch.float32)


def plugin_of(arm: Arm, step_log: Path | None = None, unmet: list[str] | None = None) -> Plugin:
    return Plugin(Settings(arm, step_log, "launch-7"), unmet or [])


def scheduler_of(backend: object) -> SimpleNamespace:
    return SimpleNamespace(tp_worker=SimpleNamespace(model_runner=SimpleNamespace(attn_backend=backend)))


def ask(plugin: Plugin | RefusedPlugin, scheduler: SimpleNamespace) -> dict[str, Any]:
    """What a GET of ``/server_info`` finds, through JSON as over the wire."""
    result = plugin.after_get_internal_state(SimpleNamespace(internal_state={"world_size": 1}), scheduler, "request")
    assert result.internal_state["world_size"] == 1
    return json.loads(json.dumps(result.internal_state["equipoise"]))


def test_persistent_arm_attests_what_calls_got(step: BareStep) -> None:
    plugin = plugin_of(Arm.PERSISTENT)
    backend = ReferenceAttnBackend(step.runner, plugin.make_scratch(step.runner))
    scheduler = scheduler_of(backend)
    before = ask(plugin, scheduler)["scratch"]
    assert (before["scale_shared"], before["counters_reused"], before["decode_calls"]) == (None, None, 0)
    decode(backend, step)
    record = ask(plugin, scheduler)
    assert record["scratch"] == {
        "policy": "PersistentScratch",
        # (4 + 1) rows of 6 int32 counters.
        "counter_bytes": 5 * 6 * 4,
        "counter_rows": 5,
        "counter_heads": 6,
        "counters_reused": True,
        "scale_shared": True,
        "decode_calls": 3,
    }
    assert record["guard"] == {"state": "clean", "message": None, "checks": 2}
    assert (record["arm"], record["launch_id"], record["pid"]) == ("persistent", "launch-7", os.getpid())
    assert record["decode_backend"] == attest.REFERENCE_CLASS
    assert record["kernel_path"] == "reference"
    assert record["seam"] == "ok"
    assert record["versions"]["torch"] == torch.__version__
    assert record["device"]["type"] == "cpu"


def test_baseline_arm_attests_that_nothing_is_held(step: BareStep) -> None:
    plugin = plugin_of(Arm.BASELINE)
    backend = ReferenceAttnBackend(step.runner, plugin.make_scratch(step.runner))
    decode(backend, step)
    record = ask(plugin, scheduler_of(backend))
    assert record["scratch"]["policy"] == "PerCallScratch"
    assert record["scratch"]["scale_shared"] is False
    assert [record["scratch"][name] for name in ("counter_bytes", "counter_rows", "counter_heads")] == [None] * 3
    assert record["guard"] == {"state": "not_applicable", "message": None, "checks": 0}


def test_upstream_is_seen_as_torch_native_without_scratch(step: BareStep) -> None:
    record = ask(plugin_of(Arm.UPSTREAM), scheduler_of(TorchNativeAttnBackend(step.runner)))
    assert record["kernel_path"] == "torch_native"
    assert set(record["scratch"].values()) == {None}
    assert record["guard"]["state"] == "not_applicable"


def test_an_arm_whose_backend_did_not_come_through_shows_the_other_class(step: BareStep) -> None:
    # What a swallowed failure of the factory's replacement would look like: the arm's name, and torch_native at work.
    record = ask(plugin_of(Arm.PERSISTENT), scheduler_of(TorchNativeAttnBackend(step.runner)))
    assert record["arm"] == "persistent"
    assert record["kernel_path"] == "torch_native"
    assert record["scratch"]["policy"] is None


def test_an_unknown_backend_has_no_kernel_path() -> None:
    record = ask(plugin_of(Arm.PERSISTENT), scheduler_of(object()))
    assert (record["decode_backend"], record["kernel_path"]) == ("builtins.object", None)


def test_the_decode_backend_is_found_inside_a_hybrid_one(step: BareStep) -> None:
    inner = TorchNativeAttnBackend(step.runner)
    assert attest.decode_backend(scheduler_of(SimpleNamespace(decode_backend=inner, prefill_backend=None))) is inner


def test_guard_finds_dirt_on_demand_and_never_forgets_it(step: BareStep) -> None:
    plugin = plugin_of(Arm.PERSISTENT)
    scratch = plugin.make_scratch(step.runner)
    assert isinstance(scratch, PersistentScratch)
    scheduler = scheduler_of(ReferenceAttnBackend(step.runner, scratch))
    scratch.buffer[1, 1] = 5
    assert ask(plugin, scheduler)["guard"]["state"] == "dirty"
    scratch.buffer.zero_()
    guard = ask(plugin, scheduler)["guard"]
    assert (guard["state"], guard["checks"]) == ("dirty", 2)
    assert "1 of 30 are not zero" in guard["message"]


def test_guard_checks_once_per_change_from_busy_to_idle(step: BareStep) -> None:
    plugin = plugin_of(Arm.PERSISTENT)
    backend = ReferenceAttnBackend(step.runner, plugin.make_scratch(step.runner))
    scheduler = scheduler_of(backend)
    for _ in range(3):
        decode(backend, step)
        for _ in range(4):
            plugin.after_on_idle(None, scheduler)
    # Three at idle and this one on demand.
    assert ask(plugin, scheduler)["guard"]["checks"] == 4


def test_asking_flushes_the_steps_and_says_how_many(step: BareStep, tmp_path: Path) -> None:
    log = tmp_path / "steps.jsonl"
    plugin = plugin_of(Arm.UPSTREAM, log)
    backend = TorchNativeAttnBackend(step.runner)
    runner = SimpleNamespace(model_runner=step.runner)
    for _ in range(2):
        plugin.clock.around_eager_decode(lambda *_: decode(backend, step), runner, step.batch)
    assert not log.exists()
    record = ask(plugin, scheduler_of(backend))
    assert (record["step_log"], record["steps_seen"], record["steps_written"]) == (str(log), 2, 2)
    rows = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    assert [row[1:4] for row in rows] == [[2, 2, 73], [2, 2, 73]]


def test_unmet_requirements_are_attested_all_at_once() -> None:
    record = ask(plugin_of(Arm.PERSISTENT, unmet=["a is gone", "b takes (x)"]), scheduler_of(object()))
    assert record["seam"] == ["a is gone", "b takes (x)"]


def test_refused_settings_leave_a_record_that_cannot_pass_for_an_arm() -> None:
    record = ask(RefusedPlugin("EQUIPOISE_ARM is not set"), SimpleNamespace())
    assert record["refused"] == "EQUIPOISE_ARM is not set"
    assert "arm" not in record


def test_what_has_no_name_is_no_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "half_removed-1.dist-info").mkdir()
    (tmp_path / "whole-2.dist-info").mkdir()
    (tmp_path / "whole-2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: A._Whole\nVersion: 2\n")
    monkeypatch.setattr(attest, "distributions", lambda: distributions(path=[str(tmp_path)]))
    assert attest.describe_packages.__wrapped__() == {"a-whole": "2"}
