"""Reading the step log: by position, whole lines only, and only steps of the full batch."""

import json
from pathlib import Path

import pytest

from equipoise_service.engines.steplog import StepLog, StepLogError, full_batch, prefills, rows_of

HEADER = '{"schema": 1}\n'


def row(at: int, batch: int, period_us: float | None = 110.0) -> list[float | None]:
    return [at, batch, batch, 100, 100.0, period_us]


def test_only_what_came_after_the_position_is_read(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "steps.jsonl")
    log.path.write_text(HEADER + json.dumps(row(1, 1)) + "\n")
    position = log.end()
    with log.path.open("a") as file:
        file.write(json.dumps(row(2, 4)) + "\n" + json.dumps(row(3, 4)) + "\n" + "[4, 4, 4, ")

    assert log.since(position) == [row(2, 4), row(3, 4)]


def test_a_missing_log_names_the_step_clock(tmp_path: Path) -> None:
    with pytest.raises(StepLogError, match="step clock is not at work"):
        StepLog(tmp_path / "steps.jsonl").end()


@pytest.mark.parametrize(("line", "says"), [("[1, 2, 3]", "6 columns"), ("{}", "6 columns"), ("nonsense", "not JSON")])
def test_lines_of_another_form_are_refused(tmp_path: Path, line: str, says: str) -> None:
    log = StepLog(tmp_path / "steps.jsonl")
    log.path.write_text(line + "\n")

    with pytest.raises(StepLogError, match=says):
        log.since(0)


def test_the_first_steps_of_the_full_batch_are_taken() -> None:
    rows = [row(1, 3, None), row(2, 4, None), row(3, 4), row(4, 4), row(5, 2)]

    steps = full_batch(rows, 4, 2)

    assert steps.monotonic_ns == (2, 3)
    assert steps.period_us == (None, 110.0)


def test_too_few_steps_of_the_full_batch_say_what_was_seen() -> None:
    with pytest.raises(StepLogError, match=r"1 of 3 steps decoded all 4 requests together \(3 steps of batch sizes"):
        full_batch([row(1, 1), row(2, 4), row(3, 3)], 4, 3)


def test_a_step_without_busy_time_is_no_step_to_compare() -> None:
    # The plugin writes null where a step ran outside a captured graph.
    rows = [row(1, 4), [2, 4, 4, 100, None, 110.0]]

    with pytest.raises(StepLogError, match="no busy time"):
        full_batch(rows, 4, 2)


def test_a_sparse_clock_has_fewer_rows_for_as_many_steps() -> None:
    sparse = {"EQUIPOISE_STEP_CLOCK_EVERY": "16"}
    # Steps 0, 16 and 32 of 40, or of 33; a 49th step would be the fourth row.
    assert [rows_of(steps, sparse) for steps in (33, 40, 48, 49)] == [3, 3, 3, 4]
    assert rows_of(49, {}) == 49


def test_an_alternating_clock_keeps_every_step_of_every_other_stretch() -> None:
    alternating = {"EQUIPOISE_STEP_CLOCK_EVERY": "16", "EQUIPOISE_STEP_CLOCK_ALTERNATING": "1"}
    # 32 steps, then 32 and 48 of the next 32, then every step again.
    assert [rows_of(steps, alternating) for steps in (32, 33, 64, 66)] == [32, 33, 34, 36]


PREFILLS: list[list[float | None]] = [[1, -1, 2, 60, 10.0, None], [2, 2, 2, 66, 5.0, None], [3, -1, 2, 4, 1.5, None]]
"""One prefill of two prompts of 32 tokens, in two chunks with a decode step between them."""


def test_chunks_of_a_prefill_add_up_to_one_step() -> None:
    columns = prefills(PREFILLS, 2, 32, [12.5])
    assert (columns.monotonic_ns, columns.busy_us, columns.period_us) == ((1,), (11.5,), (12.5,))
    assert (columns.real_batch, columns.context_tokens) == ((2,), (64,))


@pytest.mark.parametrize(
    ("rows", "ttft", "said"),
    [
        (PREFILLS[:2], [12.5], "holds 0 whole prefills of 64 tokens, and 1 were asked for"),
        (PREFILLS, [12.5, 12.5], "holds 1 whole prefills of 64 tokens, and 2 were asked for"),
        ([], [12.5], "out of a cache or in graphs"),
        ([[1, -1, 2, 80, 10.0, None]], [12.5], "prefilled 80 tokens where 64 were asked for"),
        ([[1, -1, 2, None, 10.0, None]], [12.5], "no start, tokens or busy time"),
    ],
)
def test_prefills_that_do_not_add_up_are_refused(rows: list[list[float | None]], ttft: list[float], said: str) -> None:
    with pytest.raises(StepLogError, match=said):
        prefills(rows, 2, 32, ttft)


def test_a_prefill_is_no_decode_step() -> None:
    decodes: list[list[float | None]] = [[n, 2, 2, 66 + 2 * n, 5.0, None] for n in range(3)]
    assert len(full_batch([*PREFILLS[:1], *decodes], 2, 3)) == 3
