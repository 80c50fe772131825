"""The small calibration grid: every promised error rate and power, 2,000 runs a cell, through the production judge."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from equipoise_evals.calibrate.grid import ACCURACY_CELLS, LATENCY_CELLS, LatencyCell
from equipoise_evals.calibrate.run import Cell, Counted, count_cell
from tests.support.guarantees import require_at_least, require_at_most

pytestmark = pytest.mark.guarantee

RUNS, BATCH, SEED = 2_000, 250, 11_292_026
EVERY: tuple[Cell, ...] = (*LATENCY_CELLS, *ACCURACY_CELLS)
CELLS = tuple(cell for cell in EVERY if cell.ci)


@pytest.fixture(scope="module")
def counted() -> dict[str, Counted]:
    """Counts of every cell, batches shared by two processes."""
    jobs = [(place, begun) for place in range(len(CELLS)) for begun in range(0, RUNS, BATCH)]
    counts: dict[str, Counted] = {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for (place, _), batch in zip(jobs, pool.map(_count, jobs), strict=True):
            name = CELLS[place].name
            counts[name] = counts[name].plus(batch) if name in counts else batch
    return counts


def _count(job: tuple[int, int]) -> Counted:
    place, begun = job
    return count_cell(CELLS[place], BATCH, (SEED, place, begun))


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell.limit is not None], ids=lambda cell: cell.name)
def test_the_rate_keeps_its_limit(cell: Cell, counted: dict[str, Counted]) -> None:
    assert cell.limit is not None
    require = require_at_least if cell.question == "power" else require_at_most
    require(cell.limit, counted[cell.name].asked, counted[cell.name].runs)


COVERING = [cell for cell in CELLS if (cell.covers if isinstance(cell, LatencyCell) else cell.question != "report")]


@pytest.mark.parametrize("cell", COVERING, ids=lambda cell: cell.name)
def test_the_interval_of_the_look_covers_the_truth(cell: Cell, counted: dict[str, Counted]) -> None:
    require_at_least(0.95, counted[cell.name].covered, counted[cell.name].with_interval)


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell in LATENCY_CELLS], ids=lambda cell: cell.name)
def test_a_fixed_interval_covers_the_truth(cell: Cell, counted: dict[str, Counted]) -> None:
    for covered in counted[cell.name].fixed_covered:
        require_at_least(0.935, covered, counted[cell.name].runs)


def test_a_shift_of_outputs_by_launch_wide_states_is_suspected_but_does_not_block(counted: dict[str, Counted]) -> None:
    """The 4-run test takes questions for independent; states of a whole launch fool it, so it may only suspect."""
    states = next(counted[cell.name] for cell in CELLS if cell.question == "report")
    assert states.suspected > 0.05 * states.runs
    require_at_most(0.05, states.blocked, states.runs)
