"""What an alternating step clock says of its own cost, on blocks whose cost is known."""

import itertools

import numpy as np
import pytest

from equipoise_evals.judge import judge
from equipoise_evals.model import BlockRecord, ClientTiming, Records, StepColumns
from equipoise_service.engines.steplog import ALTERNATE_STEPS
from equipoise_service.interchange import RecordsDocument
from tests.gpu.clock_cost import clock_claims, contrasts, launch_effects, stretches
from tests.support import records as made

EVERY = 16
STEPS = 512


def alternating(
    cost_us: float, drift: float = 0.0, base_us: float = 4_000.0, noise: np.ndarray | None = None
) -> StepColumns:
    """A block in which a clocked step delays the next one by ``cost_us``; ``drift`` is the relative rise over it."""
    clocked = [step // ALTERNATE_STEPS % 2 == 0 or step % EVERY == 0 for step in range(STEPS)]
    lasting_us = base_us * (1 + drift * np.arange(STEPS) / STEPS) + cost_us * np.array(clocked)
    starts_us = np.concatenate([[0.0], np.cumsum(lasting_us if noise is None else lasting_us * noise)])
    rows = [step for step in range(STEPS) if clocked[step]]
    periods = [(starts_us[row] - starts_us[before]) / (row - before) for before, row in itertools.pairwise(rows)]
    columns = len(rows)
    return StepColumns(
        monotonic_ns=tuple(int(1_000 * starts_us[row]) for row in rows),
        graph_batch=(16,) * columns,
        real_batch=(16,) * columns,
        context_tokens=(1_000,) * columns,
        busy_us=(base_us,) * columns,
        period_us=(None, *(float(period) for period in periods)),
    )  # fmt: skip


def block(steps: StepColumns, pair: int, role: str, median_us: float = 19.0, rows: int = 2_000) -> BlockRecord:
    cost = {"every": EVERY, "alternating": True, "hook_rows": rows, "hook_median_us": median_us}
    client = (ClientTiming(ttft_us=30_000, tpot_us=4_000, output_tokens=24),)
    return BlockRecord.model_validate(
        {"pair": pair, "role": role, "batch": 16, "quad": 1, "position": 1, "sequence": 1, "steps": steps,
         "client": client, "telemetry": {"step_clock": cost}}
    )  # fmt: skip


def document(
    cost_us: float, launches: int = 4, median_us: float = 19.0, rows: int = 2_000, batches: tuple[int, ...] = (16,)
) -> RecordsDocument:
    rng = np.random.default_rng(3)
    found = tuple(
        block(
            # Launches differ by 1 %, steps by 1 %.
            alternating(cost_us, base_us=4_000 * (1 + 0.01 * launch), noise=rng.normal(1, 0.01, STEPS)),
            1 + launch // 2,
            "AB"[launch % 2],
            median_us,
            rows,
        )
        for launch in range(launches)
        for _ in range(4)
    )
    latency = made.LATENCY.model_copy(update={"batch_sizes": batches})
    plan = made.plan(pairs_max=3, accuracy=None, declared_aa=True, latency=latency)
    return RecordsDocument(plan=plan, records=found, verdict=judge(Records(records=found), plan))


def test_a_block_falls_into_stretches_of_each_setting() -> None:
    found = stretches(alternating(cost_us=0.0))
    assert [dense for dense, _ in found] == [True, False] * (STEPS // ALTERNATE_STEPS // 2)
    assert [period for _, period in found] == pytest.approx([4_000.0] * (STEPS // ALTERNATE_STEPS))


def test_the_contrast_is_the_cost_of_clocking_every_step_less_that_of_every_16th() -> None:
    # Clocked at every step a period lasts 4,040 us, at every 16th 4,000 + 40/16 us.
    found = contrasts(stretches(alternating(cost_us=40.0)))
    assert found == pytest.approx([np.log(4_040 / 4_002.5)] * (STEPS // ALTERNATE_STEPS - 3), rel=1e-6)


def test_a_drift_within_the_block_is_no_cost() -> None:
    # A linear rise of 1 %. The last row stands 16 steps before the block's end, which leaves half of 8/512 of it.
    found = contrasts(stretches(alternating(cost_us=0.0, drift=0.01)))
    assert found[:-1] == pytest.approx([0.0] * (len(found) - 1), abs=1e-5)
    assert found[-1] == pytest.approx(0.01 * 8 / 512 / 2, rel=0.01)


def test_each_launch_counts_once() -> None:
    blocks = document(cost_us=40.0, launches=3).observed.of(BlockRecord)
    effects = launch_effects(blocks)
    assert len(effects) == 3
    assert effects == pytest.approx([np.log(4_040 / 4_002.5)] * 3, abs=0.002)


@pytest.mark.parametrize(
    ("cost_us", "median_us", "rows", "launches", "holds"),
    [
        (0.0, 19.0, 2_000, 4, [True, True]),
        (0.0, 21.0, 2_000, 4, [False, True]),
        (0.0, 19.0, 1_999, 4, [False, True]),
        (40.0, 19.0, 2_000, 4, [True, False]),
        (0.0, 19.0, 2_000, 2, [True, False]),
    ],
)
def test_each_claim_can_fail(cost_us: float, median_us: float, rows: int, launches: int, holds: list[bool]) -> None:
    found = clock_claims(document(cost_us, launches, median_us, rows))
    assert [claim.holds for claim in found] == holds


def test_a_batch_of_the_plan_without_blocks_is_a_claim_that_fails() -> None:
    found = clock_claims(document(0.0, batches=(1, 16)))
    assert [claim.holds for claim in found] == [True, False, True]
    assert found[1].seen == "0 launches"
