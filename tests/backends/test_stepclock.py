"""The step clock on fake runners: which steps count, what a row says, what the log holds, what a hook costs."""

import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from equipoise_backends import stepclock
from equipoise_backends.delay import HostDelay
from equipoise_backends.stepclock import COLUMNS, Step, StepClock

HEADER = {"arm": "persistent", "launch_id": "one", "pid": 1}


def runner(*, draft: bool = False) -> SimpleNamespace:
    return SimpleNamespace(
        model_runner=SimpleNamespace(is_draft_worker=draft), _replay_graph_key=SimpleNamespace(size=8)
    )


def batch(mode: ForwardMode = ForwardMode.DECODE, size: int = 2) -> SimpleNamespace:
    return SimpleNamespace(forward_mode=mode, batch_size=size, seq_lens=torch.full((size,), 10), seq_lens_sum=10 * size)


def rows_of(log: Path) -> list[Step]:
    return [Step(*json.loads(line)) for line in log.read_text().splitlines()[1:]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "steps.jsonl"


@pytest.fixture
def clock(log: Path) -> StepClock:
    return StepClock(log, HEADER)


def scheduled(
    clock: StepClock, forwarded: SimpleNamespace, work: Callable[..., object] = lambda *_: "logits"
) -> object:
    """One step as the scheduler makes it: the BEFORE hook, then the AROUND hook of the eager runner."""
    clock.before_batch(SimpleNamespace(), forwarded)
    if forwarded.forward_mode.is_decode():
        return clock.around_eager_decode(work, runner(), forwarded)
    return work()


def test_a_step_is_a_row_and_its_result_passes_through(clock: StepClock, log: Path) -> None:
    before_ns = time.monotonic_ns()

    def work(*_args: object) -> str:
        time.sleep(0.02)
        return "logits"

    assert scheduled(clock, batch(size=3), work) == "logits"
    clock.flush()
    [row] = rows_of(log)
    assert before_ns <= row.monotonic_ns <= time.monotonic_ns()
    assert (row.graph_batch, row.real_batch, row.context_tokens, row.period_us) == (3, 3, 30, None)
    assert row.busy_us is not None
    assert 20_000 <= row.busy_us <= 1_000_000


def prefill(tokens: int = 40, size: int = 2, *, draft: bool = False) -> tuple[SimpleNamespace, SimpleNamespace]:
    forwarded = batch(ForwardMode.EXTEND, size)
    forwarded.extend_num_tokens = tokens
    return runner(draft=draft), forwarded


def test_a_prefill_is_a_row_where_prefills_are_clocked_and_breaks_the_periods(log: Path) -> None:
    clock = StepClock(log, HEADER, prefills=True)
    for forwarded in (batch(), None, batch(), batch()):
        if forwarded is None:
            clock.before_batch(SimpleNamespace(), prefill()[1])
            assert clock.around_extend(lambda *_: "logits", *prefill(tokens=40)) == "logits"
        else:
            scheduled(clock, forwarded)
    clock.flush()
    rows = rows_of(log)
    assert [row.graph_batch for row in rows] == [2, -1, 2, 2]
    assert (rows[1].real_batch, rows[1].context_tokens, rows[1].period_us) == (2, 40, None)
    assert rows[1].busy_us is not None
    assert [row.period_us is None for row in rows] == [True, True, True, False]


def test_prefills_leave_no_row_unless_they_are_clocked_nor_of_a_draft_model(clock: StepClock, log: Path) -> None:
    assert clock.around_extend(lambda *_: "logits", *prefill()) == "logits"
    clocked = StepClock(log, HEADER, prefills=True)
    assert clocked.around_extend(lambda *_: "logits", *prefill(draft=True)) == "logits"
    assert (clock.steps_seen, clocked.steps_seen) == (0, 0)


def test_header_names_columns_and_their_units(clock: StepClock, log: Path) -> None:
    scheduled(clock, batch())
    clock.flush()
    header = json.loads(log.read_text().splitlines()[0])
    assert header["columns"] == ["monotonic_ns", "graph_batch", "real_batch", "context_tokens", "busy_us", "period_us"]
    assert header["units"].keys() == COLUMNS.keys()
    assert HEADER.items() <= header.items()


def test_period_spans_from_start_to_start_and_breaks_at_a_prefill(clock: StepClock, log: Path) -> None:
    for mode in (ForwardMode.DECODE, ForwardMode.DECODE, ForwardMode.EXTEND, ForwardMode.DECODE, ForwardMode.DECODE):
        scheduled(clock, batch(mode))
        time.sleep(0.005)
    clock.flush()
    rows = rows_of(log)
    assert [row.period_us is None for row in rows] == [True, False, True, False]
    for earlier, later in ((0, 1), (2, 3)):
        assert rows[later].period_us == (rows[later].monotonic_ns - rows[earlier].monotonic_ns) / 1000


def test_a_query_between_two_steps_breaks_the_chain(clock: StepClock, log: Path) -> None:
    scheduled(clock, batch())
    clock.break_chain()
    scheduled(clock, batch())
    clock.flush()
    assert [row.period_us for row in rows_of(log)] == [None, None]


def test_flushes_append_and_write_the_header_once(clock: StepClock, log: Path) -> None:
    for expected in (2, 4):
        scheduled(clock, batch())
        scheduled(clock, batch())
        clock.flush()
        assert (clock.steps_seen, clock.steps_written, len(rows_of(log))) == (expected, expected, expected)
    clock.flush()
    assert len(rows_of(log)) == 4


def test_nothing_is_kept_of_drafts_of_verification_and_without_a_log(clock: StepClock, log: Path) -> None:
    clock.around_eager_decode(lambda *_: None, runner(draft=True), batch())
    clock.around_graph_decode(lambda *_: None, runner(), batch(ForwardMode.TARGET_VERIFY))
    clock.flush()
    assert (clock.steps_seen, rows_of(log)) == (0, [])
    silent = StepClock(None, HEADER)
    assert silent.around_eager_decode(lambda *_: "logits", runner(), batch()) == "logits"
    silent.flush()
    assert (silent.steps_seen, silent.steps_written) == (0, 0)


class FakeEvent:
    """A timing event of a device whose work ends when the test says so."""

    done = False
    clock_ms = 0.0

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing
        self.recorded_ms: float | None = None

    def record(self, stream: object) -> None:
        assert stream == "the stream"
        FakeEvent.clock_ms += 1.5
        self.recorded_ms = FakeEvent.clock_ms

    def query(self) -> bool:
        return FakeEvent.done

    def synchronize(self) -> None:
        FakeEvent.done = True

    def elapsed_time(self, end: "FakeEvent") -> float:
        assert FakeEvent.done, "read before the later event has completed"
        assert self.recorded_ms is not None
        assert end.recorded_ms is not None
        return end.recorded_ms - self.recorded_ms


@pytest.fixture
def fake_events(monkeypatch: pytest.MonkeyPatch) -> type[FakeEvent]:
    monkeypatch.setattr(torch._C, "_CudaEventBase", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "the stream")
    monkeypatch.setattr(stepclock, "READ_TOGETHER", 1)
    FakeEvent.done = False
    return FakeEvent


def replayed(clock: StepClock) -> object:
    def execute(*_args: object) -> object:
        return clock.around_graph_replay(lambda *_: "logits", "key", "batch")

    return clock.around_graph_decode(execute, runner(), batch())


def test_graph_steps_take_their_time_from_events_around_the_replay(
    clock: StepClock, log: Path, fake_events: type[FakeEvent]
) -> None:
    assert replayed(clock) == "logits"
    assert replayed(clock) == "logits"
    assert clock.steps_seen == 2
    clock.flush()
    rows = rows_of(log)
    # 1.5 ms between the two records of a pair; the graph is of 8, the batch of 2.
    assert [(row.graph_batch, row.real_batch, row.busy_us) for row in rows] == [(8, 2, 1500.0), (8, 2, 1500.0)]
    assert fake_events.done


def test_events_are_read_between_two_chains_and_then_reused(clock: StepClock, fake_events: type[FakeEvent]) -> None:
    replayed(clock)
    clock.break_chain()  # The device is still at work.
    fake_events.done = True
    replayed(clock)
    assert clock.describe()["event_pairs"] == 2
    for _ in range(3):
        clock.break_chain()
        replayed(clock)
    assert clock.describe()["event_pairs"] == 2


def test_the_stream_is_looked_up_once_per_chain(
    clock: StepClock, fake_events: type[FakeEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def current() -> str:
        looked.append("the stream")
        return "the stream"

    monkeypatch.setattr(torch.cuda, "current_stream", current)
    for _ in range(3):
        replayed(clock)
    clock.break_chain()
    replayed(clock)
    assert len(looked) == 2


def test_a_graph_step_without_a_replay_has_no_busy_time(clock: StepClock, log: Path) -> None:
    clock.around_graph_decode(lambda *_: "logits", runner(), batch())
    clock.flush()
    assert [row.busy_us for row in rows_of(log)] == [None]


def test_a_replay_outside_a_step_is_not_timed(clock: StepClock, fake_events: type[FakeEvent]) -> None:
    # Capture and draft graphs replay through the same method.
    before_ms = fake_events.clock_ms
    assert clock.around_graph_replay(lambda *_: "logits", "key", "batch") == "logits"
    assert fake_events.clock_ms == before_ms


def test_host_cost_of_the_hooks(clock: StepClock) -> None:
    forwarded, ran, scheduler = batch(size=16), runner(), SimpleNamespace()

    def work(*_args: object) -> None:
        """Nothing: what remains is the hook."""

    def cost_ns(step: Callable[[], object]) -> float:
        samples = []
        for _ in range(2000):
            start_ns = time.perf_counter_ns()
            step()
            samples.append(time.perf_counter_ns() - start_ns)
        return statistics.median(samples)

    def hooked() -> None:
        clock.before_batch(scheduler, forwarded)
        clock.around_eager_decode(work, ran, forwarded)

    bare_ns, hooked_ns = cost_ns(lambda: work(ran, forwarded)), cost_ns(hooked)
    print(f"hooks of one step: {(hooked_ns - bare_ns) / 1000:.2f} us median (limit on an idle machine: 20 us)")
    # A ratio, because the machine may be busy: some tens of plain calls, not some hundreds.
    assert hooked_ns < 200 * max(bare_ns, 100)


def test_sampled_every_nth_step_the_period_is_the_mean_over_the_steps_since(log: Path) -> None:
    clock = StepClock(log, HEADER, every=4)
    for _ in range(9):
        scheduled(clock, batch())
    clock.flush()
    rows = rows_of(log)
    # Steps 0, 4 and 8 of 9.
    assert len(rows) == 3
    assert rows[0].period_us is None
    for earlier, later in itertools.pairwise(rows):
        assert later.period_us == (later.monotonic_ns - earlier.monotonic_ns) / 1000 / 4
    assert json.loads(log.read_text().splitlines()[0])["every"] == 4


@pytest.mark.parametrize("mode", [ForwardMode.EXTEND, None], ids=["prefill", "other size"])
def test_sampling_begins_anew_where_the_chain_breaks(log: Path, mode: ForwardMode | None) -> None:
    clock = StepClock(log, HEADER, every=4)
    sizes = [2, 2, 2, 3, 3, 3, 3, 3] if mode is None else [2] * 8
    for place, size in enumerate(sizes):
        if mode is not None and place == 3:
            scheduled(clock, batch(mode))
        scheduled(clock, batch(size=size))
    clock.flush()
    rows = rows_of(log)
    # Step 0, the first after the break, and the fourth after that.
    assert [(row.real_batch, row.period_us is None) for row in rows] == [
        (2, True),
        (sizes[3], True),
        (sizes[3], False),
    ]


def test_the_hooks_tell_their_own_host_time_and_how_many_events_there_are(
    clock: StepClock, fake_events: type[FakeEvent]
) -> None:
    assert clock.describe()["hook_median_us"] is None
    fake_events.done = True
    for _ in range(30):
        replayed(clock)
        clock.break_chain()
    described = clock.describe()
    assert (described["every"], described["hook_rows"], described["event_pairs"]) == (1, 30, 1)
    median_us, p99_us = described["hook_median_us"], described["hook_p99_us"]
    assert isinstance(median_us, float)
    assert isinstance(p99_us, float)
    assert 0 < median_us <= p99_us


def test_the_hook_time_leaves_the_work_itself_out(clock: StepClock, fake_events: type[FakeEvent]) -> None:
    fake_events.done = True

    def execute(*_args: object) -> object:
        time.sleep(0.01)
        return clock.around_graph_replay(lambda *_: time.sleep(0.01), "key", "batch")

    for _ in range(5):
        clock.around_graph_decode(execute, runner(), batch())
    assert float(str(clock.describe()["hook_median_us"])) < 5_000


def test_a_delay_runs_once_per_replay_inside_the_events(log: Path, fake_events: type[FakeEvent]) -> None:
    order: list[str] = []
    clock = StepClock(log, HEADER, every=2, delay=lambda: order.append(f"delay at {FakeEvent.clock_ms:g}"))
    for _ in range(2):
        before_ms = fake_events.clock_ms
        replayed(clock)
        timed = fake_events.clock_ms > before_ms
        # The start was recorded before the delay, the end after it; an unsampled step is delayed too.
        assert order.pop() == f"delay at {before_ms + (1.5 if timed else 0):g}"
    assert order == []


@pytest.mark.parametrize("every", [1, 2])
def test_a_delay_makes_every_eager_step_longer(log: Path, every: int) -> None:
    """Spinning for 3 ms in steps that do nothing: each timed step is at least as long, and it says how long it was."""
    assert HostDelay(3_000).measured_us is None
    delay = HostDelay(3_000)
    clock = StepClock(log, HEADER, every=every, delay=delay)
    for _ in range(4):
        scheduled(clock, batch())
    clock.flush()
    rows = rows_of(log)
    assert len(rows) == 4 // every
    assert all(row.busy_us is not None and row.busy_us >= 3_000 for row in rows)
    assert delay.measured_us is not None
    assert delay.measured_us >= 3_000


def test_an_alternating_clock_keeps_every_step_of_every_other_stretch(log: Path) -> None:
    clock = StepClock(log, HEADER, every=16, alternating=True)
    for _ in range(2 * stepclock.ALTERNATE_STEPS + 2):
        scheduled(clock, batch())
    clock.flush()
    starts = [row.monotonic_ns for row in rows_of(log)]
    periods = [row.period_us for row in rows_of(log)]
    # Steps 0 to 31, then 32 and 48, then 64 and 65.
    assert len(starts) == 32 + 2 + 2
    steps_since = [1] * 32 + [16] * 2 + [1]
    for place, steps in enumerate(steps_since, start=1):
        assert periods[place] == (starts[place] - starts[place - 1]) / 1000 / steps


def test_eager_steps_on_a_device_reuse_their_events(clock: StepClock, log: Path, fake_events: type[FakeEvent]) -> None:
    fake_events.done = True
    on_device = SimpleNamespace(
        forward_mode=ForwardMode.DECODE, batch_size=2, seq_lens=SimpleNamespace(is_cuda=True), seq_lens_sum=20
    )
    for _ in range(5):
        clock.around_eager_decode(lambda *_: "logits", runner(), on_device)
        clock.break_chain()
    assert clock.describe()["event_pairs"] == 1
    clock.flush()
    # 1.5 ms between the two records of a pair, by the fake device's clock.
    assert [row.busy_us for row in rows_of(log)] == [1500.0] * 5
