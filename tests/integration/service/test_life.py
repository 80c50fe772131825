"""The life of a comparison through the API: queued, run, judged, and every other end."""

import asyncio
import json
import socket

import pytest
import uvicorn
from fastapi import Response

from equipoise_evals.judge import canonical_json, judge
from equipoise_evals.model import Plan, Records, Verdict
from equipoise_evals.ports import EngineFault, Recorder
from equipoise_service.api.health import readyz
from equipoise_service.errors import StorageUnavailable
from equipoise_service.interchange import RecordsDocument
from equipoise_service.machine import Machine
from equipoise_service.measuring import Tools
from equipoise_service.requests import CompareRequest
from equipoise_service.resolve import resolve
from equipoise_service.server import bind
from equipoise_service.server import serving as serve
from equipoise_service.service import running as serving
from equipoise_service.settings import Settings
from equipoise_service.store import Comparisons, Database, NewComparison, Store, Stored
from equipoise_service.webhooks import Sender
from tests.integration.service.conftest import LATENCY_ONLY, Start
from tests.integration.service.fake import Call, FakeLauncher


class Gate:
    """Holds every decode call until it is opened."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def __call__(self, call: Call) -> None:
        if call.method == "decode":
            self.reached.set()
            await self.open.wait()


async def test_two_comparisons_run_one_after_the_other(start: Start) -> None:
    busy, most = 0, 0

    async def count(call: Call) -> None:
        nonlocal busy, most
        if call.method == "count_kernels":
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0.01)
            busy -= 1

    async with start(count) as running:
        ids = [await running.submit(), await running.submit()]
        views = [await running.ended(comparison_id) for comparison_id in ids]
        assert [view["status"] for view in views] == ["succeeded", "succeeded"]
        assert views[0]["finished_at"] <= views[1]["started_at"]
        assert most == 1
        assert [launcher.alive for launcher in running.launchers] == [0, 0]


async def test_the_stored_verdict_is_that_of_the_stored_records(start: Start) -> None:
    async with start() as running:
        comparison_id = await running.submit()
        view = await running.ended(comparison_id)
        text = (await running.client.get(f"/comparisons/{comparison_id}/records")).text
    document = RecordsDocument.model_validate_json(text)
    again = canonical_json(judge(document.observed, document.plan))
    assert document.verdict is not None
    assert again == canonical_json(document.verdict) == canonical_json(Verdict.model_validate(view["verdict"]))
    assert f'"verdict":{again}}}' in text  # byte for byte as it is stored
    assert view["plan"] == json.loads(text)["plan"]


async def test_events_come_once_and_in_order(start: Start) -> None:
    async with start() as running:
        comparison_id = await running.submit()
        events = await running.events(comparison_id)
        assert [seq for seq, _, _ in events] == list(range(1, len(events) + 1))
        statuses = [json.loads(data)["status"] for _, kind, data in events if kind == "status"]
        assert statuses == ["queued", "running", "judging", "succeeded"]
        stages = {json.loads(data)["stage"] for _, kind, data in events if kind == "progress"}
        assert {"launch", "warm_up", "treatment", "decode"} <= stages
        assert await running.events(comparison_id, after=5) == events[5:]


async def test_after_the_last_event_there_is_no_content(start: Start) -> None:
    async with start() as running:
        comparison_id = await running.submit()
        last = len(await running.events(comparison_id))
        answer = await running.client.get(f"/comparisons/{comparison_id}/events", headers={"Last-Event-ID": str(last)})
        assert (answer.status_code, answer.content) == (204, b"")


async def test_a_listener_that_drops_misses_and_repeats_nothing(start: Start) -> None:
    gate = Gate()
    async with start(gate) as running:
        comparison_id = await running.submit()
        first = await running.events(comparison_id, most=3)
        gate.open.set()
        rest = await running.events(comparison_id, after=first[-1][0])
        assert [seq for seq, _, _ in first + rest] == list(range(1, len(first + rest) + 1))


async def test_progress_shows_while_it_runs_and_not_after(start: Start) -> None:
    gate = Gate()
    async with start(gate) as running:
        comparison_id = await running.submit()
        await gate.reached.wait()
        view = await running.view(comparison_id)
        assert (view["status"], view["verdict"], view["error"]) == ("running", None, None)
        assert view["progress"]["stage"] == "warm_up"
        gate.open.set()
        assert (await running.ended(comparison_id))["progress"] is None


async def test_an_engine_that_dies_fails_the_comparison_and_keeps_what_was_measured(start: Start) -> None:
    async def die(call: Call) -> None:
        if call == Call("decode", "B", 2):
            raise EngineFault("B", "decode", "the engine was killed by SIGKILL", "last words")

    async with start(die) as running:
        comparison_id = await running.submit()
        view = await running.ended(comparison_id)
        assert view["status"] == "failed"
        assert view["error"] == {
            "arm": "B",
            "stage": "decode",
            "reason": "the engine was killed by SIGKILL",
            "log_tail": "last words",
        }
        records = (await running.client.get(f"/comparisons/{comparison_id}/records")).json()["records"]
        kinds = [record["kind"] for record in records]
        assert kinds.count("block") == 8  # pair 1: one ABBA quad at each of two batch sizes
        assert kinds[-2:] == ["stop", "stop"]
        assert running.launchers[0].alive == 0
        # The queue goes on.
        assert (await running.ended(await running.submit(pairs_max=1)))["status"] == "succeeded"


async def test_a_defect_becomes_a_stored_failure(start: Start) -> None:
    async def defect(call: Call) -> None:
        raise ZeroDivisionError("of ours")

    async with start(defect) as running:
        view = await running.ended(await running.submit())
        assert view["status"] == "failed"
        assert (view["error"]["stage"], view["error"]["reason"]) == ("internal", "ZeroDivisionError: of ours")
        assert "Traceback" in view["error"]["log_tail"]


async def test_cancelling_a_running_comparison_ends_its_engines_first(start: Start) -> None:
    gate = Gate()
    async with start(gate) as running:
        comparison_id = await running.submit()
        await gate.reached.wait()
        answer = await running.client.post(f"/comparisons/{comparison_id}/cancel")
        assert answer.status_code == 202
        view = await running.ended(comparison_id)
        assert view["status"] == "cancelled"
        assert running.launchers[0].alive == 0
        again = await running.client.post(f"/comparisons/{comparison_id}/cancel")
        assert again.status_code == 409
        assert again.json()["type"] == "/problems/already-finished"


async def test_cancelling_a_queued_comparison_starts_nothing(start: Start) -> None:
    gate = Gate()
    async with start(gate) as running:
        first = await running.submit()
        second = await running.submit()
        await gate.reached.wait()
        answer = await running.client.post(f"/comparisons/{second}/cancel")
        assert answer.json()["status"] == "cancelled"
        gate.open.set()
        await running.ended(first)
        assert len(running.launchers) == 1


async def test_an_interrupted_comparison_is_resumed_and_measures_only_what_lacks(start: Start) -> None:
    reached = asyncio.Event()

    async def hold(call: Call) -> None:
        if call == Call("decode", "B", 2):
            reached.set()
            await asyncio.Event().wait()

    async with start(hold, private=True) as running:
        comparison_id = await running.submit()
        await reached.wait()
    launched: list[int] = []

    async def note(call: Call) -> None:
        if call.method == "attest":
            launched.append(call.pair)

    async with start(note) as running:
        assert (await running.view(comparison_id))["status"] == "interrupted"
        before = await running.events(comparison_id)
        answer = await running.client.post(f"/comparisons/{comparison_id}/resume")
        assert answer.status_code == 202
        assert (answer.json()["status"], answer.json()["error"]) == ("queued", None)
        rest = await running.events(comparison_id, after=before[-1][0])
        statuses = [json.loads(data)["status"] for _, kind, data in rest if kind == "status"]
        assert statuses == ["queued", "running", "judging", "succeeded"]
        assert set(launched) == {2, 3}
        view = await running.view(comparison_id)
        assert view["verdict"]["latency"]["evidence"]["busy"]["pairs"] == 3
        refused = await running.client.post(f"/comparisons/{comparison_id}/resume")
        assert (refused.status_code, refused.json()["type"]) == (409, "/problems/not-resumable")
        assert "is succeeded" in refused.json()["detail"]


async def test_what_an_untrusted_engine_answered_is_not_gone_on_with(start: Start) -> None:
    async def trip(call: Call) -> None:
        if call.pair == 2 and call.method == "decode":
            raise EngineFault(call.role, "attest", "rank 0: the guard reports 'dirty'")

    async with start(trip) as running:
        comparison_id = await running.submit()
        assert (await running.ended(comparison_id))["status"] == "failed"
        refused = await running.client.post(f"/comparisons/{comparison_id}/resume")
        assert (refused.status_code, refused.json()["type"]) == (409, "/problems/not-resumable")
        assert "the guard reports 'dirty'" in refused.json()["detail"]
        page = await running.client.get(f"/comparisons/{comparison_id}/page")
        assert page.status_code == 200  # what has no verdict has a page too
        assert "the guard reports" in page.text
        assert (await running.view(comparison_id))["status"] == "failed"


class SlowEnd:
    """Holds the first decode call, and takes a while to let go when it is cancelled, as an engine's end does."""

    def __init__(self) -> None:
        self.reached, self.ended = asyncio.Event(), False

    async def __call__(self, call: Call) -> None:
        if call.method != "decode":
            return
        self.reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.2)
            self.ended = True


async def test_cancelling_twice_does_not_break_off_the_end_of_the_engines(start: Start) -> None:
    slow = SlowEnd()
    async with start(slow) as running:
        comparison_id = await running.submit()
        await slow.reached.wait()
        for _ in range(2):
            assert (await running.client.post(f"/comparisons/{comparison_id}/cancel")).status_code == 202
            await asyncio.sleep(0.05)
        assert (await running.ended(comparison_id))["status"] == "cancelled"
        assert slow.ended


async def test_ending_the_service_waits_for_a_cancellation(start: Start, settings: Settings) -> None:
    slow = SlowEnd()
    async with start(slow) as running:
        comparison_id = await running.submit()
        await slow.reached.wait()
        await running.client.post(f"/comparisons/{comparison_id}/cancel")
        asked = stored(settings, comparison_id)
    assert (asked.status, asked.cancel_requested_at is None) == ("running", False)
    assert slow.ended
    ended = stored(settings, comparison_id)
    assert (ended.status, ended.cancel_requested_at) == ("cancelled", None)


def stored(settings: Settings, comparison_id: str) -> Stored:
    store = Store.open(settings.url_of_database)
    found = store.comparisons.get(comparison_id)
    store.database.close()
    assert found is not None
    return found


async def test_a_verdict_that_the_stored_records_do_not_give_is_none(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another(records: Records, plan: Plan) -> Verdict:
        return judge(Records(records=records.records[:-3]), plan)

    monkeypatch.setattr("equipoise_service.measuring.judge", another)
    async with start() as running:
        view = await running.ended(await running.submit())
        assert (view["status"], view["verdict"]) == ("failed", None)
        assert "give another verdict" in view["error"]["reason"]


async def test_a_worker_that_broke_is_told_and_leaves_nobody_behind(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = asyncio.Event()

    async def flush(_: Sender) -> None:
        flushed.set()

    def broken(*_: object) -> None:
        raise RuntimeError("a defect of the worker")

    monkeypatch.setattr(Sender, "flush", flush)
    async with start() as running:
        monkeypatch.setattr(Comparisons, "claim", broken)
        await running.submit()
        while (await running.client.get("/readyz")).json()["ready"]:
            await asyncio.sleep(0.01)
    assert flushed.is_set()
    assert "webhooks" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_a_database_that_cannot_be_read_is_not_ready(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start() as running:

        def broken(_: Database) -> None:
            raise StorageUnavailable("disk I/O error")

        monkeypatch.setattr(Database, "read", broken)
        answer = await running.client.get("/readyz")
        assert answer.status_code == 503
        said = "the database cannot be used now: disk I/O error; ask again in a moment"
        others = {"disk": "ok", "device": "ok", "webhooks": "ok"}
        assert answer.json()["checks"] == {"database": said, "worker": "ok"} | others
        monkeypatch.undo()
        assert (await running.client.get("/readyz")).status_code == 200


async def test_a_worker_that_ends_settles_its_comparison_and_is_missed(settings: Settings) -> None:
    gate = Gate()
    launchers: list[FakeLauncher] = []

    def launcher(comparison_id: str, plan: Plan, recorder: Recorder) -> FakeLauncher:
        launchers.append(FakeLauncher(recorder, gate))
        return launchers[-1]

    machine = Machine(settings)
    tools = Tools(launcher=launcher, prompts=lambda plan: ())
    async with serving(machine, lambda request: resolve(request, machine), tools) as service:
        request = CompareRequest.model_validate(LATENCY_ONLY)
        plan = service.resolve(request)
        new = NewComparison("c", "m", request.model_dump_json(), request.sha256, plan.model_dump_json())
        service.store.comparisons.add(new)
        await gate.reached.wait()
        service.working.cancel()
        await asyncio.wait({service.working})
        stored = service.store.comparisons.get("c")
        assert stored is not None
        assert stored.status == "queued"
        assert launchers[0].alive == 0
        assert readyz(service, Response()).checks["worker"] == "the worker has ended; see the log"


async def test_a_server_that_broke_is_no_orderly_end(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    shutdown = uvicorn.Server.shutdown

    async def ended_by_itself(_: uvicorn.Server) -> None:
        """As where there is nothing to do any more."""

    async def broken(server: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        await shutdown(server, sockets)
        raise RuntimeError("a defect of the server")

    monkeypatch.setattr(uvicorn.Server, "main_loop", ended_by_itself)
    monkeypatch.setattr(uvicorn.Server, "shutdown", broken)
    with pytest.raises(RuntimeError, match="a defect of the server"):
        await serve(settings, bind("127.0.0.1", 0), lambda: None)
