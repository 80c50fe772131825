"""Blocks chosen by the newest comparison alike, within bounds."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from equipoise_evals.block_plan import BlockAdvice
from equipoise_evals.model import ROLES, StopRecord
from equipoise_service.chosen_blocks import SHORTEST_STEPS, chosen, with_chosen_blocks
from equipoise_service.store import Store
from tests.support import records as make
from tests.support import stored

LATENCY = make.LATENCY.model_copy(update={"steps_per_block": 256, "warmup_steps": 16, "quads_per_pair": 2})
ADVICE = BlockAdvice(
    step_sd=0.0155, block_sd=0.0075, launch_sd=0.0033, step_s=0.0049, block_s=0.19, launch_s=37.0, steps_per_block=14,
    quads_per_pair=16,
)  # fmt: skip
"""What `docs/evidence/h200/llama-8b-shape` asks for."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'equipoise.db'}")
    yield opened
    opened.database.close()


def test_many_short_blocks_within_four_times_the_time() -> None:
    """Two blocks of 0.19 + 256 x 0.0049 s take 2.9 s, one of 48 steps 0.43 s: 16 of these fit into four times that."""
    found = chosen(LATENCY, ADVICE)
    assert (found.steps_per_block, found.quads_per_pair) == (SHORTEST_STEPS + 16, 16)
    most = chosen(LATENCY, ADVICE.model_copy(update={"quads_per_pair": 100}))
    assert most.quads_per_pair == int(4 * 2 * (0.19 + 256 * 0.0049) / (0.19 + 48 * 0.0049))
    longest = chosen(LATENCY, ADVICE.model_copy(update={"steps_per_block": 2_000, "quads_per_pair": 1}))
    assert (longest.steps_per_block, longest.quads_per_pair) == (256, 1)


def test_the_newest_alike_decides_and_nothing_else(store: Store) -> None:
    latency = make.LATENCY.model_copy(update={"steps_per_block": 64, "quads_per_pair": 2})
    plan = make.plan(accuracy=None, latency=latency, pairs_max=3)
    assert with_chosen_blocks(plan, store) == plan
    stops = [StopRecord(pair=pair, role=role, held_s=150.0, clean=True) for pair in (1, 2, 3) for role in ROLES]
    blocks = make.blocks(plan, 3, np.random.default_rng(3))
    stored.finish(store, plan, make.together(make.launches(plan, 3), make.treatment(), blocks, stops))
    found = with_chosen_blocks(plan, store)
    assert found.latency is not None
    assert found.latency != latency
    assert found.model_copy(update={"latency": latency}) == plan
    other = plan.model_copy(update={"model": plan.model.model_copy(update={"revision": "another"})})
    assert with_chosen_blocks(other, store) == other
    without = make.plan(latency=None)
    assert with_chosen_blocks(without, store) == without


def test_a_comparison_that_measured_too_little_is_passed_over(store: Store) -> None:
    plan = make.plan(accuracy=None, pairs_max=3)
    stored.finish(store, plan, make.together(make.launches(plan, 1), make.treatment()))
    assert with_chosen_blocks(plan, store) == plan
