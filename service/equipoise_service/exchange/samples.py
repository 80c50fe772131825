"""Samples as Parquet tables, for notebooks and statistics programs: every answer, request and step."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from equipoise_evals.gsm8k.grade import grade
from equipoise_evals.gsm8k.state import answer_state
from equipoise_evals.model import Answered, BlockRecord, PassRecord, Plan, QuestionsRecord, Records, Role, StepColumns
from equipoise_service.store import Store, Stored

Row = dict[str, Any]

_KEYS = [("comparison_id", pa.string()), ("model", pa.string()), ("pair", pa.int32()), ("role", pa.string()),
         ("arm", pa.string())]  # fmt: skip
_BLOCK = [("batch", pa.int32()), ("quad", pa.int32()), ("position", pa.int32()), ("sequence", pa.int32()),
          ("counts", pa.bool_())]  # fmt: skip
ANSWERS = pa.schema(
    [
        *_KEYS,
        ("question_id", pa.int32()),
        ("gold", pa.string()),
        ("state", pa.string()),
        ("extracted", pa.string()),
        ("text", pa.string()),
        ("output_ids", pa.list_(pa.int32())),
        ("finish_reason", pa.string()),
        ("prompt_tokens", pa.int32()),
        ("cached_tokens", pa.int32()),
        ("error", pa.string()),
    ]
)
"""One row an answer. ``state`` is the grader's; a request that failed is ``error`` and has no text."""
STEPS = pa.schema(
    [
        *_KEYS,
        *_BLOCK,
        ("step", pa.int32()),
        ("monotonic_ns", pa.int64()),
        ("graph_batch", pa.int32()),
        ("real_batch", pa.int32()),
        ("context_tokens", pa.int64()),
        ("busy_us", pa.float64()),
        ("period_us", pa.float64()),
    ]
)
"""One row a decode step, or a prefill in blocks of prefills, warm-up steps included. ``counts`` is false for blocks of
a launch that was cut short."""
REQUESTS = pa.schema(
    [
        *_KEYS,
        *_BLOCK,
        ("request", pa.int32()),
        ("ttft_us", pa.float64()),
        ("tpot_us", pa.float64()),
        ("output_tokens", pa.int32()),
    ]
)
"""One row a request of a block, as its client saw it."""


class _Source(NamedTuple):
    """One comparison as the tables take it."""

    stored: Stored
    plan: Plan
    records: Records

    def keys(self, pair: int, role: Role) -> Row:
        return {
            "comparison_id": self.stored.id,
            "model": self.plan.model.name,
            "pair": pair,
            "role": role,
            "arm": self.plan.arms.of(role).name,
        }


def write_samples(store: Store, chosen: Iterable[Stored], target: Path) -> dict[str, int]:
    """Write ``answers.parquet``, ``requests.parquet`` and ``steps.parquet`` into a new folder.

    Args:
        store: The database.
        chosen: Comparisons, in the order of the rows.
        target: The folder; must not exist.

    Returns:
        Rows by table.

    Raises:
        FileExistsError: There is something at ``target``.
    """
    if target.exists():
        raise FileExistsError(f"{target} exists already")
    tables: dict[str, tuple[pa.Schema, Callable[[_Source], Iterator[list[Row]]]]] = {
        "answers": (ANSWERS, _answers),
        "requests": (REQUESTS, _requests),
        "steps": (STEPS, _steps),
    }
    counts = dict.fromkeys(tables, 0)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.absolute().parent) as work:
        folder = Path(work, "samples")
        folder.mkdir()
        with ExitStack() as stack:
            writers = {
                name: stack.enter_context(pq.ParquetWriter(folder / f"{name}.parquet", schema, compression="zstd"))
                for name, (schema, _) in tables.items()
            }
            for stored in chosen:
                source = _Source(stored, Plan.model_validate_json(stored.plan), store.records.load(stored.id))
                for name, (schema, rows_of) in tables.items():
                    for rows in rows_of(source):
                        writers[name].write_table(pa.Table.from_pylist(rows, schema))
                        counts[name] += len(rows)
        folder.rename(target)
    return counts


def _answers(source: _Source) -> Iterator[list[Row]]:
    golds = {a.question.id: a.question.gold for record in source.records.of(QuestionsRecord) for a in record.asked}
    for done in source.records.of(PassRecord):
        keys = source.keys(done.pair, done.role)
        rows: list[Row] = []
        for answer in done.answers:
            gold = golds[answer.question_id]
            row = keys | {"question_id": answer.question_id, "gold": gold, "state": answer_state(answer, gold)}
            if isinstance(answer, Answered):
                # What an answer has and a failed request has not; the keys left out are null in the table.
                row |= answer.model_dump(
                    include={"text", "output_ids", "finish_reason", "prompt_tokens", "cached_tokens"}
                )
                row["extracted"] = grade(answer.text, gold).extracted
            else:
                row["error"] = answer.error
            rows.append(row)
        yield rows


def _blocks(source: _Source) -> Iterator[tuple[BlockRecord, Row]]:
    counting = {id(block) for block in source.records.current_blocks()}
    for block in source.records.of(BlockRecord):
        place = block.model_dump(include={"batch", "quad", "position", "sequence"})
        yield block, source.keys(block.pair, block.role) | place | {"counts": id(block) in counting}


def _steps(source: _Source) -> Iterator[list[Row]]:
    names = tuple(StepColumns.model_fields)
    for block, keys in _blocks(source):
        columns: Sequence[Sequence[object]] = [getattr(block.steps, name) for name in names]
        yield [
            keys | {"step": step} | dict(zip(names, values, strict=True))
            for step, values in enumerate(zip(*columns, strict=True), 1)
        ]


def _requests(source: _Source) -> Iterator[list[Row]]:
    for block, keys in _blocks(source):
        yield [keys | {"request": place} | timing.model_dump() for place, timing in enumerate(block.client, 1)]
