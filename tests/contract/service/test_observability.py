"""``/readyz`` names what is wrong, ``/metrics`` counts what happened."""

import asyncio
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from equipoise_evals.ports import EngineFault
from equipoise_service.api import health
from equipoise_service.engines.device import DeviceUse, held
from equipoise_service.engines.leftovers import Leftovers
from equipoise_service.engines.process import describe_exit
from equipoise_service.errors import StorageUnavailable
from equipoise_service.metrics import Metrics, reason_word, stage_seconds
from equipoise_service.settings import Settings
from equipoise_service.store import Comparisons, Store, StoredError
from tests.integration.service.conftest import Running, Start, running_over
from tests.integration.service.fake import Call

OPERATIONS = Path(__file__).resolve().parents[3] / "docs" / "operations.md"


async def scraped(running: Running) -> dict[tuple[str, ...], float]:
    """Samples by name and label values, in the order of the labels' names."""
    answer = await running.client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_metrics_count_what_ended_and_how(start: Start) -> None:
    async def die(call: Call) -> None:
        if call.method == "decode" and call.role == "B":
            raise EngineFault("B", "decode", "the engine exited with 1", "torch.OutOfMemoryError: CUDA out of memory")

    async with start() as running:
        before = await scraped(running)
        assert before["equipoise_comparisons", "succeeded"] == 0
        await running.ended(await running.submit())
        samples = await scraped(running)
        assert samples["equipoise_comparisons", "succeeded"] == 1
        assert samples["equipoise_verdicts", "inconclusive"] == 1
        assert samples["equipoise_queue_depth",] == 0
        assert samples["equipoise_stage_seconds_count", "decode"] >= 1
        assert samples["equipoise_stage_seconds_count", "queued"] == 1
        assert samples["equipoise_engine_memory_bytes",] == 0
        noise = {key: value for key, value in samples.items() if key[0] == "equipoise_noise_floor_ratio"}
        assert noise
        assert all(value >= 0 for value in noise.values())
    async with start(die) as running:
        await running.ended(await running.submit())
        samples = await scraped(running)
        assert samples["equipoise_engine_failures_total", "B", "out_of_memory", "decode"] == 1
        assert samples["equipoise_comparisons", "failed"] == 1
        assert samples["equipoise_comparisons", "succeeded"] == 1  # counted in the database, so a restart loses nothing
        assert (await scraped(running))["equipoise_engine_failures_total", "B", "out_of_memory", "decode"] == 1


async def test_an_end_that_cannot_be_read_is_counted_once_it_can_be(
    start: Start, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(call: Call) -> None:
        raise EngineFault("B", call.method, "the engine exited with 1", "")

    store = Store.open(settings.url_of_database)
    metrics = Metrics(store, tmp_path)
    async with start(die) as running:
        comparison_id = await running.submit()
        await running.ended(comparison_id)
    metrics._ended(comparison_id)

    def unavailable(*_: object) -> None:
        raise StorageUnavailable("locked")

    for read in "get", "parts":
        with monkeypatch.context() as patch:
            patch.setattr(store.comparisons if read == "get" else store.records, read, unavailable)
            with pytest.raises(StorageUnavailable):
                metrics.text()
    with ThreadPoolExecutor() as pool:  # scrapes may come at once
        texts = [*pool.map(lambda _: metrics.text(), range(4))]
    store.database.close()
    assert all(b'equipoise_stage_seconds_count{stage="queued"} 1.0' in text for text in texts)


async def test_the_queue_shows(start: Start) -> None:
    gate = asyncio.Event()

    async def wait(call: Call) -> None:
        del call
        await gate.wait()

    async with start(wait) as running:
        first = await running.submit()
        await running.events(first, most=2)
        await running.submit()
        samples = await scraped(running)
        assert samples["equipoise_queue_depth",] == 1
        assert samples["equipoise_queue_oldest_seconds",] > 0
        assert samples["equipoise_comparisons", "running"] == 1
        gate.set()


async def test_stages_last_from_one_event_to_the_next(start: Start, settings: Settings) -> None:
    async with start() as running:
        comparison_id = await running.submit()
        view = await running.ended(comparison_id)
    store = Store.open(settings.url_of_database)
    stages = list(stage_seconds(store, comparison_id))
    first = store.events.after(comparison_id, 0, 1)[0]
    store.database.close()
    assert stages[0][0] == "queued"
    assert stages[-1][0] == "judging"
    assert "None" not in {stage for stage, _ in stages}  # a look, which comes in the midst of a stage
    ended = datetime.fromisoformat(view["finished_at"])
    assert sum(seconds for _, seconds in stages) == pytest.approx((ended - first.at).total_seconds(), abs=0.05)


def left_over() -> list[str]:
    """What is said of a process, of its memory, and of memory that nobody visible holds."""
    ourselves, processes = psutil.Process(), Leftovers()
    processes.processes([ourselves])
    before, gib = DeviceUse(0, {}), 1 << 30
    lines = processes.still_there() + held(before, DeviceUse(3 * gib, {7: gib}), {7})
    # Tests that share a run must have the same names in every process of it.
    return [line.replace(f"process {ourselves.pid} ", "process 8 ") for line in lines]


LEFT_OVER = left_over()
PORT_TAKEN = "port 30000, chosen for arm A, is used by process 7 (x), which is not part of its engine"


@pytest.mark.parametrize(
    ("stage", "reason", "word"),
    [
        *(("start", f"{line}; end it first", "left_over") for line in LEFT_OVER),
        (
            "start",
            PORT_TAKEN,
            "port_taken",
        ),
        ("decode", f"the engine {describe_exit(-9)}", "died"),
        ("decode", f"the engine {describe_exit(1)}", "died"),
        ("start", "not ready after 600 s, though its log still grows", "timed_out"),
        ("start", "it calls itself healthy, but no generation came within 60 s", "timed_out"),
        ("attest", "its attestation names another arm", "not_attested"),
        ("internal", "KeyError: 'x'", "defect"),
        ("decode", "something new", "other"),
    ],
)
def test_a_reason_is_one_word(stage: str, reason: str, word: str) -> None:
    assert reason_word(StoredError(stage=stage, reason=reason)) == word


def test_there_are_three_sentences_on_what_is_left_over() -> None:
    assert len(LEFT_OVER) == 3


class Usage(NamedTuple):
    free: int


async def test_readiness_names_what_is_wrong(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start() as running:
        ready = await running.client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["checks"] == dict.fromkeys(("database", "disk", "device", "worker", "webhooks"), "ok")
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "disk_usage", lambda _: Usage(free=1 << 20))
            answer = await running.client.get("/readyz")
            assert (answer.status_code, "1 MiB free" in answer.json()["checks"]["disk"]) == (503, True)


async def test_a_worker_without_a_pulse_is_missed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = asyncio.Event()

    async def wait(call: Call) -> None:
        del call
        await gate.wait()

    async with start(wait) as running:
        first = await running.submit()
        await running.events(first, most=2)
        await running.submit()
        monkeypatch.setattr(health, "TAKEN_WITHIN_S", 0.0)
        assert (await running.client.get("/readyz")).status_code == 200  # it is at work
        monkeypatch.setattr(Comparisons, "heartbeat", lambda _: None)
        answer = await running.client.get("/readyz")
        assert (answer.status_code, "none has been taken" in answer.json()["checks"]["worker"]) == (503, True)
        monkeypatch.setattr(Comparisons, "heartbeat", lambda _: datetime(2020, 1, 1, tzinfo=UTC))
        assert "no heartbeat" in (await running.client.get("/readyz")).json()["checks"]["worker"]
        gate.set()


async def test_no_engine_to_start_is_not_ready(settings: Settings) -> None:
    missing = settings.model_copy(update={"device": "cpu", "engine_python": settings.data / "none"})
    async with running_over(missing) as running:
        checks = (await running.client.get("/readyz")).json()["checks"]
    assert "equipoise doctor" in checks["device"]
    assert str(settings.data) not in checks["device"]


async def test_every_metric_is_documented(start: Start) -> None:
    async with start() as running:
        await running.ended(await running.submit())
        text = (await running.client.get("/metrics")).text
    families = {family.name for family in text_string_to_metric_families(text)}
    names = {name for name in families if name.startswith("equipoise_") and not name.endswith("_created")}
    documented = set(re.findall(r"`(equipoise_[a-z_]+?)(?:_total)?`", OPERATIONS.read_text()))
    assert names == documented
