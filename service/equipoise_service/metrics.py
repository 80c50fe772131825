"""What ``/metrics`` tells, in Prometheus' text format. One registry a service; names carry their units.

What the database knows is counted there when somebody asks, so that it survives restarts; what comparisons took is
observed as they end, from their own events, and starts at nothing with the service, as counters do.
"""

import contextlib
import json
import platform
import re
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from equipoise_evals.model import StopRecord, Verdict
from equipoise_service.engine_processes import engine_memory_bytes
from equipoise_service.engines.logs import known_reason
from equipoise_service.report.tables import contrasts
from equipoise_service.store import ListFilter, Status, Store, Stored, StoredError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STAGE_BUCKETS_S = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200)
MOST_UNSEEN = 10_000
REASONS = (
    (
        "left_over",
        re.compile(r"of an earlier engine still runs|holds \d+ bytes of device memory|of device memory are held by no"),
    ),
    ("port_taken", re.compile(r"\bport \d+, chosen for arm", re.I)),
    ("timed_out", re.compile(r"not ready|no progress|within [\d.]+ s|timed? ?out", re.I)),
    ("died", re.compile(r"\bexited\b|\bkilled\b|\bended with\b", re.I)),
    ("not_attested", re.compile(r"attest", re.I)),
)
"""A word for each of our own sentences on failed engines, the first that matches; a label must have few values.

What engines say themselves is known to ``engines.logs``, and goes before."""


class Metrics:
    """The metrics of one service."""

    def __init__(self, store: Store, data: Path) -> None:
        self._store = store
        self._unseen: deque[str] = deque(maxlen=MOST_UNSEEN)
        self._observing = Lock()
        self._registry = CollectorRegistry()
        self._registry.register(_Stored(store))
        ProcessCollector(registry=self._registry)
        self._stages = Histogram(
            "equipoise_stage_seconds",
            "What a stage of a comparison took, by the comparison's own events.",
            ["stage"],
            buckets=STAGE_BUCKETS_S,
            registry=self._registry,
        )
        self._failures = Counter(
            "equipoise_engine_failures",
            "Comparisons that failed, by arm, stage and reason.",
            ["arm", "stage", "reason"],
            registry=self._registry,
        )
        self._leftovers = Counter(
            "equipoise_engines_left_over", "Engines that could not be ended whole.", registry=self._registry
        )
        Gauge(
            "equipoise_engine_memory_bytes",
            "Resident memory of this data folder's engine processes; while nothing runs, all of it is left over.",
            registry=self._registry,
        ).set_function(lambda: engine_memory_bytes(data))
        self._unclean: dict[str, int] = {}
        self._ended_s = time.monotonic()
        store.comparisons.on_end(self._ended)

    def since_end_s(self) -> float:
        """Seconds since a comparison ended, or since the start of the service."""
        return time.monotonic() - self._ended_s

    def _ended(self, comparison_id: str) -> None:
        self._unseen.append(comparison_id)
        self._ended_s = time.monotonic()

    def text(self) -> bytes:
        """Everything, as a scrape gets it."""
        with self._observing:
            while self._unseen:
                comparison_id = self._unseen[0]
                stored = self._store.comparisons.get(comparison_id)
                if stored is not None:
                    self._observe(stored)
                with contextlib.suppress(ValueError):  # not before: what cannot be read now is read at the next scrape
                    self._unseen.remove(comparison_id)
        return generate_latest(self._registry)

    def _observe(self, stored: Stored) -> None:
        stages = list(stage_seconds(self._store, stored.id))
        stops = [StopRecord.model_validate_json(part.payload) for part in self._store.records.parts(stored.id, "stop")]
        for stage, seconds in stages:
            self._stages.labels(stage).observe(seconds)
        if stored.status is Status.FAILED and stored.error is not None:
            error = stored.error
            self._failures.labels(error.arm or "none", error.stage, reason_word(error)).inc()
        unclean = sum(not stop.clean for stop in stops)
        self._leftovers.inc(unclean - self._unclean.get(stored.id, 0))
        if unclean:
            self._unclean[stored.id] = unclean  # it may be resumed and end again, with these still among its records


class _Stored(Collector):
    """What is counted in the database when somebody asks."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: registering must not read the database."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Counts by status and by verdict, the queue, and the machine's noise."""
        comparisons = self._store.comparisons
        by_status = GaugeMetricFamily("equipoise_comparisons", "Comparisons by status.", labels=["status"])
        counts = comparisons.count_by_status()
        for status in Status:
            by_status.add_metric([status.value], counts.get(status.value, 0))
        yield by_status
        by_verdict = GaugeMetricFamily("equipoise_verdicts", "Comparisons by the verdict's word.", labels=["verdict"])
        for word, count in comparisons.count_by_verdict().items():
            by_verdict.add_metric([word], count)
        yield by_verdict
        yield GaugeMetricFamily("equipoise_queue_depth", "Comparisons that wait.", value=counts.get(Status.QUEUED, 0))
        oldest = comparisons.waiting_since()
        waits_s = 0.0 if oldest is None else (datetime.now(UTC) - oldest).total_seconds()
        longest = "How long the one that came first has waited."
        yield GaugeMetricFamily("equipoise_queue_oldest_seconds", longest, value=waits_s)
        yield self._noise()

    def _noise(self) -> GaugeMetricFamily:
        """The spread of launch pairs in the newest verdict on speed: what an effect has to rise above."""
        noise = GaugeMetricFamily(
            "equipoise_noise_floor_ratio",
            "SD between launch pairs of the ratio of step times, in the newest finished comparison.",
            labels=["machine", "device", "batch", "clock"],
        )
        for summary in self._store.comparisons.page(ListFilter(status=Status.SUCCEEDED), 1).items:
            stored = self._store.comparisons.get(summary.id)
            if stored is None:
                continue
            latency = Verdict.model_validate_json(stored.verdict or "").latency
            for _, contrast in contrasts(latency.evidence) if latency is not None else ():
                if contrast.launch_sd is not None:
                    labels = [platform.node(), summary.machine or "unknown", str(contrast.batch), contrast.metric]
                    noise.add_metric(labels, contrast.launch_sd)
        return noise


def stage_seconds(store: Store, comparison_id: str) -> list[tuple[str, float]]:
    """What each stage took since it was last queued, from one event that names a stage to the next that names another.

    Statuses are stages too: ``queued`` is the wait, ``judging`` the judge. A stage that comes again is given again.
    """
    found: list[tuple[str, float]] = []
    current: tuple[str, datetime] | None = None
    seq = 0
    while batch := store.events.after(comparison_id, seq):
        for event in batch:
            seq = event.seq
            if event.kind not in ("status", "progress"):
                continue  # a look, which comes in the midst of a stage
            payload = json.loads(event.payload)
            stage = str(payload.get("stage" if event.kind == "progress" else "status"))
            if current is None or stage == Status.QUEUED:
                found, current = [], (stage, event.at)
            elif stage != current[0]:
                found.append((current[0], max(0.0, (event.at - current[1]).total_seconds())))
                current = (stage, event.at)
    return found  # without the last, which is how it ended and takes no time


def reason_word(error: StoredError) -> str:
    """The reason of a failure in one word."""
    if error.stage == "internal":
        return "defect"
    text = f"{error.reason}\n{error.log_tail}"
    known = known_reason(text)
    if known is not None and known.of_memory:
        return "out_of_memory"
    if known is not None and known.name == "address_in_use":
        return "port_taken"
    return next((word for word, form in REASONS if form.search(text)), "other")
