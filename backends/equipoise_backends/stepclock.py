"""The engine-side clock of plain decode steps: what each step cost, by which clock, and since when the last one began.

Owns the rows, the pool of CUDA events and the step log file. It decides nothing about steady states or validity; it
marks what it does not know as null. Only rank 0 of the target worker keeps rows.

Sampled every n-th step, the clock does next to nothing in the steps between, and the period of a row is the mean over
the steps since the row before it. Alternating between every step and every n-th within one block shows its own cost.
"""

import json
import statistics
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic_ns as now_ns
from typing import Any, NamedTuple, TypeVar

import torch

from equipoise_backends.host import Batch, ForwardBatch, GraphRunner, Runner, Scheduler

Output = TypeVar("Output")
EventPair = tuple[torch._C._CudaEventBase, torch._C._CudaEventBase]

SCHEMA = 1
HOOK_STEPS = 2_000
"""Steps over which the hook's own host time is reported."""
READ_TOGETHER = 1_024
"""Steps whose events are read in one go, between two chains of steps or by a `flush` after the block: asking the driver
in every step cost 86 us of host time on an H200."""
ALTERNATE_STEPS = 32
"""Steps of a stretch of an alternating clock: short beside a block, long beside the steps between two rows."""
PREFILL = -1
"""The graph's batch of a row that is no decode step but an eager prefill; its context tokens are those prefilled."""
COLUMNS = {
    "monotonic_ns": "ns of CLOCK_MONOTONIC at the start of the step",
    "graph_batch": "requests the step was padded to; real_batch without a graph; -1 marks a prefill",
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


class Seen(NamedTuple):
    """What is kept of a step until its row is made: all that costs time there waits until then.

    Attributes:
        number: Counts steps, so that a period is a mean over those that were not sampled.
        chain: Steps of one chain followed each other with nothing between.
        busy_us: Time of the work by the host's clock; None, or not to be used, where there are events.
        events: The events around the replay; None on a CPU, and for a graph step without a replay.
    """

    start_ns: int
    graph_batch: int
    real_batch: int
    context_tokens: int | None
    number: int
    chain: int
    busy_us: float | None
    events: EventPair | None


class StepClock:
    """Times plain decode steps of one engine process.

    The hooks are `around_eager_decode`, `around_graph_decode` with `around_graph_replay`, and `before_batch`. Between
    two steps a host runs much other code, so each hook finds cold caches. On an H200 host ``torch.cuda.Event.record``
    took 59 us there, 20 us with its stream given and 5 us without its Python wrapper; looking up the current stream
    took 42 us. Hence events of the wrapped class, a stream looked up once per chain (SGLang's scheduler runs all
    its batches on one), and rows that are made later.

    Args:
        log: File that `flush` appends to; None keeps no rows.
        header: Facts for the first line of the log beside the columns.
        every: Rows are kept of every so many steps.
        alternating: Rows are kept of every step in every other `ALTERNATE_STEPS` steps, beginning with the first ones.
        prefills: Prefills get rows too, marked by `PREFILL` in place of the graph's batch.
        delay: Called after each graph replay and each eager decode step, inside the busy time; never after a prefill.
            For tests only.
    """

    def __init__(
        self,
        log: Path | None,
        header: Mapping[str, object],
        *,
        every: int = 1,
        alternating: bool = False,
        prefills: bool = False,
        delay: Callable[[], None] | None = None,
    ) -> None:
        self._log = log
        self._header = {"every": every, "alternating": alternating, **header}
        self._every = every
        self._alternating = alternating
        self._prefills = prefills
        self._delay = delay
        self._hook_ns: deque[int] = deque(maxlen=HOOK_STEPS)
        self._replay_hook_ns = 0
        self._number = 0
        self._chain = 0
        self._sampled_chain = -1
        self._sampled_size = 0
        self._first_number = 0
        self._runner: Runner | None = None
        self._decode_mode: object = None
        self._is_rank_0: bool | None = None
        self._free_events: list[EventPair] = []
        self._event_pairs = 0
        self._stream: torch.cuda.Stream | None = None
        self._timing_replay = False
        self._replay_events: EventPair | None = None
        self._seen: deque[tuple[Any, ...]] = deque()
        self._last_row: Seen | None = None
        self._rows: list[Step] = []
        self._header_written = False
        self.steps_written = 0

    @property
    def steps_seen(self) -> int:
        """Steps that got a row or will."""
        return self.steps_written + len(self._rows) + len(self._seen)

    def before_batch(self, _scheduler: Scheduler, batch: Batch, *_args: object, **_kwargs: object) -> None:
        """BEFORE ``Scheduler.run_batch``: anything but a decode step ends the chain of periods."""
        if not batch.forward_mode.is_decode():
            self.break_chain()

    def break_chain(self) -> None:
        """The next step has no period: something else happened since the last one."""
        self._chain += 1
        self._stream = None
        if len(self._seen) >= READ_TOGETHER:
            self._collect(wait=False)

    def around_eager_decode(
        self, original: Callable[..., Output], runner: Runner, batch: ForwardBatch, *args: object, **kw: object
    ) -> Output:
        """AROUND ``EagerRunner._execute_decode``: busy is the time of the whole forward."""

        def delayed(*given: object, **named: object) -> Output:
            result = original(*given, **named)
            if self._delay is not None:
                self._delay()
            return result

        start_ns = now_ns()
        if not self._due(runner, batch):
            return delayed(runner, batch, *args, **kw)
        result, busy_us, events = self._timed_forward(delayed, runner, batch, *args, **kw)
        size = batch.batch_size
        seen = (start_ns, size, size, batch.seq_lens_sum, self._number, self._chain, busy_us, events)
        self._seen.append(seen)
        return result

    def around_extend(
        self, original: Callable[..., Output], runner: Runner, batch: ForwardBatch, *args: object, **kw: object
    ) -> Output:
        """AROUND ``EagerRunner._execute_extend``, where prefills are clocked: the time of the whole forward."""
        start_ns = now_ns()
        if not self._prefills or self._log is None or runner.model_runner.is_draft_worker or not self._on_rank_0():
            return original(runner, batch, *args, **kw)
        result, busy_us, events = self._timed_forward(original, runner, batch, *args, **kw)
        # A chain of its own, since it is no decode step: neither it nor the step after it has a period.
        self.break_chain()
        tokens = batch.extend_num_tokens
        self._seen.append((start_ns, PREFILL, batch.batch_size, tokens, self._number, self._chain, busy_us, events))
        self.break_chain()
        return result

    def around_graph_decode(
        self, original: Callable[..., Output], runner: GraphRunner, batch: ForwardBatch, *args: object, **kw: object
    ) -> Output:
        """AROUND ``DecodeCudaGraphRunner.execute``: frames the step; `around_graph_replay` times inside it."""
        start_ns = now_ns()
        if not self._due(runner, batch):
            return original(runner, batch, *args, **kw)
        self._timing_replay = True
        self._replay_events = None
        calling_ns = now_ns()
        try:
            result = original(runner, batch, *args, **kw)
        finally:
            self._timing_replay = False
        returned_ns = now_ns()
        # A plain tuple, not a `Seen` yet: its constructor is Python, and this is the hot path.
        size, real = runner._replay_graph_key.size, batch.batch_size
        seen = (start_ns, size, real, batch.seq_lens_sum, self._number, self._chain, None, self._replay_events)
        self._seen.append(seen)
        self._hook_ns.append(calling_ns - start_ns + self._replay_hook_ns + now_ns() - returned_ns)
        return result

    def around_graph_replay(self, original: Callable[..., Output], *args: object, **kw: object) -> Output:
        """AROUND ``FullCudaGraphBackend.replay``: one pair of events on the stream of the replay."""
        if not self._timing_replay:
            result = original(*args, **kw)
            if self._delay is not None:
                self._delay()
            return result
        entered_ns = now_ns()
        start, end = self._replay_events = self._take_events()
        if self._stream is None:
            self._stream = torch.cuda.current_stream()
        start.record(self._stream)
        calling_ns = now_ns()
        result = original(*args, **kw)
        returned_ns = now_ns()
        if self._delay is not None:
            self._delay()
        end.record(self._stream)
        self._replay_hook_ns = calling_ns - entered_ns + now_ns() - returned_ns
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
            "event_pairs": self._event_pairs,
        }

    def flush(self) -> None:
        """Append all rows to the log, waiting for steps whose events are still under way."""
        if self._log is None:
            return
        self._collect(wait=True)
        lines = [json.dumps(row) for row in self._rows]
        if not self._header_written:
            lines.insert(0, json.dumps({"schema": SCHEMA, "columns": list(COLUMNS), "units": COLUMNS, **self._header}))
        with self._log.open("a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        self._header_written = True
        self.steps_written += len(self._rows)
        self._rows = []

    def _timed_forward(
        self, forward: Callable[..., Output], runner: Runner, batch: ForwardBatch, *args: object, **kw: object
    ) -> tuple[Output, float, EventPair | None]:
        """Run a forward without a graph: its result, its microseconds on the host, and on a GPU events around it."""
        events = None
        if batch.seq_lens.is_cuda:
            events, stream = self._take_events(), torch.cuda.current_stream()
            events[0].record(stream)
        before_ns = now_ns()
        result = forward(runner, batch, *args, **kw)
        busy_us = (now_ns() - before_ns) / 1000
        if events is not None:
            events[1].record(stream)
        return result, busy_us, events

    def _due(self, runner: Runner, batch: ForwardBatch) -> bool:
        """Whether this step counts and gets a row."""
        if (runner is not self._runner or batch.forward_mode is not self._decode_mode) and not self._counts(
            runner, batch
        ):
            return False
        self._number += 1
        return self._every == 1 or self._sampled(batch.batch_size)

    def _counts(self, runner: Runner, batch: ForwardBatch) -> bool:
        """Whether it is a plain decode step of the target worker, and kept by this rank; if so, so are its likes."""
        if self._log is None or runner.model_runner.is_draft_worker or not batch.forward_mode.is_decode():
            return False
        if self._on_rank_0():
            self._runner, self._decode_mode = runner, batch.forward_mode
        return self._on_rank_0()

    def _on_rank_0(self) -> bool:
        """Whether this process keeps rows."""
        if self._is_rank_0 is None:
            self._is_rank_0 = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
        return self._is_rank_0

    def _sampled(self, size: int) -> bool:
        """Whether a clock that leaves out steps keeps this one: the first of a chain of one batch size does stay."""
        if size != self._sampled_size:
            self.break_chain()
        if self._chain != self._sampled_chain:
            self._sampled_chain, self._sampled_size, self._first_number = self._chain, size, self._number
        place = self._number - self._first_number
        dense = self._alternating and place // ALTERNATE_STEPS % 2 == 0
        return dense or place % self._every == 0

    def _take_events(self) -> EventPair:
        """A pair that nobody waits for."""
        if self._free_events:
            return self._free_events.pop()
        self._event_pairs += 1
        return torch._C._CudaEventBase(enable_timing=True), torch._C._CudaEventBase(enable_timing=True)

    def _collect(self, *, wait: bool) -> None:
        """Make rows of the steps seen, in order, up to the first whose events are still under way."""
        while self._seen:
            step = Seen(*self._seen[0])
            if step.events is not None:
                if wait:
                    step.events[1].synchronize()
                elif not step.events[1].query():
                    return
            self._seen.popleft()
            self._rows.append(self._row(step))

    def _row(self, step: Seen) -> Step:
        busy_us, period_us = step.busy_us, None
        if step.events is not None:
            # By events, an eager step too: its forward returns before the device is done.
            busy_us = step.events[0].elapsed_time(step.events[1]) * 1000
            self._free_events.append(step.events)
        before, self._last_row = self._last_row, step
        if before is not None and before.chain == step.chain:
            period_us = (step.start_ns - before.start_ns) / 1000 / (step.number - before.number)
        return Step(step.start_ns, step.graph_batch, step.real_batch, step.context_tokens, busy_us, period_us)
