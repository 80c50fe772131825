"""Arms of one's own over HTTP, through simulated engines: environments by name, evidence, prefill, own presets."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from equipoise_evals.gsm8k.load import SHIPPED
from equipoise_service.server import bind, running_server
from equipoise_service.settings import Settings
from tests.fakes import environments
from tests.integration.service.conftest import Running
from tests.integration.service.served import PLAIN

ROOT = Path(__file__).resolve().parents[3]
FAST: dict[str, Any] = {"parts": ["latency"], "pairs_max": 3, "quads": 1}
SMALL = FAST | {"batch_sizes": [1, 4], "primary_batch": 4, "steps_per_block": 24}


@contextlib.asynccontextmanager
async def two_environments(folder: Path, presets: Path | None = None, **knobs: object) -> AsyncIterator[Running]:
    """A service whose default engines say SGLang 0.5.23, with a second environment that says 0.5.17."""
    new = environments.environment(folder / "new", sglang="0.5.23", torch="2.14.1")
    old = environments.environment(folder / "old", sglang="0.5.17", torch="2.11.0", flashinfer_python="0.6.15")
    settings = Settings(
        data=folder / "data",
        cache=folder / "cache",
        device="simulated",
        engine_python=new,
        engine_module="tests.fakes.simulated_engine",
        plugin_path=ROOT,
        engine_variables={
            "EQUIPOISE_SIM": json.dumps({"questions": [str(SHIPPED / "test.jsonl")], "time_scale": 0.0} | knobs)
        },
        presets=presets,
    )
    environments.register(settings.environments, "sglang-0.5.17", old, "0.5.17")
    listening = bind("127.0.0.1", 0)
    async with (
        running_server(settings, listening, listening.url),
        httpx.AsyncClient(base_url=listening.url, timeout=60, trust_env=False, verify=PLAIN) as client,
    ):
        yield Running(client, [])


async def test_two_sglang_versions_are_compared_and_what_differs_is_named(tmp_path: Path) -> None:
    """Issue 10, acceptance 1, through engines that say what their environments hold."""
    async with two_environments(tmp_path, effect={"sglang 0.5.17": 0.03}) as running:
        comparison_id = await running.submit(
            preset="sglang-version", candidate={"engine": "sglang-0.5.17", "name": "0.5.17"}, **SMALL
        )
        view = await running.ended(comparison_id)
        assert view["error"] is None
        verdict = view["verdict"]
        assert verdict["overall"]["word"] == "block"
        assert verdict["latency"]["evidence"]["busy"]["effect"] == pytest.approx(0.03, abs=0.005)
        (claim,) = verdict["treatment"]["claims"]
        assert (claim["declared"], claim["shown"]) == ("version of sglang differs", True)
        assert claim["seen"] == "'0.5.23' in the baseline, '0.5.17' in the candidate"
        report = (await running.client.get(f"/comparisons/{comparison_id}/report.json")).json()
        assert report["differs"] == ["engine"]
        assert {(c["name"], c["baseline"], c["candidate"]) for c in report["provenance"]["changes"]} == {
            ("flashinfer-python", None, "0.6.15"),
            ("sglang", "0.5.23", "0.5.17"),
            ("torch", "2.14.1", "2.11.0"),
        }
        packages = report["provenance"]["packages"]
        assert packages["A"]["pydantic"] == packages["B"]["pydantic"]  # the whole list, not what differs alone
        markdown = (await running.client.get(f"/comparisons/{comparison_id}/report.md")).text
        assert "`sglang` 0.5.23 → 0.5.17" in markdown
        page = (await running.client.get(f"/comparisons/{comparison_id}/page")).text
        assert "<tr><td>flashinfer-python</td><td>none</td><td>0.6.15</td></tr>" in page
        launches = [
            r for r in (await running.client.get(f"/comparisons/{comparison_id}/records")).json()["records"]
            if r["kind"] == "launch"
        ]  # fmt: skip
        assert [("packages" in r["attestation"]) for r in launches if r["pair"] > 1] == [False] * 4


async def test_the_same_environment_twice_is_inactive(tmp_path: Path) -> None:
    """Issue 10, acceptance 2: the declared version is the same, and so is everything else."""
    async with two_environments(tmp_path) as running:
        comparison_id = await running.submit(preset="sglang-version", candidate={"engine": "default"}, **SMALL)
        view = await running.ended(comparison_id)
        assert view["verdict"]["overall"]["word"] == "treatment_inactive"
        assert view["verdict"]["cost"]["launch_pairs"] == 1
        page = (await running.client.get(f"/comparisons/{comparison_id}/page")).text
        assert "Both arms have the same packages." in page


async def test_evidence_that_does_not_appear_fails_with_what_was_seen_instead(tmp_path: Path) -> None:
    """Issue 10, acceptance 2."""
    async with two_environments(tmp_path) as running:
        comparison_id = await running.submit(
            preset="flag",
            candidate={"flags": ["--attention-backend", "triton"]},
            evidence=[{"kind": "kernel", "name": "attention::flashinfer", "change": "appears"}],
            **SMALL,
        )
        view = await running.ended(comparison_id)
        assert (view["status"], view["error"]["stage"], view["error"]["arm"]) == ("failed", "treatment", "B")
        said = view["error"]["reason"]
        assert "kernel 'attention::flashinfer' appears: 0 per step in the baseline, 0 in the candidate" in said
        assert "attention::torch_native<auto> 30 and 0" in said
        assert "attention::triton<auto> 0 and 30" in said
        assert view["verdict"] is None


@pytest.mark.parametrize(
    ("preset", "candidate", "rule", "named"),
    [
        ("attention-backend", {"flags": ["--attention-backend", "triton"]}, "kernels", "attention::triton<auto>"),
        ("kv-cache-dtype", {}, "declared", "attention::torch_native<bfloat16>"),
    ],
)
async def test_a_shipped_preset_shows_what_its_arms_differ_in(
    tmp_path: Path, preset: str, candidate: dict[str, Any], rule: str, named: str
) -> None:
    async with two_environments(tmp_path) as running:
        comparison_id = await running.submit(preset=preset, candidate=candidate, **(SMALL | {"pairs_max": 1}))
        treatment = (await running.ended(comparison_id))["verdict"]["treatment"]
        assert (treatment["active"], treatment["rule"]) == (True, rule)
        assert treatment["candidate_per_step"][named] == 30  # once in each of the simulated layers


async def test_the_prefill_preset_finds_a_planted_difference(tmp_path: Path) -> None:
    """Issue 10, acceptance 5, once through the whole line; error rates: tests/guarantee/judge/test_prefill.py."""
    async with two_environments(
        tmp_path, prefill_effect={"sglang 0.5.17": -0.04}, prefill_us=8_000.0, time_scale=1.0
    ) as running:
        comparison_id = await running.submit(
            preset="prefill", candidate={"engine": "sglang-0.5.17"}, steps_per_block=16, **(FAST | {"pairs_max": 1})
        )
        view = await running.ended(comparison_id)
        assert view["error"] is None
        assert view["plan"]["latency"]["phase"] == "prefill"
        evidence = view["verdict"]["latency"]["evidence"]
        assert evidence["busy"]["effect"] == pytest.approx(-0.04, abs=0.01)
        assert evidence["period"]["baseline_us"] > evidence["busy"]["baseline_us"]  # the client waits for the engine
        assert "prefill" in view["verdict"]["headline"]
        page = (await running.client.get(f"/comparisons/{comparison_id}/page")).text
        assert "First token" in page
        assert "Counted per prefill" in page


async def test_prefills_cut_into_more_passes_run_each_kernel_more_often(tmp_path: Path) -> None:
    """Passes of 100 tokens: a prompt of 256 takes three of them, each with every kernel in all 30 layers."""
    async with two_environments(tmp_path) as running:
        comparison_id = await running.submit(
            preset="prefill", candidate={"flags": ["--chunked-prefill-size", "100"]}, prompt_tokens=256,
            steps_per_block=12, **(FAST | {"pairs_max": 1}),
        )  # fmt: skip
        view = await running.ended(comparison_id)
        assert view["error"] is None
        treatment = view["verdict"]["treatment"]
        assert (treatment["active"], treatment["phase"]) == (True, "prefill")
        assert treatment["baseline_per_step"]["aten::mm"] == 30
        assert treatment["candidate_per_step"]["aten::mm"] == 3 * 30
        csv = (await running.client.get(f"/comparisons/{comparison_id}/report.csv")).text
        assert "per prefill" in csv
        events = (await running.client.get(f"/comparisons/{comparison_id}/events")).text
        assert '"stage":"prefill"' in events
        assert '"stage":"decode"' not in events


async def test_a_preset_of_the_operators_runs(tmp_path: Path) -> None:
    presets = tmp_path / "presets"
    presets.mkdir()
    (presets / "mine.yaml").write_text(
        "version: 1\nname: mine\nsummary: Mine.\nbaseline: {name: old, engine: sglang-0.5.17}\ncandidate: {name: new}\n"
    )
    async with two_environments(tmp_path, presets) as running:
        comparison_id = await running.submit(preset="mine", **(SMALL | {"pairs_max": 1}))
        view = await running.ended(comparison_id)
        assert view["plan"]["arms"]["baseline"]["engine"] == "sglang-0.5.17"
        assert view["verdict"]["treatment"]["rule"] == "kernels"


async def test_requests_within_an_objective_are_counted(tmp_path: Path) -> None:
    async with two_environments(tmp_path, time_scale=1.0, step_us={1: 4000.0, 4: 4000.0}) as running:
        comparison_id = await running.submit(
            preset="flag", declared_aa=True, slo={"tpot_ms": 1_000}, **(SMALL | {"pairs_max": 1})
        )
        view = await running.ended(comparison_id)
        goodput = view["verdict"]["latency"]["evidence"]["goodput"]
        assert (goodput["baseline_share"], goodput["candidate_share"], goodput["interval_pp"]) == (1.0, 1.0, None)
        assert goodput["baseline_per_s"] > 0
        markdown = (await running.client.get(f"/comparisons/{comparison_id}/report.md")).text
        assert "Goodput at batch 4 (time per token up to 1000 ms): 100.0% of the baseline's" in markdown
