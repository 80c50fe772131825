"""The whole line over HTTP through simulated engines, each a process that the real launcher starts and ends."""

import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from equipoise_evals.gsm8k.load import SHIPPED
from equipoise_service.engines.ports import HIGHEST, LOWEST
from equipoise_service.server import bind, running_server
from equipoise_service.settings import Settings
from tests.integration.service.conftest import Running
from tests.integration.service.served import PLAIN

ROOT = Path(__file__).resolve().parents[3]
SMALL: dict[str, Any] = {
    "parts": ["latency", "accuracy"], "questions": 16, "shots": 2, "pairs_max": 3, "quads": 1, "steps_per_block": 24,
}  # fmt: skip


@contextlib.asynccontextmanager
async def simulated(folder: Path, **knobs: object) -> AsyncIterator[Running]:
    """A service whose engines are simulated with these knobs."""
    simulation = {"questions": [str(SHIPPED / "test.jsonl")]} | knobs
    settings = Settings(
        data=folder / "data",
        cache=folder / "cache",
        device="simulated",
        engine_module="tests.fakes.simulated_engine",
        plugin_path=ROOT,
        engine_variables={"EQUIPOISE_SIM": json.dumps(simulation)},
    )
    listening = bind("127.0.0.1", 0)
    async with (
        running_server(settings, listening, listening.url),
        httpx.AsyncClient(base_url=listening.url, timeout=60, trust_env=False, verify=PLAIN) as client,
    ):
        yield Running(client, [])


def left_behind(folder: Path) -> list[str]:
    """Engine processes of this data folder, and engine ports that one of our children still listens on."""
    found = []
    children = {process.pid for process in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get("EQUIPOISE_STEP_LOG", "").startswith(str(folder)):
                found.append(f"process {process.pid}")
    for connection in psutil.net_connections("tcp"):
        if connection.pid in children and connection.laddr and LOWEST <= connection.laddr.port <= HIGHEST:
            found.append(f"port {connection.laddr.port}")
    return found


async def test_equal_answers_and_a_faster_candidate_ship(tmp_path: Path) -> None:
    async with simulated(tmp_path, effect={"persistent": -0.02}) as running:
        comparison_id = await running.submit(**SMALL)
        view = await running.ended(comparison_id)
        assert view["error"] is None
        verdict = view["verdict"]
        assert verdict["overall"]["word"] == "ship"
        assert verdict["accuracy"]["word"] == "identical"
        assert verdict["latency"]["evidence"]["busy"]["effect"] == pytest.approx(-0.02, abs=0.005)
        assert verdict["treatment"]["active"]
        assert verdict["cost"]["launch_pairs"] == 3
        report = (await running.client.get(f"/comparisons/{comparison_id}/report.md")).text
        plan = view["plan"]["accuracy"]["questions"]
        assert ", ".join(map(str, plan["ids"])) in report
        assert plan["test_sha256"] in report
        assert left_behind(tmp_path) == []


@pytest.mark.parametrize(
    ("failure", "arm", "stage", "kept"),
    [
        ({"kind": "dies_in_gsm8k", "role": "B", "pair": 1, "after": 3}, "B", "gsm8k", "treatment"),
        ({"kind": "dies_in_block", "role": "A", "pair": 2, "after": 60}, "A", "decode", "block"),
        ({"kind": "no_attestation", "role": "B"}, "B", "attest", "questions"),
        ({"kind": "wrong_arm", "role": "A"}, "A", "attest", "questions"),
    ],
)
async def test_an_engine_that_fails_ends_the_comparison_and_leaves_nothing(
    tmp_path: Path, failure: dict[str, object], arm: str, stage: str, kept: str
) -> None:
    async with simulated(tmp_path, failures=[failure]) as running:
        comparison_id = await running.submit(**SMALL)
        view = await running.ended(comparison_id)
        assert view["status"] == "failed"
        assert (view["error"]["arm"], view["error"]["stage"]) == (arm, stage)
        assert view["error"]["log_tail"]
        records = (await running.client.get(f"/comparisons/{comparison_id}/records")).json()["records"]
        assert kept in {record["kind"] for record in records}
        assert left_behind(tmp_path) == []


async def test_cancelling_ends_real_processes_first(tmp_path: Path) -> None:
    async with simulated(tmp_path, time_scale=20.0) as running:
        comparison_id = await running.submit(**SMALL)
        async with running.client.stream("GET", f"/comparisons/{comparison_id}/events") as stream:
            async for line in stream.aiter_lines():
                if "warm_up" in line:
                    break
        assert left_behind(tmp_path) != []
        await running.client.post(f"/comparisons/{comparison_id}/cancel")
        assert (await running.ended(comparison_id))["status"] == "cancelled"
        assert left_behind(tmp_path) == []


async def test_answers_that_part_are_shown_with_their_tokens_and_log_probabilities(tmp_path: Path) -> None:
    async with simulated(tmp_path, flip_rate={"persistent": 0.3}, seed=3) as running:
        comparison_id = await running.submit(parts=["accuracy"], questions=48, shots=2, pairs_max=2)
        view = await running.ended(comparison_id)
        assert view["error"] is None
        report = (await running.client.get(f"/comparisons/{comparison_id}/report.json")).json()
        pairs = {f"{pair['first']}-{pair['second']}": pair for pair in report["outputs"]["pairs"]}
        assert set(pairs) == {"A1-B1", "A1-A2", "B1-B2", "A2-B2"}
        assert pairs["A1-A2"]["texts_equal"] == pairs["B1-B2"]["texts_equal"] == 48
        crossed = pairs["A1-B1"]
        parted = crossed["parted"]
        assert 5 <= len(parted) == 48 - crossed["texts_equal"]  # 0.3 of 48 answers are worded otherwise
        # The simulated engines hold their own token for likelier, by 1.5 nats.
        asked = [one for one in parted if one["choices"]]
        assert len(asked) == min(len(parted), 16)
        for one in asked:
            assert one["divergence"]["token_index"] == 0  # the first word differs
            assert [one["choices"][role]["logprobs"] for role in ("A", "B")] == [[-0.25, -1.75], [-1.75, -0.25]]
            assert (one["gap_nats"], one["near_tie"]) == (1.5, False)
        assert crossed["flips"] > 0
        assert all(one["divergence"]["flips"] for one in parted[: crossed["flips"]])
        markdown = (await running.client.get(f"/comparisons/{comparison_id}/report.md")).text
        assert "### Where A1 and B1 part" in markdown
        page = (await running.client.get(f"/comparisons/{comparison_id}/page")).text
        assert "Where A1 and B1 part" in page
        assert "right in one arm only" in page


async def test_three_percent_of_failed_requests_are_reported_and_never_a_lower_accuracy(tmp_path: Path) -> None:
    """Issue 5, acceptance 8; the simulated engine refuses prompts by a fair draw of 3 %."""
    failure = {"kind": "errors", "share": 0.03, "role": "B"}
    async with simulated(tmp_path, failures=[failure], accuracy=1.0) as running:
        comparison_id = await running.submit(parts=["accuracy"], shots=2, pairs_max=2)
        view = await running.ended(comparison_id)
        overall = view["verdict"]["overall"]
        assert (overall["word"], overall["reason"]) == ("invalid", "missing_answers")
        assert view["verdict"]["accuracy"] is None
        report = (await running.client.get(f"/comparisons/{comparison_id}/report.json")).json()
        passes = {one["name"]: one for one in report["outputs"]["passes"]}
        failed = passes["B1"]["states"]["error"]
        assert 1 <= failed < 0.15 * passes["B1"]["asked"]
        assert passes["B1"]["states"]["incorrect"] == passes["A1"]["states"]["incorrect"] == 0
        assert passes["B1"]["right_of_answered"] == 1.0
        assert any(f"{failed} of {passes['B1']['asked']} requests of pass B1 failed" in w for w in report["warnings"])


async def test_questions_are_asked_through_the_chat_template_where_that_is_wanted(tmp_path: Path) -> None:
    async with simulated(tmp_path, accuracy=1.0, flip_rate={"persistent": 0.2}) as running:
        comparison_id = await running.submit(
            parts=["accuracy"], questions=12, shots=1, pairs_max=1, prompting="chat", seed=3
        )
        view = await running.ended(comparison_id)
        assert view["error"] is None
        assert view["plan"]["accuracy"]["prompting"] == "chat"
        records = (await running.client.get(f"/comparisons/{comparison_id}/records")).json()["records"]
        passes = [record for record in records if record["kind"] == "pass"]
        assert [answer["state"] for one in passes for answer in one["answers"]] == ["answered"] * 24
        assert passes[0]["probe"] == passes[1]["probe"]
        assert passes[0]["probe"]["tokens"] > 8
        report = (await running.client.get(f"/comparisons/{comparison_id}/report.json")).json()
        assert [one["right_of_asked"] for one in report["outputs"]["passes"]] == [1.0, 1.0]
        assert all(one["choices"] for one in report["outputs"]["pairs"][0]["parted"])


STRESSED: dict[str, Any] = {"parts": ["accuracy"], "questions": 16, "shots": 2, "pairs_max": 2, "stress": True}


async def test_a4_05_the_second_pass_is_scored_after_aborts_and_other_stress(tmp_path: Path) -> None:
    async with simulated(tmp_path, time_scale=1.0) as running:
        comparison_id = await running.submit(**STRESSED)
        view = await running.ended(comparison_id)
        assert view["error"] is None
        assert view["plan"]["stress"]
        records = (await running.client.get(f"/comparisons/{comparison_id}/records")).json()["records"]
        kinds = [(record["kind"], record["pair"]) for record in records if record["kind"] in {"stress", "pass"}]
        assert kinds == [("pass", 1)] * 2 + [("stress", 2)] * 2 + [("pass", 2)] * 2
        for record in records:
            if record["kind"] == "stress":
                phases = {phase["name"]: phase for phase in record["phases"]}
                assert list(phases) == ["long_prefills", "mixed_lengths", "aborts", "full_pool"]
                assert sum(phase["failed"] for phase in phases.values()) == 0
                # At batch 16 every other of 32 requests is to be aborted; on a busy machine some aborts come too late.
                assert phases["aborts"]["requests"] == 32
                assert 1 <= phases["aborts"]["aborted"] <= 16
                # Each takes an eighth of the pool of 16,384 tokens, and one more has to wait.
                assert phases["full_pool"]["requests"] == 9
                assert (record["pool_tokens"], record["longest_tokens"]) == (16_384, 8_186)
        accuracy = view["verdict"]["accuracy"]
        assert accuracy["word"] == "identical"
        assert {"A1-A2", "B1-B2"} <= accuracy["evidence"]["matches"].keys()
        for place in ("report.md", "page"):
            assert (
                "had been put under stress" in (await running.client.get(f"/comparisons/{comparison_id}/{place}")).text
            )


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        ({"kind": "dirty_after_abort", "role": "B"}, "after the phase aborts: rank 0: the guard reports 'dirty'"),
        ({"kind": "dies_in_block", "role": "B", "pair": 2, "after": 60}, "killed by SIGKILL"),
    ],
)
async def test_a_guard_that_trips_under_stress_fails_the_comparison(
    tmp_path: Path, failure: dict[str, object], says: str
) -> None:
    async with simulated(tmp_path, time_scale=1.0, failures=[failure]) as running:
        view = await running.ended(await running.submit(**STRESSED))
        assert view["status"] == "failed"
        assert (view["error"]["arm"], view["error"]["stage"]) == ("B", "stress")
        assert says in view["error"]["reason"]
        assert left_behind(tmp_path) == []


async def test_requests_that_fail_under_stress_are_counted(tmp_path: Path) -> None:
    async with simulated(tmp_path, failures=[{"kind": "refuses_long", "after": 4_000, "role": "A"}]) as running:
        view = await running.ended(await running.submit(**STRESSED))
        assert view["status"] == "succeeded"
        # The four prompts of the first phase that are as long as the engine allows.
        assert "4 failed" in view["verdict"]["accuracy"]["evidence"]["notes"][-1]


async def test_stress_without_a_second_pass_is_refused(tmp_path: Path) -> None:
    async with simulated(tmp_path) as running:
        answer = await running.client.post("/compare", json={"model": "m", "stress": True, "pairs_max": 1})
        assert answer.status_code == 422
        assert "needs accuracy among the parts" in answer.json()["detail"]


async def test_engine_logs_are_listed_and_read_as_long_as_they_are_kept(tmp_path: Path) -> None:
    async with simulated(tmp_path) as running:
        comparison_id = await running.submit(**(SMALL | {"parts": ["latency"], "pairs_max": 1}))
        await running.ended(comparison_id)
        page = (await running.client.get(f"/comparisons/{comparison_id}/page")).text
        addresses = re.findall(rf'href="(/comparisons/{comparison_id}/logs/[^"]+)"', page)
        assert len(addresses) == 2
        answer = await running.client.get(addresses[0])
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert "ready to roll" in answer.text
        gone = await running.client.get(f"/comparisons/{comparison_id}/logs/pair-001-A-1-00000000")
        assert (gone.status_code, gone.json()["type"]) == (404, "/problems/log-not-kept")
        for outside in ("..%2f..%2fequipoise.db", "pair-001-A-1-00000000%2f..", "x"):
            answer = await running.client.get(f"/comparisons/{comparison_id}/logs/{outside}")
            assert answer.status_code in {404, 422}
