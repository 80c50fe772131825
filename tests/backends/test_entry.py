"""How SGLang gets to the plugin: entry points, settings, the CPU platform, the seam, the hooks."""

import pkgutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.model_executor.runner.eager_runner import EagerRunner
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform
from sglang.srt.plugins.hook_registry import HookRegistry

import equipoise_backends
from equipoise_backends import platform, plugin, seam
from equipoise_backends.settings import Arm, Settings, SettingsError

PACKAGE = Path(equipoise_backends.__file__).parent


def entry_points() -> dict[str, dict[str, str]]:
    with (PACKAGE.parent / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]["entry-points"]


def test_there_is_exactly_one_platform_entry_point() -> None:
    # With two, SGLang drops the general plugin of this distribution whenever one of them is selected.
    assert entry_points()["sglang.srt.platforms"] == {platform.NAME: "equipoise_backends.platform:activate"}
    assert entry_points()["sglang.srt.plugins"] == {"equipoise": "equipoise_backends.plugin:install"}


@pytest.mark.parametrize("selected", [None, "", "cuda", "equipoise"])
def test_platform_stays_out_unless_named(monkeypatch: pytest.MonkeyPatch, selected: str | None) -> None:
    monkeypatch.delenv("SGLANG_PLATFORM", raising=False)
    if selected is not None:
        monkeypatch.setenv("SGLANG_PLATFORM", selected)
    assert platform.activate() is None


def test_platform_is_a_cpu_without_capabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PLATFORM", platform.NAME)
    name = platform.activate()
    assert name is not None
    found = pkgutil.resolve_name(name)()
    assert isinstance(found, SRTPlatform)
    assert found.is_out_of_tree()
    assert found.capabilities == PlatformCapabilities()
    assert found.device_type == "cpu"
    assert found.is_pin_memory_available() is False
    assert found.get_dispatch_key_name() == "native"
    # One /start_profile kills an engine whose platform lacks these two.
    assert found.get_torch_profiler_activity_str() == "CPU"
    assert found.get_torch_profiler_activity() is torch.profiler.ProfilerActivity.CPU


def test_modules_of_every_version_import_nothing_of_sglang() -> None:
    # SGLang 0.5.17 lacks half of what the CPU arms need; an import error here would silently drop the plugin.
    names = ["platform", "plugin", "seam", "attest", "stepclock", "scratch", "settings", "host"]
    code = (
        f"import sys, importlib; [importlib.import_module('equipoise_backends.' + name) for name in {names}]; "
        "print(sorted(name for name in sys.modules if name.startswith(('sglang', 'flashinfer'))))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, check=True, timeout=120, capture_output=True, text=True
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("arm", list(Arm))
def test_settings_of_each_arm(arm: Arm, tmp_path: Path) -> None:
    log = tmp_path / "steps.jsonl"
    env = {"EQUIPOISE_ARM": arm.value, "EQUIPOISE_STEP_LOG": str(log), "EQUIPOISE_LAUNCH_ID": "x"}
    assert Settings.from_env(env) == Settings(arm, log, "x")
    assert Settings.from_env({"EQUIPOISE_ARM": arm.value}) == Settings(arm, None, None)


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({}, "EQUIPOISE_ARM is not set"),
        ({"EQUIPOISE_ARM": "Baseline"}, "EQUIPOISE_ARM='Baseline'"),
        ({"EQUIPOISE_ARM": ""}, "EQUIPOISE_ARM=''"),
        ({"EQUIPOISE_ARM": "baseline", "EQUIPOISE_STEP_LOG": "/does/not/exist/steps"}, "EQUIPOISE_STEP_LOG"),
    ],
)
def test_a_bad_setting_is_refused_by_name(env: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Settings.from_env(env)


def test_seam_holds_with_the_installed_sglang() -> None:
    assert seam.check(platform.NAME) == []


def test_seam_names_all_that_is_missing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Scheduler, "on_idle")
    monkeypatch.setattr(EagerRunner, "_execute_decode", lambda self, work: None)
    monkeypatch.setattr(seam, "CUDA", ())
    gone, changed = seam.check(None)
    assert "Scheduler.on_idle" in gone
    assert "guard check at idle" in gone
    assert "_execute_decode: takes (self, work), not (self, forward_batch" in changed


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        (seam.Requirement("sglang.no_such_module.Thing", "w"), "no_such_module"),
        (
            seam.Requirement("sglang.srt.managers.scheduler.Scheduler", "w", attributes=("self.no_such_thing",)),
            "no_such_thing",
        ),
    ],
)
def test_an_unmet_requirement_says_what_is_missing(requirement: seam.Requirement, reason: str) -> None:
    assert reason in str(seam.unmet(requirement))


def test_install_does_nothing_in_a_process_that_does_not_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, plugin.SCHEDULER, raising=False)
    monkeypatch.setattr(plugin, "_hook", lambda *_: pytest.fail("a hook was registered"))
    plugin.install()


EXECUTOR = "sglang.srt.model_executor"
STATE_HOOK = f"{plugin.SCHEDULER}.Scheduler.get_internal_state"
HOOKS = {
    STATE_HOOK,
    f"{plugin.SCHEDULER}.Scheduler.on_idle",
    f"{plugin.SCHEDULER}.Scheduler.run_batch",
    f"{EXECUTOR}.runner.eager_runner.EagerRunner._execute_decode",
    f"{EXECUTOR}.runner.eager_runner.EagerRunner._execute_extend",
    f"{EXECUTOR}.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner.execute",
    f"{EXECUTOR}.runner_backend.full_cuda_graph_backend.FullCudaGraphBackend.replay",
}


def owner_and_name(target: str) -> tuple[object, str]:
    owner, name = target.rsplit(".", 1)
    return pkgutil.resolve_name(owner), name


@pytest.fixture
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's own methods, factories and an empty registry, whatever a test does to them."""
    for target in HOOKS:
        owner, name = owner_and_name(target)
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setitem(ATTENTION_BACKENDS, "torch_native", ATTENTION_BACKENDS["torch_native"])
    monkeypatch.setattr(HookRegistry, "_hooks", defaultdict(list))
    monkeypatch.setattr(HookRegistry, "_patched", set())


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize(
    ("arm", "selected", "hooks", "reference"),
    [
        ("persistent", platform.NAME, HOOKS, True),
        ("baseline", platform.NAME, HOOKS, True),
        ("upstream", platform.NAME, HOOKS, False),
        ("persistent", "", HOOKS, False),
        ("nonsense", platform.NAME, {STATE_HOOK}, False),
    ],
)
def test_install_hooks_what_the_arm_needs(
    monkeypatch: pytest.MonkeyPatch, arm: str, selected: str, hooks: set[str], reference: bool
) -> None:
    originals = {target: getattr(*owner_and_name(target)) for target in HOOKS}
    monkeypatch.setenv("SGLANG_PLATFORM", selected)
    monkeypatch.setenv("EQUIPOISE_ARM", arm)
    plugin.install()
    HookRegistry.apply_hooks()
    hooked = {target for target, original in originals.items() if getattr(*owner_and_name(target)) is not original}
    assert hooked == hooks
    assert (ATTENTION_BACKENDS["torch_native"].__module__ == "equipoise_backends.reference") is reference


@pytest.mark.parametrize(
    ("name", "field", "text", "value"),
    [
        ("EQUIPOISE_STEP_CLOCK_EVERY", "clock_every", "16", 16),
        ("EQUIPOISE_STEP_CLOCK_ALTERNATING", "clock_alternating", "1", True),
        ("EQUIPOISE_STEP_CLOCK_PREFILL", "clock_prefill", "1", True),
        ("EQUIPOISE_TEST_DELAY_US", "test_delay_us", "50", 50),
        ("EQUIPOISE_UNCHECKED_SGLANG", "unchecked_sglang", "1", True),
    ],
)
def test_settings_of_one_arm_alone(name: str, field: str, text: str, value: object) -> None:
    env = {"EQUIPOISE_ARM": "baseline"}
    assert getattr(Settings.from_env(env), field) in (0, 1, False)
    assert getattr(Settings.from_env({**env, name: text}), field) == value
    for wrong in ("", "-1", "1.5", "yes", "²"):
        with pytest.raises(SettingsError, match=name):
            Settings.from_env({**env, name: wrong})


def test_a_clock_of_no_step_is_refused() -> None:
    with pytest.raises(SettingsError, match="at least 1"):
        Settings.from_env({"EQUIPOISE_ARM": "baseline", "EQUIPOISE_STEP_CLOCK_EVERY": "0"})


def test_an_unchecked_version_is_refused_unless_a_setting_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seam.refusal_of_version(allow_unchecked=False) is None
    monkeypatch.setattr(seam, "package_version", lambda _name: "0.5.24")
    refusal = seam.refusal_of_version(allow_unchecked=False)
    assert refusal is not None
    assert "sglang 0.5.24 was never checked" in refusal
    assert "EQUIPOISE_UNCHECKED_SGLANG=1" in refusal
    assert seam.refusal_of_version(allow_unchecked=True) is None
