"""Counting in profiler traces. Real traces: 30 layers, one ``aten::zeros`` and two ``aten::ones`` per layer and step in
the baseline arm (the issue's own figures), and a plain ``json.load`` as a second way to count."""

import asyncio
import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from equipoise_evals.model import PdlLinks
from equipoise_service.engines import trace
from equipoise_service.engines.trace import TraceError, TraceUnfinished, count, count_when_written
from tests.fakes import traces
from tests.fakes.knobs import Knobs

DATA = Path(__file__).with_name("data")
BASELINE = DATA / "sglang-0.5.23-cpu-baseline-TP-0.trace.json.gz"
PERSISTENT = DATA / "sglang-0.5.23-cpu-persistent-TP-0.trace.json.gz"
LAYERS = 30
UNLINKED = PdlLinks(links_per_step=0, fills_between_per_step=0)


def operator(name: str, at: float, tid: int = 1, category: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": at, "dur": 0.5}


def kernel(name: str, correlation: int) -> dict[str, Any]:
    return operator(name, 1, category="kernel") | {"args": {"correlation": correlation, "stream": 7}}


def span(name: str, at: float, lasting: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": lasting}


class TestRealTraces:
    def test_the_baseline_arm_fills_three_times_per_layer_and_step(self) -> None:
        counts = count(BASELINE, "CPU", 8)

        assert counts.steps == 8
        assert counts.per_step["aten::zeros"] == LAYERS
        assert counts.per_step["aten::ones"] == 2 * LAYERS

    def test_the_persistent_arm_does_not(self) -> None:
        counts = count(PERSISTENT, "CPU", 8)

        assert counts.steps == 8
        assert "aten::zeros" not in counts.per_step
        assert "aten::ones" not in counts.per_step
        assert counts.per_step["aten::linear"] == 4 * LAYERS

    @pytest.mark.parametrize("path", [BASELINE, PERSISTENT])
    def test_a_second_way_to_count_agrees(self, path: Path) -> None:
        with gzip.open(path) as stream:
            events = json.load(stream)["traceEvents"]
        spans = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"].startswith("step[DECODE")]
        inside = [
            e["name"] for e in events if e.get("cat") == "cpu_op" and any(low <= e["ts"] <= high for low, high in spans)
        ]

        counts = count(path, "CPU", 8)

        assert counts.steps == len(spans)
        assert sum(counts.per_step.values()) * counts.steps == pytest.approx(len(inside), rel=1e-12)


class TestWhatIsCounted:
    def test_only_decode_steps_and_only_their_thread(self, tmp_path: Path) -> None:
        events = [
            span("step[EXTEND bs=1 toks=9]", 0, 9), operator("in prefill", 1),
            operator("late in the file order", 25), span("step[DECODE bs=1]", 10, 9), operator("in step", 11),
            operator("on another thread", 12, tid=2), operator("between", 19.5), span("step[DECODE bs=1]", 20, 9),
            operator("in step", 21), span("scheduler.run_batch", 9, 11), operator("a kernel", 12, category="kernel"),
        ]  # fmt: skip
        path = traces.write(tmp_path, "x", events)

        assert count(path, "CPU", 99) == (2, {"in step": 1.0, "late in the file order": 0.5}, None)
        assert count(path, "CPU", 1, "prefill") == (1, {"in prefill": 1.0}, None)

    def test_a_prefill_is_counted_whole_in_however_many_passes_it_ran(self, tmp_path: Path) -> None:
        passes = [span("step[EXTEND bs=1 toks=128]", 10 * n, 9) for n in range(4)]
        path = traces.write(tmp_path, "x", [*passes, *(operator("aten::mm", 10 * n + 1) for n in range(4))])

        assert count(path, "CPU", 2, "prefill") == (2, {"aten::mm": 2.0}, None)
        assert count(path, "CPU", 4, "prefill") == (4, {"aten::mm": 1.0}, None)
        with pytest.raises(TraceError, match="holds 4 forward passes of 5 prefills"):
            count(path, "CPU", 5, "prefill")

    def test_a_trace_without_the_steps_in_question_is_refused(self, tmp_path: Path) -> None:
        path = traces.write(tmp_path, "x", [span("step[DECODE bs=1]", 10, 9), operator("in step", 11)])
        with pytest.raises(TraceError, match="holds no prefill step"):
            count(path, "CPU", 8, "prefill")

    def test_gpu_traces_have_no_spans_and_are_counted_over_the_steps_asked_for(self, tmp_path: Path) -> None:
        events = traces.events(Knobs(layers=2), "baseline", "GPU", [("DECODE", 1)] * 4)
        path = traces.write(tmp_path, "x", events)

        counts = count(path, "GPU", 4)

        assert counts.steps == 4
        assert counts.per_step[traces.GPU_FILL] == 3 * 2

    def test_steps_of_a_gpu_trace_are_its_whole_graph_launches(self, tmp_path: Path) -> None:
        # Kernels of one graph launch share its correlation id. 60 fills of 100 kernels in each of 3 whole launches; a
        # launch that the profiler caught halfway, a small graph, kernels launched alone and a memset beside them.
        events = [kernel(traces.GPU_FILL if n < 60 else "attention", 7 + step) for step in range(3) for n in range(100)]
        events += [kernel(traces.GPU_FILL, 6) for _ in range(70)]
        events += [kernel("metadata", 20) for _ in range(9)]
        events += [kernel("sampling", 30 + n) for n in range(50)]
        events += [operator("Memset (Device)", n, category="gpu_memset") for n in range(5)]
        path = traces.write(tmp_path, "x", events)

        assert count(path, "GPU", 8) == (3, {"attention": 40.0, traces.GPU_FILL: 60.0}, UNLINKED)

    def test_kernels_launched_one_by_one_are_no_graph(self, tmp_path: Path) -> None:
        path = traces.write(tmp_path, "x", [kernel("eager", n) for n in range(64)])

        assert count(path, "GPU", 8) == (8, {"eager": 8.0}, UNLINKED)

    def test_a_trace_without_a_decode_step_gives_no_count(self, tmp_path: Path) -> None:
        path = traces.write(tmp_path, "x", [operator("aten::mm", 1)])

        with pytest.raises(TraceError, match="no decode step"):
            count(path, "CPU", 8)

    def test_a_trace_without_an_operator_gives_no_count(self, tmp_path: Path) -> None:
        path = traces.write(tmp_path, "x", [span("step[DECODE bs=1]", 0, 1)])

        with pytest.raises(TraceError, match="no CPU operator"):
            count(path, "CPU", 8)


class TestUnfinishedFiles:
    @pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
    def test_a_file_that_is_still_being_written_is_told_apart(self, tmp_path: Path, share: float) -> None:
        whole = BASELINE.read_bytes()
        path = tmp_path / "cut-TP-0.trace.json.gz"
        path.write_bytes(whole[: int(len(whole) * share)])

        with pytest.raises(TraceUnfinished):
            count(path, "CPU", 8)

    async def test_it_is_waited_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(trace, "SETTLE_S", 0.05)
        whole = PERSISTENT.read_bytes()
        path = tmp_path / "x-TP-0.trace.json.gz"

        async def write_slowly() -> None:
            for part in range(4):
                with path.open("ab") as file:
                    file.write(whole[part * len(whole) // 4 : (part + 1) * len(whole) // 4])
                await asyncio.sleep(0.2)

        writing = asyncio.ensure_future(write_slowly())
        counts = await count_when_written(tmp_path, "CPU", 8, limit_s=10)
        await writing

        assert counts == count(PERSISTENT, "CPU", 8)

    async def test_a_trace_that_never_comes_is_an_error_at_the_limit(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match=r"no complete trace was written within 0\.5 s"):
            await count_when_written(tmp_path, "CPU", 8, limit_s=0.5)


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    peaks = []
    for steps in (5, 30):
        path = traces.write(
            tmp_path / str(steps), "x", traces.events(Knobs(), "baseline", "CPU", [("DECODE", 1)] * steps)
        )
        tracemalloc.start()
        count(path, "CPU", steps)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    # 25 steps more, of 30 layers with 6 operators each: 4,500 events of a kilobyte, were they kept.
    assert peaks[1] - peaks[0] < 200_000
