"""A4-01: where TRTLLM MHA runs, by version; expected refusals are SGLang's own conditions, read in its source."""

from pathlib import Path

import pytest

from equipoise_service.engines import persistent_buffer
from equipoise_service.engines.backends import Capability, backend_of, unsupported
from equipoise_service.errors import BackendUnsupported
from equipoise_service.machine import Machine, installed_sglang
from equipoise_service.requests import CompareRequest
from equipoise_service.resolve import resolve
from equipoise_service.settings import Settings

BOTH = ("--attention-backend", "trtllm_mha")
DECODE = ("--prefill-attention-backend", "triton", "--decode-attention-backend=trtllm_mha")
A100, H100, B200, B300, RTX, SPARK = (
    Capability(*pair) for pair in ((8, 0), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1))
)


@pytest.mark.parametrize(
    ("flags", "version", "gpu", "says"),
    [
        (BOTH, "0.5.17", H100, "trtllm_mha prefill needs SM100 in SGLang 0.5.17, found SM90"),
        (BOTH, "0.5.17", RTX, "trtllm_mha prefill needs SM100 in SGLang 0.5.17, found SM120"),
        (BOTH, "0.5.17.post1", SPARK, "trtllm_mha prefill needs SM100 in SGLang 0.5.17.post1, found SM121"),
        (BOTH, "0.5.17", B200, None),
        (BOTH, "0.5.17", B300, None),
        (BOTH, "0.5.23", H100, None),
        (BOTH, "0.5.23+cu130", RTX, None),
        (DECODE, "0.5.17", H100, None),
        (
            DECODE,
            "0.5.17",
            A100,
            "trtllm_mha decode needs SM90 or SM100 or SM120 in SGLang 0.5.17, found SM80",
        ),
        (("--attention-backend", "fa3"), "0.5.17", H100, None),
        ((), "0.5.17", H100, None),
    ],
)
def test_a4_01_what_would_refuse_to_start_is_known_before(
    flags: tuple[str, ...], version: str, gpu: Capability, says: str | None
) -> None:
    assert unsupported(flags, version, gpu) == says


def test_a4_01_decode_only_has_one_prefill_in_both_arms() -> None:
    arms = persistent_buffer("cuda")
    assert {backend_of("prefill", arm.flags) for arm in (arms.baseline, arms.candidate)} == {"triton"}
    assert {backend_of("decode", arm.flags) for arm in (arms.baseline, arms.candidate)} == {"trtllm_mha"}


def test_a4_01_it_is_refused_before_a_model_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(Settings(data=tmp_path / "data", cache=tmp_path / "cache", device="simulated"))
    monkeypatch.setattr(machine, "unsupported", lambda arm: unsupported(arm.flags, "0.5.17", H100))
    monkeypatch.setattr(machine, "model", lambda name: pytest.fail("no model may be fetched"))
    request = CompareRequest.model_validate({"model": "m", "parts": ["latency"], "candidate": {"flags": BOTH}})
    with pytest.raises(BackendUnsupported, match=r"prefill needs SM100 in SGLang 0\.5\.17, found SM90"):
        resolve(request, machine)


def test_the_installed_version_is_read_without_starting_anything(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    assert installed_sglang(python) is None
    (tmp_path / "lib" / "python3.11" / "site-packages" / "sglang-0.5.23.dist-info").mkdir(parents=True)
    assert installed_sglang(python) == "0.5.23"
