"""Counts operators and kernels per decode step in the profiler traces that SGLang writes.

Traces reach a gigabyte, so they are read as a stream; memory grows with the number of distinct names, of steps, of
launches and of the fills and PDL-linked kernels of a GPU only.
The count is of what the profiler saw, never of what our own code says that it did.
"""

import asyncio
import gzip
import re
import time
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import ijson

from equipoise_evals.model import PdlLinks, Phase
from equipoise_service.engines import pdl

Activity = Literal["CPU", "GPU"]

CATEGORIES: dict[Activity, frozenset[str]] = {
    "CPU": frozenset({"cpu_op"}),
    "GPU": frozenset({"kernel", "gpu_memset", "gpu_memcpy"}),
}
STEPS: dict[Phase, re.Pattern[str]] = {
    "decode": re.compile(r"^step\[DECODE\b"),
    "prefill": re.compile(r"^step\[EXTEND\b"),
}
"""SGLang's spans around one forward pass; there when CPU activity was recorded."""
LEAST_KERNELS_OF_A_GRAPH = 8
"""A decode step has several kernels in every layer; a few under one id are no step."""
SETTLE_S = 0.3


class TraceUnfinished(Exception):
    """The file ends before its JSON does: it is still being written, or its writer died."""


class TraceError(Exception):
    """The trace is complete, and no count per decode step follows from it."""


class Counts(NamedTuple):
    """What a trace holds.

    Attributes:
        steps: Decode steps, or prefills, that it covers.
        per_step: Occurrences in each of them of every operator or kernel name, a mean.
        pdl: PDL-linked kernels of the decode steps; None in a CPU trace.
    """

    steps: int
    per_step: dict[str, float]
    pdl: PdlLinks | None


class _Span(NamedTuple):
    start: float
    end: float


def count(path: Path, activity: Activity, requested_steps: int, phase: Phase = "decode") -> Counts:
    """Occurrences per decode step or whole prefill, by name.

    Each way to count decode steps takes two passes, since a trace is in no order and is not kept in memory:

    * A CPU trace holds SGLang's spans: what begins inside a decode step's span on its thread is counted, over as many
      steps as there are spans.
    * In a GPU trace of engines with CUDA graphs each decode step is one launch of a graph, and its kernels share the
      launch's correlation id: the kernels of whole launches are counted, over as many steps as there are. A launch that
      the profiler caught only in part, at its start, is left out, and so is what runs between the graphs.
    * A GPU trace without graphs has nothing to tell steps apart by: everything is counted, over ``requested_steps``,
      which SGLang's profiler keeps exactly (it stops by its count of forward passes).

    A trace of prefills holds ``requested_steps`` of them and nothing else. One may take several forward passes, as many
    spans, and an arm may differ in how many: so they are counted over the prefills.

    Raises:
        TraceUnfinished: The file is not complete.
        TraceError: It holds no decode step, or no operator at all.
    """
    counted = (event for event in _events(path) if event.get("cat") in CATEGORIES[activity])
    steps = requested_steps
    if activity == "CPU":
        spans = _spans(path, STEPS[phase])
        passes = sum(map(len, spans.values()))
        if phase == "prefill" and 0 < passes < requested_steps:
            raise TraceError(f"{path.name} holds {passes} forward passes of {requested_steps} prefills")
        steps = passes if phase == "decode" or passes == 0 else requested_steps
        counted = (event for event in counted if _inside(event, spans))
    elif phase == "decode" and (launches := _whole_graph_launches(path)):
        steps = len(launches)
        counted = (event for event in counted if _correlation(event) in launches)
    if steps == 0:
        raise TraceError(f"{path.name} holds no {phase} step")
    names: Counter[str] = Counter()
    marks: list[pdl.Mark] = []
    for event in counted:
        names[str(event["name"])] += 1
        if activity == "GPU" and (mark := pdl.mark_of(event)):
            marks.append(mark)
    if not names:
        raise TraceError(f"{path.name} holds no {activity} operator or kernel of a {phase} step")
    per_step = {name: number / steps for name, number in sorted(names.items())}
    return Counts(steps, per_step, pdl.links(marks, steps) if activity == "GPU" else None)


async def count_when_written(
    folder: Path, activity: Activity, requested_steps: int, limit_s: float, phase: Phase = "decode"
) -> Counts:
    """Wait for the first rank's trace in ``folder`` and count it.

    Raises:
        TraceError: No complete trace within ``limit_s``.
    """
    deadline = time.monotonic() + limit_s
    size = -1
    while time.monotonic() < deadline:
        found = sorted(folder.glob("*TP-0*.trace.json.gz"))
        grown = found[0].stat().st_size if found else -1
        if found and grown == size > 0:
            try:
                return await asyncio.to_thread(count, found[0], activity, requested_steps, phase)
            except TraceUnfinished:
                pass  # written on; the next size tells
        size = grown
        await asyncio.sleep(SETTLE_S)
    raise TraceError(f"no complete trace was written within {limit_s:g} s")


def _spans(path: Path, step: re.Pattern[str]) -> dict[tuple[Any, Any], list[_Span]]:
    """Steps of one kind by process and thread, in order of time."""
    spans: dict[tuple[Any, Any], list[_Span]] = {}
    for event in _events(path):
        if event.get("cat") == "user_annotation" and step.match(str(event.get("name"))):
            span = _Span(event["ts"], event["ts"] + event["dur"])
            spans.setdefault((event["pid"], event["tid"]), []).append(span)
    return {thread: sorted(of_thread) for thread, of_thread in spans.items()}


def _whole_graph_launches(path: Path) -> frozenset[int]:
    """Correlation ids of the graph launches that ran the usual number of kernels; none where no graph was launched.

    A kernel launched alone has a correlation id of its own, so more than one kernel to an id is a graph. Graphs of less
    than half the size of the largest do something else than a decode step.
    """
    sizes = Counter(
        correlation
        for event in _events(path)
        if event.get("cat") == "kernel" and (correlation := _correlation(event)) is not None
    )
    largest = max(sizes.values(), default=0)
    if largest < LEAST_KERNELS_OF_A_GRAPH:
        return frozenset()
    usual, _ = Counter(size for size in sizes.values() if size > largest / 2).most_common(1)[0]
    return frozenset(correlation for correlation, size in sizes.items() if size == usual)


def _correlation(event: dict[str, Any]) -> int | None:
    found = event.get("args", {}).get("correlation")
    return found if isinstance(found, int) else None


def _inside(event: dict[str, Any], spans: dict[tuple[Any, Any], list[_Span]]) -> bool:
    of_thread = spans.get((event["pid"], event["tid"]), [])
    place = bisect_right(of_thread, event["ts"], key=lambda span: span.start) - 1
    return place >= 0 and event["ts"] <= of_thread[place].end


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """The trace's complete events, one at a time."""
    try:
        with gzip.open(path) as stream:
            for event in ijson.items(stream, "traceEvents.item", use_float=True):
                if event.get("ph") == "X":
                    yield event
    except (EOFError, zlib.error, gzip.BadGzipFile, ijson.IncompleteJSONError) as short:
        raise TraceUnfinished(f"{path.name}: {short}") from short
