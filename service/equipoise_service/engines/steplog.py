"""The step log that the plugin writes: JSON lines, a header object, then one array per decode step.

The file is the engine's; it is only read here, and only up to the last complete line.
"""

import json
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


def full_batch(rows: list[list[float | None]], batch: int, steps: int, every: int = 1) -> StepColumns:
    """The rows of the first ``steps`` steps that decoded the whole batch.

    Args:
        rows: What the log holds of the block.
        batch: Requests in the batch.
        steps: Steps of the block.
        every: The step clock's own setting; it keeps the first step of a block and every so many after it.

    Raises:
        StepLogError: Fewer were seen, since requests did not run together or one ended early; or one has no busy time.
    """
    full = [row for row in rows if row[2] == batch]
    wanted = -(-steps // every)
    if len(full) < wanted:
        seen = sorted({row[2] for row in rows if row[2] is not None})
        raise StepLogError(
            f"{len(full)} of {wanted} steps decoded all {batch} requests together "
            f"({len(rows)} steps of batch sizes {seen})"
        )
    if any(row[4] is None for row in full[:wanted]):
        raise StepLogError("a step of the block has no busy time: it ran outside a captured graph")
    return StepColumns.model_validate(dict(zip(COLUMNS, zip(*full[:wanted], strict=True), strict=True)))
