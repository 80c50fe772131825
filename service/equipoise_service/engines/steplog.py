"""The step log that the plugin writes: JSON lines, a header object, then one array per decode step.

The file is the engine's; it is only read here, and only up to the last complete line.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from equipoise_evals.model import StepColumns

COLUMNS = ("monotonic_ns", "graph_batch", "real_batch", "context_tokens", "busy_us", "period_us")


class StepLogError(Exception):
    """The step log is missing, does not have the agreed form, or holds too few steps."""


class StepLog:
    """Reads the steps of one engine by position."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def end(self) -> int:
        """Byte position after everything written so far; call it after a flush."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError as missing:
            raise StepLogError(
                "the engine has written no step log; its plugin's step clock is not at work"
            ) from missing

    def since(self, position: int) -> list[list[float | None]]:
        """The rows written after ``position``, in order."""
        with self.path.open("rb") as log:
            log.seek(position)
            complete = log.read().rpartition(b"\n")[0]
        return [self._row(line) for line in complete.splitlines()]

    @staticmethod
    def _row(line: bytes) -> list[float | None]:
        try:
            row = json.loads(line)
        except ValueError as broken:
            raise StepLogError(f"a line of the step log is not JSON: {line[:80]!r}") from broken
        if not isinstance(row, list) or len(row) != len(COLUMNS):
            raise StepLogError(f"a line of the step log has not the {len(COLUMNS)} columns: {line[:80]!r}")
        return row


ALTERNATE_STEPS = 32
"""Steps of a stretch of an alternating step clock, as the plugin has it."""


def rows_of(steps: int, environment: Mapping[str, str]) -> int:
    """Rows that the step clock keeps of a block of ``steps`` steps, by the engine's own variables."""
    every = int(environment.get("EQUIPOISE_STEP_CLOCK_EVERY", "1"))
    alternating = environment.get("EQUIPOISE_STEP_CLOCK_ALTERNATING") == "1"
    dense = (alternating and step // ALTERNATE_STEPS % 2 == 0 for step in range(steps))
    return sum(always or step % every == 0 for step, always in enumerate(dense))


Row = Sequence[float | None]
PREFILL = -1
"""The ``graph_batch`` of a row that is a prefill and no decode step; its ``context_tokens`` are those prefilled."""


def prefills(rows: Sequence[Row], batch: int, prompt_tokens: int, ttft_us: Sequence[float]) -> StepColumns:
    """One step per whole prefill of a batch, which the engine may have run in several chunks.

    Args:
        rows: What the log holds of the block.
        batch: Prompts prefilled together.
        prompt_tokens: Tokens of each.
        ttft_us: Time to first token of each prefill at the client, a mean over the batch.

    Raises:
        StepLogError: The chunks in the log do not add up to these prefills.
    """
    whole = batch * prompt_tokens
    begun_ns: list[int] = []
    busy_us: list[float] = []
    left = 0.0
    for start_ns, graph_batch, _, tokens, busy, _ in rows:
        if graph_batch != PREFILL:
            continue
        if start_ns is None or tokens is None or busy is None:
            raise StepLogError("a prefill in the step log has no start, tokens or busy time")
        if left <= 0:
            begun_ns.append(int(start_ns))
            busy_us.append(0.0)
            left = whole
        busy_us[-1] += busy
        left -= tokens
        if left < 0:
            raise StepLogError(f"the engine prefilled {whole - left:g} tokens where {whole} were asked for")
    if left > 0 or len(busy_us) != len(ttft_us):
        raise StepLogError(
            f"the step log holds {len(busy_us) - (left > 0)} whole prefills of {whole} tokens, and {len(ttft_us)} were "
            "asked for: prefills out of a cache or in graphs are not seen by the step clock"
        )
    count = len(busy_us)
    return StepColumns(
        monotonic_ns=tuple(begun_ns),
        graph_batch=(0,) * count,
        real_batch=(batch,) * count,
        context_tokens=(whole,) * count,
        busy_us=tuple(busy_us),
        period_us=tuple(ttft_us),
    )


def full_batch(rows: list[list[float | None]], batch: int, wanted: int) -> StepColumns:
    """The first ``wanted`` rows of steps that decoded the whole batch.

    Args:
        rows: What the log holds of the block.
        batch: Requests in the batch.
        wanted: Rows that the step clock keeps of the block, by `rows_of`.

    Raises:
        StepLogError: Fewer were seen, since requests did not run together or one ended early; or one has no busy time.
    """
    rows = [row for row in rows if row[1] != PREFILL]
    full = [row for row in rows if row[2] == batch]
    if len(full) < wanted:
        seen = sorted({row[2] for row in rows if row[2] is not None})
        raise StepLogError(
            f"{len(full)} of {wanted} steps decoded all {batch} requests together "
            f"({len(rows)} steps of batch sizes {seen})"
        )
    if any(row[4] is None for row in full[:wanted]):
        raise StepLogError("a step of the block has no busy time: it ran outside a captured graph")
    return StepColumns.model_validate(dict(zip(COLUMNS, zip(*full[:wanted], strict=True), strict=True)))
