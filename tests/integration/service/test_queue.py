"""The queue over the API: ends and restarts of the service, leases, limits, priorities, duplicates."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert, select, update

from equipoise_service.machine import Machine
from equipoise_service.measuring import Tools
from equipoise_service.requests import CompareRequest
from equipoise_service.resolve import resolve
from equipoise_service.service import running as serving
from equipoise_service.settings import Settings
from equipoise_service.store import NewComparison, Store
from equipoise_service.store.tables import comparisons
from tests.integration.service.conftest import LATENCY_ONLY, Start, running_over
from tests.integration.service.fake import FakeLauncher
from tests.integration.service.test_life import Gate


async def test_ending_the_service_queues_its_comparison_again_and_a_restart_goes_on(start: Start) -> None:
    gate = Gate()
    async with start(gate) as running:
        first = await running.submit()
        second = await running.submit()
        await gate.reached.wait()
        launcher = running.launchers[0]
        before = await running.events(first, most=3)
    assert launcher.alive == 0
    async with start() as running:
        # A listener that comes back after the restart misses and repeats nothing.
        rest = await running.events(first, after=before[-1][0])
        assert [seq for seq, _, _ in before + rest] == list(range(1, len(before + rest) + 1))
        told = [json.loads(data) for _, kind, data in rest if kind == "status"]
        assert [one["status"] for one in told] == ["queued", "running", "judging", "succeeded"]
        assert "what had been measured" in told[0]["reason"]
        views = [await running.ended(comparison_id) for comparison_id in (first, second)]
        assert [(view["status"], view["attempt"]) for view in views] == [("succeeded", 2), ("succeeded", 1)]


async def test_a_private_service_interrupts_what_runs_when_it_ends(start: Start) -> None:
    gate = Gate()
    async with start(gate, private=True) as running:
        comparison_id = await running.submit()
        await gate.reached.wait()
    async with start() as running:
        view = await running.view(comparison_id)
        assert view["status"] == "interrupted"
        assert "what had been measured" in view["error"]["reason"]


KILLED = "ffffffff-0000-7000-8000-000000000000"


def leave_running(settings: Settings, comparison_id: str, **columns: object) -> None:
    """What a SIGKILL leaves behind: a row that says running, with nobody at work on it."""
    values = {"lease_owner": None, "attempt": 1, "lease_until": None} | columns
    store = Store.open(settings.url_of_database)
    with store.database.write() as connection:
        kept = [comparisons.c[name] for name in ("model", "request", "plan", "created_at", "request_sha256")]
        row = connection.execute(select(*kept).where(comparisons.c.id == comparison_id)).mappings().one()
        connection.execute(insert(comparisons).values(id=KILLED, status="running", **row, **values))
    store.database.close()


@pytest.mark.parametrize(("attempt", "status"), [(1, "succeeded"), (2, "succeeded"), (3, "interrupted")])
async def test_what_a_killed_service_left_is_resumed_unless_it_keeps_killing(
    start: Start, settings: Settings, attempt: int, status: str
) -> None:
    async with start() as running:
        comparison_id = await running.submit()
        finished = await running.ended(comparison_id)
    leave_running(settings, comparison_id, attempt=attempt)
    async with start() as running:
        assert (await running.ended(KILLED))["status"] == status
        assert await running.view(comparison_id) == finished


async def test_what_another_owner_works_on_is_left_alone(start: Start, settings: Settings) -> None:
    async with start() as running:
        comparison_id = await running.submit()
        await running.ended(comparison_id)
    later = datetime.now(UTC) + timedelta(hours=1)
    leave_running(settings, comparison_id, lease_owner="there", lease_until=later)
    async with start() as running:
        await running.ended(await running.submit())
        assert (await running.view(KILLED))["status"] == "running"


async def test_what_an_owner_without_a_heartbeat_left_is_taken_over(start: Start, settings: Settings) -> None:
    async with start() as running:
        await running.ended(comparison_id := await running.submit())
        earlier = datetime.now(UTC) - timedelta(seconds=1)
        leave_running(settings, comparison_id, lease_owner="there", lease_until=earlier)
        # Another write of this service wakes its worker; without one it looks twice a minute.
        await running.ended(await running.submit())
        view = await running.ended(KILLED)
        assert (view["status"], view["attempt"]) == ("succeeded", 2)


async def test_a_comparison_that_was_taken_over_ends_its_engines_and_writes_no_end(settings: Settings) -> None:
    gate = Gate()
    launchers: list[FakeLauncher] = []
    machine = Machine(settings)

    def launcher(comparison_id: str, plan: object, recorder: object) -> FakeLauncher:
        launchers.append(FakeLauncher(recorder, gate))  # type: ignore[arg-type] # the worker's own recorder
        return launchers[-1]

    tools = Tools(launcher=launcher, prompts=lambda plan: ())
    async with serving(machine, lambda request: resolve(request, machine), tools, lease_s=0.2) as service:
        request = CompareRequest.model_validate(LATENCY_ONLY)
        plan = service.resolve(request)
        service.store.comparisons.add(
            NewComparison("c", "m", request.model_dump_json(), request.sha256, plan.model_dump_json())
        )
        await gate.reached.wait()
        with service.store.database.write() as connection:
            held = {"lease_owner": "there", "lease_until": datetime.now(UTC) + timedelta(hours=1)}
            connection.execute(update(comparisons).values(**held))
        async with asyncio.timeout(300):
            while launchers[0].alive:
                await asyncio.sleep(0.02)
        stored = service.store.comparisons.get("c")
        assert stored is not None
        assert stored.status == "running"


async def test_a_worker_that_hears_late_of_a_takeover_stores_nothing_more(start: Start, settings: Settings) -> None:
    gate = Gate()
    async with start(gate) as running:  # its lease is a minute, so no heartbeat tells it in time
        comparison_id = await running.submit()
        await gate.reached.wait()
        store = Store.open(settings.url_of_database)
        with store.database.write() as connection:
            connection.execute(update(comparisons).values(lease_owner="there"))
        before = store.records.load(comparison_id)
        gate.open.set()
        next_one = await running.ended(await running.submit())
        assert (next_one["status"], running.launchers[0].alive) == ("succeeded", 0)
        assert store.records.load(comparison_id) == before
        assert (await running.view(comparison_id))["status"] == "running"
        store.database.close()


@pytest.mark.parametrize(
    ("limits", "reason"),
    # Limits within which a busy machine, too, comes to the stage that hangs.
    [({"stall_limit_s": 8.0}, "no progress for 8 s"), ({"job_limit_s": 8.0}, "not done within 8 s")],
)
async def test_a_comparison_that_hangs_or_takes_too_long_fails(
    settings: Settings, limits: dict[str, float], reason: str
) -> None:
    async with running_over(settings.model_copy(update=limits), Gate()) as running:
        view = await running.ended(await running.submit())
        assert (view["status"], view["error"]["stage"], view["error"]["reason"]) == ("failed", "warm_up", reason)
        assert running.launchers[0].alive == 0


async def test_priorities_and_duplicates(start: Start) -> None:
    gate = Gate()
    async with start(gate) as running:
        first = await running.submit()
        await gate.reached.wait()
        low, high = await running.submit(priority=-1), await running.submit(priority=1)
        again = await running.client.post("/compare?reuse=true", json=LATENCY_ONLY | {"priority": 1})
        assert (again.status_code, again.json()["id"]) == (202, high)
        gate.open.set()
        views = [await running.ended(comparison_id) for comparison_id in (first, high, low)]
        assert [view["started_at"] for view in views] == sorted(view["started_at"] for view in views)
        # What has ended is measured again.
        again = await running.client.post("/compare?reuse=true", json=LATENCY_ONLY | {"priority": 1})
        assert again.json()["id"] not in (first, high, low)
