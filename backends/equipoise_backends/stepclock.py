"""The engine-side clock of plain decode steps: what each step cost, by which clock, and since when the last one began.

Owns the rows, the pool of CUDA events and the step log file. It decides nothing about steady states or validity; it
marks what it does not know as null. Only rank 0 of the target worker keeps rows.

Sampled every n-th step, the clock does next to nothing in the steps between, and the period of a row is the mean over
the steps since the row before it. Alternating between every step and every n-th within one block shows its own cost.
"""

import json
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from equipoise_backends.host import Batch, ForwardBatch, GraphRunner, Runner, Scheduler

Output = TypeVar("Output")
EventPair = tuple[torch._C._CudaEventBase, torch._C._CudaEventBase]

SCHEMA = 1
HOOK_STEPS = 2_000
"""Steps over which the hook's own host time is reported."""
READ_TOGETHER = 1_024
"""Steps whose events are read in one go, usually by a `flush` after the block: asking the driver in every step cost
86 us of host time on an H200."""
ALTERNATE_STEPS = 64
"""Steps of a stretch of an alternating clock: short beside a block, long beside the steps between two rows."""
COLUMNS = {
    "monotonic_ns": "ns of CLOCK_MONOTONIC at the start of the step",
    "graph_batch": "requests the step was padded to; real_batch without a graph",
    "real_batch": "requests",
    "context_tokens": "tokens attended to by all requests together, the new ones included",
    "busy_us": "us of work: CUDA events around the replay, perf_counter_ns around the forward on a CPU",
    "period_us": "us from the start of the previous step to this one's, a mean where steps between were not sampled; "
    "null after anything else than a step",
}


class Step(NamedTuple):
    """One row of the step log, in the order of `COLUMNS`."""

    monotonic_ns: int
    graph_batch: int
    real_batch: int
    context_tokens: int | None
    busy_us: float | None
    period_us: float | None


class EventPool:
    """Pairs of CUDA timing events, reused once they have been read, and the stream they are recorded on.

    Between two steps a host runs much other code, so each hook finds cold caches. On an H200 host
    ``torch.cuda.Event.record`` took 59 us there, 20 us with its stream given and 5 us without its Python wrapper;
    looking up the current stream took 42 us and its id 3 us. Hence events of the wrapped class, and a stream object
    kept until the current stream's id changes.

    Attributes:
        made: Pairs that exist.
    """

    def __init__(self) -> None:
        self._free: list[EventPair] = []
        self._streams: dict[tuple[int, int, int], torch.cuda.Stream] = {}
        self.made = 0

    def stream(self) -> torch.cuda.Stream:
        """The current stream."""
        current = torch._C._cuda_getCurrentStream(-1)
        stream = self._streams.get(current)
        if stream is None:
            stream = self._streams.setdefault(current, torch.cuda.current_stream())
        return stream

    def take(self) -> EventPair:
        """A pair (start, end) that nobody waits for."""
        if self._free:
            return self._free.pop()
        self.made += 1
        return torch._C._CudaEventBase(enable_timing=True), torch._C._CudaEventBase(enable_timing=True)

    def give_back(self, pair: EventPair) -> None:
        """Reuse a pair whose time has been read."""
        self._free.append(pair)


class StepClock:
    """Times plain decode steps of one engine process.

    The hooks are `around_eager_decode`, `around_graph_decode` with `around_graph_replay`, and `before_batch`.

    Args:
        log: File that `flush` appends to; None keeps no rows.
        header: Facts for the first line of the log beside the columns.
        every: Rows are kept of every so many steps.
        alternating: Rows are kept of every step in every other `ALTERNATE_STEPS` steps, beginning with the first ones.
        delay: Called after each graph replay, inside its busy time; for tests of the verdict only.
    """

    def __init__(
        self,
        log: Path | None,
        header: Mapping[str, object],
        *,
        every: int = 1,
        alternating: bool = False,
        delay: Callable[[], None] | None = None,
    ) -> None:
        self._log = log
        self._header = {"every": every, "alternating": alternating, **header}
        self._every = every
        self._alternating = alternating
        self._delay = delay
        self._steps_since_row = 0
        self._size_of_row: int | None = None
        self._place_in_chain = 0
        self._hook_ns: deque[int] = deque(maxlen=HOOK_STEPS)
        self._replay_hook_ns = 0
        self._rows: list[Step] = []
        self._pending: deque[tuple[Step, EventPair]] = deque()
        self._events = EventPool()
        self._previous_start_ns: int | None = None
        self._replay_events: EventPair | None = None
        self._timing_replay = False
        self._is_rank_0: bool | None = None
        self._header_written = False
        self.steps_seen = 0
        self.steps_written = 0

    def before_batch(self, _scheduler: Scheduler, batch: Batch, *_args: object, **_kwargs: object) -> None:
        """BEFORE ``Scheduler.run_batch``: anything but a decode step ends the chain of periods."""
        if not batch.forward_mode.is_decode():
            self.break_chain()

    def break_chain(self) -> None:
        """The next step has no period: something else happened since the last one."""
        self._previous_start_ns = None

    def around_eager_decode(
        self, original: Callable[..., Output], runner: Runner, batch: ForwardBatch, *args: object, **kw: object
    ) -> Output:
        """AROUND ``EagerRunner._execute_decode``: busy is the time of the whole forward."""
        start_ns = time.monotonic_ns()
        if not self._counts(runner, batch) or not self._sampled(batch.batch_size):
            return original(runner, batch, *args, **kw)
        period_us = self._period_us(start_ns, batch.batch_size)
        pair = self._events.take() if batch.seq_lens.is_cuda else None
        stream = None if pair is None else self._events.stream()
        if pair is not None:
            pair[0].record(stream)
        before_ns = time.monotonic_ns()
        result = original(runner, batch, *args, **kw)
        busy_us = (time.monotonic_ns() - before_ns) / 1000
        if pair is not None:
            pair[1].record(stream)
        size = batch.batch_size
        self._keep(Step(start_ns, size, size, batch.seq_lens_sum, None if pair else busy_us, period_us), pair)
        return result

    def around_graph_decode(
        self, original: Callable[..., Output], runner: GraphRunner, batch: ForwardBatch, *args: object, **kw: object
    ) -> Output:
        """AROUND ``DecodeCudaGraphRunner.execute``: frames the step; `around_graph_replay` times inside it."""
        start_ns = time.monotonic_ns()
        if not self._counts(runner, batch) or not self._sampled(batch.batch_size):
            return original(runner, batch, *args, **kw)
        period_us = self._period_us(start_ns, batch.batch_size)
        self._timing_replay = True
        calling_ns = time.monotonic_ns()
        try:
            result = original(runner, batch, *args, **kw)
        finally:
            self._timing_replay = False
        returned_ns = time.monotonic_ns()
        pair, self._replay_events = self._replay_events, None
        graph_batch = runner._replay_graph_key.size
        self._keep(Step(start_ns, graph_batch, batch.batch_size, batch.seq_lens_sum, None, period_us), pair)
        self._hook_ns.append(calling_ns - start_ns + self._replay_hook_ns + time.monotonic_ns() - returned_ns)
        return result

    def around_graph_replay(self, original: Callable[..., Output], *args: object, **kw: object) -> Output:
        """AROUND ``FullCudaGraphBackend.replay``: one pair of events on the stream of the replay."""
        if not self._timing_replay:
            result = original(*args, **kw)
            if self._delay is not None:
                self._delay()
            return result
        entered_ns = time.monotonic_ns()
        pair = self._events.take()
        stream = self._events.stream()
        pair[0].record(stream)
        calling_ns = time.monotonic_ns()
        result = original(*args, **kw)
        returned_ns = time.monotonic_ns()
        if self._delay is not None:
            self._delay()
        pair[1].record(stream)
        self._replay_events = pair
        self._replay_hook_ns = calling_ns - entered_ns + time.monotonic_ns() - returned_ns
        return result

    def describe(self) -> dict[str, object]:
        """What the clock costs: host time of its hooks in steps with graphs, over the last rows kept."""
        hook_us = sorted(ns / 1000 for ns in self._hook_ns)
        return {
            "every": self._every,
            "alternating": self._alternating,
            "hook_rows": len(hook_us),
            "hook_median_us": statistics.median(hook_us) if hook_us else None,
            "hook_p99_us": hook_us[int(0.99 * (len(hook_us) - 1))] if hook_us else None,
            "event_pairs": self._events.made,
        }

    def flush(self) -> None:
        """Append all rows to the log, waiting for steps whose events are still under way."""
        if self._log is None:
            return
        self._collect(wait=True)
        # Rows with events arrive later than rows without; starts are unique.
        lines = [json.dumps(row) for row in sorted(self._rows)]
        if not self._header_written:
            lines.insert(0, json.dumps({"schema": SCHEMA, "columns": list(COLUMNS), "units": COLUMNS, **self._header}))
        with self._log.open("a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        self._header_written = True
        self.steps_written += len(self._rows)
        self._rows = []

    def _counts(self, runner: Runner, batch: ForwardBatch) -> bool:
        if self._log is None or runner.model_runner.is_draft_worker or not batch.forward_mode.is_decode():
            return False
        if self._is_rank_0 is None:
            self._is_rank_0 = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
        return self._is_rank_0

    def _sampled(self, size: int) -> bool:
        """Whether this step gets a row: the first of a chain of steps of one batch size, and every n-th after it."""
        self._steps_since_row += 1
        if self._every == 1:
            return True
        if self._previous_start_ns is None or size != self._size_of_row:
            self.break_chain()
            self._place_in_chain = 0
        else:
            self._place_in_chain += 1
        dense = self._alternating and self._place_in_chain // ALTERNATE_STEPS % 2 == 0
        return dense or self._place_in_chain % self._every == 0

    def _period_us(self, start_ns: int, size: int) -> float | None:
        previous_ns, self._previous_start_ns = self._previous_start_ns, start_ns
        steps, self._steps_since_row = self._steps_since_row, 0
        self._size_of_row = size
        return None if previous_ns is None else (start_ns - previous_ns) / 1000 / steps

    def _keep(self, step: Step, pair: EventPair | None) -> None:
        self.steps_seen += 1
        if pair is None:
            self._rows.append(step)
            return
        self._pending.append((step, pair))
        if len(self._pending) >= READ_TOGETHER:
            self._collect(wait=False)

    def _collect(self, *, wait: bool) -> None:
        while self._pending:
            step, pair = self._pending[0]
            if wait:
                pair[1].synchronize()
            elif not pair[1].query():
                return
            self._pending.popleft()
            self._rows.append(step._replace(busy_us=pair[0].elapsed_time(pair[1]) * 1000))
            self._events.give_back(pair)
