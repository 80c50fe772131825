"""What becomes of a comparison at a place, with places that are no processes; needs the extra, and no cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from equipoise_service.measuring import Concluded, LimitReached
from equipoise_service.settings import Settings
from equipoise_service.store import Holder, Stored, StoredError
from equipoise_service.store.status import Status
from equipoise_service.worker import MeasuredElsewhere, PlaceLost
from tests.support import records as make

pytest.importorskip("ray")

from ray.exceptions import RayActorError

from equipoise_service.cluster import executor as module
from equipoise_service.cluster.actor import Answer, Job
from equipoise_service.cluster.executor import RayExecutor

HOLDER = Holder("here#1", 2)
BUNDLE = (("CPU", 2.0), ("GPU", 1.0), ("accelerator_type:B200", 0.001))
DONE = Answer(Concluded("{}", "ship"))


class Heard:
    """Keeps what people are told."""

    def __init__(self) -> None:
        self.details: list[str] = []
        self.events = self  # stands for a store, of which nothing else is used

    def append(self, comparison_id: str, kind: str, payload: dict[str, Any]) -> None:
        self.details.append(payload["detail"])


class FakePlaces:
    """Hands out places one after the other, and notes what becomes of them."""

    def __init__(self, *places: Any) -> None:
        self.waiting = list(places)
        self.kept: list[Any] = []
        self.given_back: list[Any] = []

    def take(self, bundle: object, name: str) -> Any:
        return self.waiting.pop(0)

    def keep(self, place: Any) -> None:
        self.kept.append(place)

    def give_back(self, place: Any) -> None:
        self.given_back.append(place)


def place(measure: Callable[[Job], Awaitable[Answer]], *, lost: bool = False, room: asyncio.Event | None = None) -> Any:
    """A place that measures so once there is room for it, or is lost before its use."""

    async def node() -> str:
        if lost:
            raise RayActorError
        if room is not None:
            await room.wait()
        return "10.0.0.7 abc"

    actor = SimpleNamespace(node=SimpleNamespace(remote=node), measure=SimpleNamespace(remote=measure))
    return SimpleNamespace(actor=actor, bundle=BUNDLE)


async def done(job: Job) -> Answer:
    return DONE


def stored() -> Stored:
    nothing = dict.fromkeys(Stored._fields)
    now = datetime.now(UTC)
    plan = make.plan().model_dump_json()
    return Stored(**nothing | {"id": "c", "status": Status.RUNNING, "plan": plan, "attempt": 2, "created_at": now})  # type: ignore[arg-type] # what is not read


def executor_over(places: FakePlaces, **fields: object) -> tuple[RayExecutor, Heard]:
    heard = Heard()
    settings = Settings.model_validate({"token": "secret", "devices": ("0", "1")} | fields)
    here: Any = None
    made = RayExecutor(settings, "cuda", heard, here)  # type: ignore[arg-type] # hears as events do
    made._places = places  # type: ignore[assignment] # stands in
    return made, heard


async def test_a_place_is_kept_for_the_next_and_gets_no_token_and_no_pool() -> None:
    jobs: list[Job] = []

    async def note(job: Job) -> Answer:
        jobs.append(job)
        return DONE

    places = FakePlaces(place(note))
    executor, heard = executor_over(places)
    assert await executor.measure(stored(), HOLDER) == Concluded("{}", "ship")
    assert (len(places.kept), places.given_back) == (1, [])
    assert (jobs[0].comparison_id, jobs[0].holder) == ("c", HOLDER)
    assert (jobs[0].settings.token, jobs[0].settings.devices, jobs[0].settings.device) == (None, (), "cuda")
    assert heard.details == ["asking the cluster for 2 CPU, 1 GPU", "on node 10.0.0.7 abc"]


async def test_a_place_lost_before_its_use_is_replaced_and_nothing_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    dead, well = place(done, lost=True), place(done)
    places = FakePlaces(dead, well)
    executor, _ = executor_over(places)
    assert (await executor.measure(stored(), HOLDER)).word == "ship"
    assert (places.given_back, places.kept) == ([dead], [well])


async def test_a_cluster_without_a_node_is_a_lost_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    executor, _ = executor_over(FakePlaces(*[place(done, lost=True) for _ in range(module.PLACE_ATTEMPTS)]))
    with pytest.raises(PlaceLost, match="no node could be had"):
        await executor.measure(stored(), HOLDER)


async def test_a_node_that_dies_while_it_measures_is_a_lost_place() -> None:
    async def die(job: Job) -> Answer:
        raise RayActorError

    places = FakePlaces(place(die))
    executor, _ = executor_over(places)
    with pytest.raises(PlaceLost, match="was lost"):
        await executor.measure(stored(), HOLDER)
    assert (len(places.given_back), places.kept) == (1, [])


async def test_a_failure_there_is_told_as_it_was() -> None:
    told = StoredError(arm="A", stage="decode", reason="it died")

    async def fail(job: Job) -> Answer:
        return Answer(None, told.model_dump_json(), expected=True)

    places = FakePlaces(place(fail))
    executor, _ = executor_over(places)
    with pytest.raises(MeasuredElsewhere) as failed:
        await executor.measure(stored(), HOLDER)
    assert (failed.value.stored, failed.value.expected) == (told, True)
    assert len(places.kept) == 1  # the process is well


@pytest.mark.parametrize("limited", [False, True])
async def test_a_cancelled_comparison_is_waited_for_until_its_engines_are_gone(
    monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    order: list[str] = []
    ordered = asyncio.Event()

    async def measure(job: Job) -> Answer:
        order.append("begun")
        await ordered.wait()
        order.append("engines gone")
        return DONE

    def cancel(reply: object) -> None:
        order.append("ordered to end")
        ordered.set()

    monkeypatch.setattr("ray.cancel", cancel)
    monkeypatch.setattr(module, "ENDS_WITHIN_S", 0.05 if limited else 60.0)
    places = FakePlaces(place(measure))
    executor, _ = executor_over(places, job_limit_s=0.05 if limited else 3_600.0)
    measuring = asyncio.create_task(executor.measure(stored(), HOLDER))
    if not limited:
        while not order:
            await asyncio.sleep(0)
        measuring.cancel()
    with pytest.raises(LimitReached if limited else asyncio.CancelledError):
        await measuring
    assert order == ["begun", "ordered to end", "engines gone"]
    assert (len(places.given_back), places.kept) == (1, [])


def nodes_are(monkeypatch: pytest.MonkeyPatch, *answers: dict[str, dict[str, float]]) -> list[int]:
    """What is seen of the nodes, look after look, the last for ever; returns a list that grows by one a look."""
    looks: list[int] = []

    def seen() -> dict[str, dict[str, float]]:
        looks.append(len(looks))
        return answers[min(len(looks), len(answers)) - 1]

    monkeypatch.setattr(module, "nodes_now", seen)
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    return looks


H200 = {"10.0.0.7 abc": {"CPU": 16.0, "GPU": 8.0, "accelerator_type:H200": 1.0}}
B200 = H200 | {"10.0.0.8 def": {"CPU": 16.0, "GPU": 8.0, "accelerator_type:B200": 1.0}}


async def test_what_no_node_has_is_waited_for_only_so_long_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes_are(monkeypatch, H200)
    places = FakePlaces(place(done, room=asyncio.Event()))
    executor, _ = executor_over(places, ray_place_limit_s=0.05)
    with pytest.raises(LimitReached) as refused:
        await executor.measure(stored(), HOLDER)
    assert refused.value.stage == "place"
    assert str(refused.value) == (
        "no node has 2 CPU, 1 GPU, 0.001 accelerator_type:B200, for 0.05 s now; "
        "the cluster has 10.0.0.7 abc: 16 CPU, 8 GPU, accelerator_type:H200"
    )
    assert (len(places.given_back), places.kept) == (1, [])


@pytest.mark.parametrize("before", [(), (H200,)])
async def test_a_node_that_is_busy_or_comes_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, before: tuple[dict[str, dict[str, float]], ...]
) -> None:
    looks = nodes_are(monkeypatch, *before, B200)
    room = asyncio.Event()
    executor, _ = executor_over(FakePlaces(place(done, room=room)), ray_place_limit_s=0.05)
    measuring = asyncio.create_task(executor.measure(stored(), HOLDER))
    while len(looks) < 12:  # longer than the limit for what no node has
        await asyncio.sleep(0.005)
    room.set()
    assert (await measuring).word == "ship"
