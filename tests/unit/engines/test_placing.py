"""Device sets and the estimate of memory, on models whose sizes are written here."""

import json
from pathlib import Path
from typing import Any

import pytest

from equipoise_evals.model import ArmPair, ArmSpec, Layout, ModelRef
from equipoise_service.engines import persistent_buffer
from equipoise_service.engines.placing import (
    GIB,
    chosen_layout,
    devices_of,
    engine_bytes,
    gpus_needed,
    gpus_of_engine,
    kv_bytes_per_token,
)
from tests.support import records as make

POOL = ("4", "5", "6", "7")
# The shape of Llama 3 8B by its config.json: 2 (K and V) x 32 layers x 8 heads x 128 x 1 byte of fp8 = 65,536 bytes.
CONFIG: dict[str, Any] = {
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096,
}  # fmt: skip


def arms(*flags: str) -> ArmPair:
    return ArmPair(
        baseline=ArmSpec(name="baseline", scratch="baseline", flags=flags),
        candidate=ArmSpec(name="persistent", scratch="persistent", flags=flags),
    )


def model(folder: Path, gib: float, config: dict[str, Any] | None = None) -> ModelRef:
    """A folder whose weights take so many GiB, of a sparse file."""
    with (folder / "model.safetensors").open("wb") as weights:
        weights.truncate(int(gib * GIB))
    (folder / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    return ModelRef(name="m", source="folder", path=str(folder), revision="0")


@pytest.mark.parametrize("flag", ["--tp-size", "--tp", "--tensor-parallel-size"])
def test_tensor_parallelism_is_read_off_the_flags(flag: str) -> None:
    assert gpus_of_engine(arms(flag, "2")) == 2
    assert gpus_of_engine(arms()) == 1
    assert [gpus_needed(arms(flag, "2"), layout) for layout in ("co_resident", "alternating", "crossover")] == [2, 2, 4]


def test_every_kind_of_parallelism_takes_gpus_but_data_parallelism_within_tensor_parallelism() -> None:
    assert gpus_of_engine(arms("--pp-size", "2")) == 2
    assert gpus_of_engine(arms("--tp-size", "2", "--pp-size", "3", "--dp-size", "2")) == 12
    assert gpus_of_engine(arms("--tp-size", "4", "--dp-size", "4", "--enable-dp-attention")) == 4


@pytest.mark.parametrize("other", [{"kv_lora_rank": 512}, {"layer_types": ["full_attention", "linear_attention"]}])
def test_models_with_another_cache_than_k_and_v_of_every_layer_are_not_estimated(other: dict[str, object]) -> None:
    config: dict[str, object] = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
    assert kv_bytes_per_token(config, None) == 2 * 2 * 4 * 16 * 2
    assert kv_bytes_per_token(config | other, None) is None


@pytest.mark.parametrize(("layout", "sets"), [("co_resident", 1), ("alternating", 1), ("crossover", 2)])
@pytest.mark.parametrize("size", [1, 2])
def test_device_sets_are_cut_from_the_pool_and_balanced(layout: Layout, sets: int, size: int) -> None:
    plan = make.plan(layout=layout, arms=arms("--tp-size", str(size)))
    used = {(role, devices_of(plan, pair, role, POOL)) for pair in range(1, 5) for role in ("A", "B")}
    expected = [POOL[size * place : size * (place + 1)] for place in range(sets)]
    assert used == {(role, devices) for role in ("A", "B") for devices in expected}
    assert devices_of(plan, 1, "A", ()) == ()


def test_an_engine_takes_its_weights_and_its_pool(tmp_path: Path) -> None:
    arm = arms("--max-total-tokens", "65536", "--kv-cache-dtype", "fp8_e4m3").baseline
    assert engine_bytes(model(tmp_path, 15), arm) == 15 * GIB + 65_536 * 65_536
    assert engine_bytes(model(tmp_path, 15), arms().baseline) is None
    assert engine_bytes(model(tmp_path, 15, {"hidden_size": 8}), arm) is None
    (tmp_path / "model.safetensors").unlink()
    assert engine_bytes(ModelRef(name="m", source="folder", path=str(tmp_path), revision="0"), arm) is None


@pytest.mark.parametrize(
    "flags", [("--quantization", "fp8"), ("--dtype=float16",), ("--load-format", "dummy"), ("--cpu-offload-gb", "8")]
)
def test_weights_that_an_engine_holds_otherwise_than_its_files_are_not_estimated(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    arm = arms("--max-total-tokens", "65536", *flags).baseline
    assert engine_bytes(model(tmp_path, 15), arm) is None
    assert chosen_layout(model(tmp_path, 80), arms("--max-total-tokens", "65536", *flags), 80 * GIB)[0] == "co_resident"


@pytest.mark.parametrize(("stored", "known"), [("float32", False), ("bfloat16", True)])
def test_weights_that_are_stored_wider_than_they_are_loaded_are_not_estimated(
    tmp_path: Path, stored: str, known: bool
) -> None:
    arm = arms("--max-total-tokens", "65536").baseline
    for field in ("torch_dtype", "dtype"):
        assert (engine_bytes(model(tmp_path, 15, CONFIG | {field: stored}), arm) is not None) == known


def test_weights_in_two_layouts_count_once(tmp_path: Path) -> None:
    """Some models come with one file of everything beside the parts that the index names."""
    arm = arms("--max-total-tokens", "65536", "--kv-cache-dtype", "fp8_e4m3").baseline
    twice = model(tmp_path, 15)
    part = tmp_path / "model-00001-of-00001.safetensors"
    with part.open("wb") as weights:
        weights.truncate(15 * GIB)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": part.name, "b": part.name}}))
    assert engine_bytes(twice, arm) == 15 * GIB + 65_536 * 65_536


def test_a_head_may_have_a_size_of_its_own_and_two_bytes() -> None:
    assert kv_bytes_per_token(CONFIG, "auto") == 2 * 32 * 8 * 128 * 2
    assert kv_bytes_per_token(CONFIG | {"head_dim": 64}, None) == 2 * 32 * 8 * 64 * 2


def test_two_engines_that_do_not_fit_run_one_after_the_other_and_the_plan_says_why(tmp_path: Path) -> None:
    pair = persistent_buffer("cuda")
    small, large = model(tmp_path, 15), 40 * GIB
    layout, why = chosen_layout(small, pair, 140 * GIB)
    assert layout == "co_resident"
    assert "by its files and flags" in why
    assert "at least 19.0 GiB of each of its GPUs" in why
    assert "30% of 140.0 GiB" in why
    layout, why = chosen_layout(small, pair, large)
    assert layout == "alternating"
    assert why.startswith("two engines do not fit beside each other")
    two = arms(*pair.baseline.flags, "--tp-size", "2")
    assert chosen_layout(small, two, large)[0] == "co_resident"  # 9.5 GiB of each of two GPUs
    assert chosen_layout(small, pair, None) == (
        "co_resident", "the default: how much of a GPU's memory two engines need is not known here",
    )  # fmt: skip
