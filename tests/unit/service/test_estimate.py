"""What a plan would cost. Expected seconds are worked out by hand from the simulated device's profile."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from equipoise_evals.judge.cost import device_seconds
from equipoise_evals.model import Layout, StopRecord
from equipoise_service.estimate import seconds_per_pair, seconds_per_pair_before
from equipoise_service.store import Store
from tests.support import records as make
from tests.support import stored
from tests.support.attached import ARMS


def test_engines_that_run_already_are_not_started() -> None:
    # 4 blocks of 24 steps of 2 ms at each of two batch sizes, and without attaching two starts of 2 s.
    blocks_s = 2 * 4 * 24 * 0.002
    assert seconds_per_pair(make.plan(accuracy=None), "simulated") == pytest.approx(2 * 2.0 + blocks_s)
    assert seconds_per_pair(make.plan(accuracy=None, arms=ARMS), "simulated") == pytest.approx(blocks_s)


def test_prefills_take_the_time_of_their_tokens() -> None:
    """4 blocks of 24 prefills at each of batches 1 and 16, of 512 tokens a prompt at 20 us each, after two starts."""
    latency = make.LATENCY.model_copy(update={"phase": "prefill", "prompt_tokens": 512})
    blocks_s = 4 * 24 * (1 + 16) * 512 * 20e-6
    expected = pytest.approx(2 * 2.0 + blocks_s)
    assert seconds_per_pair(make.plan(accuracy=None, latency=latency), "simulated") == expected


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'equipoise.db'}")
    yield opened
    opened.database.close()


def held(pair: int, baseline_s: float, candidate_s: float) -> list[StopRecord]:
    times = {"A": baseline_s, "B": candidate_s}
    return [StopRecord.model_validate({"pair": pair, "role": r, "held_s": s, "clean": True}) for r, s in times.items()]


@pytest.mark.parametrize(("layout", "seconds"), [("co_resident", 60.0), ("alternating", 100.0), ("crossover", 100.0)])
def test_engines_hold_one_device_set_together_or_one_each(layout: Layout, seconds: float) -> None:
    assert device_seconds(held(1, 60.0, 40.0), layout) == {1: seconds}
    # Launched again after it was cut short: the longer launch is what a pair costs.
    assert device_seconds([*held(1, 5.0, 5.0), *held(1, 60.0, 40.0)], layout) == {1: seconds}


def test_the_run_before_tells_what_a_timed_pair_costs(store: Store) -> None:
    """Two pairs of 100 s were timed; the third, of 30 s, came after the speed was decided."""
    plan = make.plan(3, layout="co_resident")
    assert seconds_per_pair_before(plan, store) is None
    stops = [*held(1, 100.0, 90.0), *held(2, 100.0, 90.0), *held(3, 30.0, 30.0)]
    launches = [make.launch(pair, role, plan.arms.of(role).scratch) for pair in (1, 2, 3) for role in ("A", "B")]
    blocks = make.blocks(plan, 2, np.random.default_rng(1))
    stored.finish(store, plan, make.together([make.questions()], launches, make.treatment(), blocks, stops))
    assert seconds_per_pair_before(plan, store) == pytest.approx(100.0)


def test_without_a_latency_half_every_pair_counts_and_an_inactive_run_tells_nothing(store: Store) -> None:
    plan = make.plan(2, latency=None)
    records = make.together([make.questions()], make.launches(plan, 2), make.treatment(), make.equal_passes())
    stored.finish(store, plan, records)
    assert seconds_per_pair_before(plan, store) == pytest.approx(60.0)
    timed = make.plan(2, accuracy=None)
    blocks = make.blocks(timed, 1, np.random.default_rng(1))
    stored.finish(store, timed, make.together(make.launches(timed, 1), blocks, make.treatment(60.0, 60.0)))
    assert seconds_per_pair_before(timed, store) is None
