"""Command lines and variables of the arms, compared with the flags that were found to work (DESIGN, gpu/README)."""

from pathlib import Path
from typing import get_args

import pytest

from equipoise_evals.model import ModelRef
from equipoise_service.engines.environment import (
    INHERITED,
    MEMORY_FRACTIONS,
    Device,
    EngineCommand,
    EngineEnvironment,
    EngineFiles,
    Start,
    engine_command,
    kernel_caches,
    process_environment,
)
from equipoise_service.engines.ports import EnginePorts
from equipoise_service.engines.presets import persistent_buffer

MODEL = ModelRef(name="m", source="folder", path="/models/m", revision="0")
FILES = EngineFiles(log=Path("/w/engine.log"), steps=Path("/w/steps.jsonl"), traces=Path("/w/traces"), gate=Path("/w"))


def command(
    device: Device, *, position: int = 0, plugin_path: Path | None = None, overlaps: bool = False
) -> EngineCommand:
    environment = EngineEnvironment("default", Path("/py"), plugin_path=plugin_path, device=device, overlaps=overlaps)
    start = Start("eq-1", EnginePorts(21_000, 21_001), FILES, position)
    return engine_command(environment, persistent_buffer(device).candidate, MODEL, start)


def test_the_command_line_on_a_cpu() -> None:
    argv = " ".join(command("cpu").argv)

    assert argv == (
        "/py -m sglang.launch_server --model-path /models/m --host 127.0.0.1 --port 21000 --nccl-port 21001 "
        "--mem-fraction-static 0.4 --device cpu --attention-backend torch_native --dtype float32 --sleep-on-idle "
        "--disable-radix-cache --random-seed 1 --max-total-tokens 16384 --max-running-requests 16"
    )


def test_the_command_line_on_a_gpu_is_decode_only_and_captures_the_timed_batches() -> None:
    argv = " ".join(command("cuda").argv)

    assert "--prefill-attention-backend triton --decode-attention-backend trtllm_mha" in argv
    assert "--kv-cache-dtype fp8_e4m3 --page-size 64" in argv
    assert argv.endswith("--cuda-graph-bs-decode 1 16")


def test_the_second_engine_on_a_gpu_counts_what_the_first_took() -> None:
    fractions = [command("cuda", position=position).argv for position in (0, 1)]

    assert [argv[argv.index("--mem-fraction-static") + 1] for argv in fractions] == ["0.3", "0.5"]
    assert set(MEMORY_FRACTIONS) == set(get_args(Device))


def test_the_plugin_is_told_its_arm_its_log_and_its_launch() -> None:
    variables = command("cpu", plugin_path=Path("/plugin")).variables

    assert variables["EQUIPOISE_ARM"] == "persistent"
    assert variables["EQUIPOISE_STEP_LOG"] == "/w/steps.jsonl"
    assert variables["EQUIPOISE_LAUNCH_ID"] == "eq-1"
    assert variables["SGLANG_PLATFORM"] == "equipoise-cpu"
    assert variables["PYTHONPATH"] == "/plugin"
    assert variables["OMP_NUM_THREADS"] == "1"


def test_only_where_starts_overlap_is_there_a_gate_to_wait_at() -> None:
    assert command("cuda", overlaps=True).variables["EQUIPOISE_START_GATE"] == "/w"
    assert "EQUIPOISE_START_GATE" not in command("cuda").variables


def test_kernels_are_kept_in_one_folder_of_the_host() -> None:
    caches = kernel_caches(Path("/cache/kernels"))
    assert caches["TRITON_CACHE_DIR"] == "/cache/kernels/triton"
    assert len(set(caches.values())) == len(caches)


def test_the_platform_is_not_selected_on_a_gpu() -> None:
    assert "SGLANG_PLATFORM" not in command("cuda").variables


def test_secrets_of_the_service_do_not_reach_an_engine() -> None:
    service = {"PATH": "/bin", "HF_TOKEN": "hf_secret", "EQUIPOISE_DATABASE_URL": "postgres://user:pw@host/db"}

    environment = process_environment(command("cpu"), service)

    assert environment["PATH"] == "/bin"
    assert "HF_TOKEN" not in environment
    assert not any("secret" in value or "pw@" in value for value in environment.values())
    assert not any(word in name for name in INHERITED for word in ("TOKEN", "PASSWORD", "SECRET"))


@pytest.mark.parametrize("device", get_args(Device))
def test_the_arms_of_the_preset_differ_in_the_scratch_policy_alone(device: Device) -> None:
    pair = persistent_buffer(device, (1, 32))

    assert pair.baseline.differs_from(pair.candidate) == ("scratch",)
    assert (pair.baseline.scratch, pair.candidate.scratch) == ("baseline", "persistent")


def test_a_batch_beyond_sixteen_raises_the_limit_of_running_requests() -> None:
    flags = persistent_buffer("cpu", (1, 64)).baseline.flags

    assert flags[flags.index("--max-running-requests") + 1] == "64"
