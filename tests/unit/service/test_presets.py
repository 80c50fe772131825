"""Preset files: the shipped ones, an operator's own, and mistakes with the line that they stand in."""

import hashlib
from pathlib import Path

import pytest

from equipoise_evals.model import BY_FILLS
from equipoise_service import errors
from equipoise_service.engines.presets import load_presets, persistent_buffer, read_preset, shipped_presets
from equipoise_service.engines.presets.document import document
from equipoise_service.engines.presets.model import Preset
from equipoise_service.machine import Machine
from equipoise_service.requests import CompareRequest
from equipoise_service.resolve import preset_of, resolve, with_defaults
from equipoise_service.settings import Settings

PAGE = Path(__file__).resolve().parents[3] / "docs" / "presets.md"
GOOD = """version: 1
name: mine
summary: One flag.
both:
  cpu:
    flags: [--device, cpu, --max-running-requests, "{running}"]
baseline: {name: old}
candidate:
  name: new
  options:
    any:
      flags: [--page-size, 64]
      environment: {OMP_NUM_THREADS: 2}
evidence:
  - {kind: kernel, name: fmha, change: appears}
"""


def written(folder: Path, text: str, name: str = "mine") -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(text)
    return file


def test_there_are_the_six_of_the_issue() -> None:
    assert set(shipped_presets()) == {
        "persistent-buffer", "sglang-version", "attention-backend", "kv-cache-dtype", "flag", "prefill",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("device", "sha256"),
    [
        # Of the arms as version 0.5.0 made them out of code, before presets were files.
        ("cuda", "a6ce6875443f1542fd98f21f577a15ca0e3774046d69549a3215b2edab5fe1f6"),
        ("cpu", "7138e4f4a044768a42649b9799fb91cc65c4aa106aaa837dbda9377b326c1e84"),
    ],
)
def test_the_first_preset_has_the_arms_that_it_always_had(device: str, sha256: str) -> None:
    arms = persistent_buffer("cuda" if device == "cuda" else "cpu", (1, 16))
    assert hashlib.sha256(arms.model_dump_json().encode()).hexdigest() == sha256
    assert shipped_presets()["persistent-buffer"].evidence == BY_FILLS


def test_a_file_of_the_operators_is_a_preset_beside_the_shipped_ones(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    arms = load_presets(tmp_path)["mine"].arms("simulated", (1, 64))
    assert arms.baseline.flags == ("--device", "cpu", "--max-running-requests", "64")
    assert arms.candidate.flags == (*arms.baseline.flags, "--page-size", "64")
    assert arms.candidate.environment == {"OMP_NUM_THREADS": "2"}
    assert (arms.baseline.name, arms.candidate.name, arms.candidate.scratch) == ("old", "new", "upstream")


@pytest.mark.parametrize(
    ("wrong", "right", "line", "reason"),
    [
        ("verson: 1", "version: 1", 1, "verson: Extra inputs are not permitted"),
        ("version: 2", "version: 1", 1, "version: Input should be 1"),
        ("name: other", "name: mine", 2, "name: other belongs into other.yaml"),
        ("summary: [a, b]", "summary: One flag.", 3, "summary: Input should be a valid string"),
        ("--devise, cpu", "--device, cpu", 6, "'--devise' is not among the flags that a request may set"),
        ("--model-path, /etc", "--device, cpu", 6, "'--model-path' is not among the flags"),
        ("--trust-remote-code", "--device, cpu", 6, "no request may run a model repository's code"),
        ("baseline: {nane: old}", "baseline: {name: old}", 7, "baseline.nane: Extra inputs"),
        ("--page-size, big", "--page-size, 64", 12, "--page-size needs a whole number, not 'big'"),
        ("--page-size, '{runing}'", "--page-size, 64", 12, "--page-size needs a whole number, not '{runing}'"),
        ("LD_PRELOAD: x", "OMP_NUM_THREADS: 2", 13, "LD_PRELOAD is not among the variables"),
        ("OMP_NUM_THREADS: many", "OMP_NUM_THREADS: 2", 13, "OMP_NUM_THREADS needs a whole number"),
        ("change: vanishes", "change: appears", 15, "'appears', 'disappears' or 'count'"),
        ("kind: kernal", "kind: kernel", 15, "evidence.0: Input tag 'kernal'"),
        ("summary: One flag.\nsummary: Two.", "summary: One flag.", 4, "summary stands there twice"),
        ("flags: [--page-size, 64", "flags: [--page-size, 64]", 13, "is not YAML"),
        ("{name: old, engine: ../x}", "{name: old}", 7, "baseline.engine: String should match pattern"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_file_line_and_reason(
    tmp_path: Path, wrong: str, right: str, line: int, reason: str
) -> None:
    assert right in GOOD
    file = written(tmp_path, GOOD.replace(right, wrong, 1))
    with pytest.raises(errors.PresetError) as refused:
        read_preset(file)
    assert (refused.value.file, refused.value.line) == (file, line)
    assert str(refused.value).startswith(f"{file}:{line}: "), "no setting led to this file"
    assert reason in str(refused.value)


def test_a_preset_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    written(tmp_path, GOOD.replace("version: 1", "version: one"))
    with pytest.raises(errors.PresetError, match=r"EQUIPOISE_PRESETS: .*mine\.yaml:1: version"):
        Machine(Settings(device="simulated", presets=tmp_path))


def test_what_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.PresetError, match=r"^EQUIPOISE_PRESETS: .*/nowhere: is no folder"):
        load_presets(tmp_path / "nowhere")
    with pytest.raises(errors.PresetError, match="cannot be read"):
        read_preset(tmp_path / "nowhere.yaml")
    with pytest.raises(errors.PresetError, match="valid dictionary"):
        read_preset(written(tmp_path, "", "empty"))
    (tmp_path / "empty.yaml").unlink()
    text = GOOD.replace("name: mine", "name: flag", 1)
    written(tmp_path, text, "flag")
    with pytest.raises(errors.PresetError, match="there is a shipped preset 'flag' already"):
        load_presets(tmp_path)


def test_an_operator_allows_more_flags_and_presets_may_use_them(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD.replace("--page-size, 64", "--my-flag, 64"))
    with pytest.raises(errors.PresetError, match="--my-flag"):
        read_preset(file)
    assert read_preset(file, {"--my-flag": "whole"}).name == "mine"


def test_the_page_of_fields_is_what_the_model_says() -> None:
    assert PAGE.read_text() == document(), "run `make schemas`"
    for name, field in Preset.model_fields.items():
        assert f"| `{name}` |" in document()
        assert field.description


def machine(tmp_path: Path) -> Machine:
    return Machine(Settings(data=tmp_path / "data", cache=tmp_path / "cache", device="simulated"))


def test_what_a_preset_leaves_open_must_be_given(tmp_path: Path) -> None:
    request = CompareRequest(model="m", preset="sglang-version")
    with pytest.raises(errors.RequestInvalid) as refused:
        preset_of(request, machine(tmp_path))
    (fault,) = refused.value.fields
    assert (fault.pointer, "name an engine environment, of default" in fault.detail) == ("/candidate/engine", True)
    given = CompareRequest.model_validate(
        {"model": "m", "preset": "sglang-version", "candidate": {"engine": "another"}}
    )
    assert preset_of(given, machine(tmp_path)).name == "sglang-version"


def test_a_preset_sets_what_the_request_leaves_out(tmp_path: Path) -> None:
    preset = shipped_presets()["prefill"]
    filled = with_defaults(CompareRequest(model="m", preset="prefill"), preset)
    assert (filled.batch_sizes, filled.primary_batch, filled.prompt_tokens, filled.steps_per_block) == (
        (1,),
        1,
        512,
        24,
    )
    own = with_defaults(CompareRequest(model="m", batch_sizes=(4,), primary_batch=4, prompt_tokens=9), preset)
    assert (own.batch_sizes, own.primary_batch, own.prompt_tokens, own.steps_per_block) == ((4,), 4, 9, 24)


def test_an_objective_of_requests_does_not_go_with_prefills(tmp_path: Path) -> None:
    asked = CompareRequest.model_validate({"model": "m", "preset": "prefill", "slo": {"ttft_ms": 100.0}})
    with pytest.raises(errors.RequestInvalid, match="prefills are timed here"):
        resolve(asked, machine(tmp_path))


def test_prefill_cannot_be_timed_in_engines_that_ran_already(tmp_path: Path) -> None:
    attached = {"attach": "http://127.0.0.1:1"}
    request = CompareRequest.model_validate(
        {"model": "m", "preset": "prefill", "declared_aa": True, "baseline": attached, "candidate": attached}
    )
    with pytest.raises(errors.RequestInvalid, match="engine's own clock"):
        preset_of(request, machine(tmp_path))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("defaults: {batch_sizes: [1, 4]}", "both or neither"),
        ("defaults: {batch_sizes: [1, 4], primary_batch: 8}", "primary_batch 8 is none of batch_sizes"),
    ],
)
def test_defaults_that_do_not_go_together(tmp_path: Path, text: str, reason: str) -> None:
    file = written(tmp_path, GOOD + text)
    with pytest.raises(errors.PresetError, match=reason) as refused:
        read_preset(file)
    assert refused.value.line == 16
