"""How often prefill comparisons err and how often they see a planted difference, by the whole judge.

Issue 10, acceptance 5. Rates are held against exact binomial bounds, seeds are fixed.
"""

from typing import Literal

import numpy as np
import pytest

from equipoise_evals.decode.schedule import planned_blocks
from equipoise_evals.judge import judge
from equipoise_evals.model import BlockRecord, LatencyVerdict, Plan, Record, StepColumns
from tests.support import records as make
from tests.support.rates import at_least, at_most

pytestmark = pytest.mark.guarantee

Word = Literal["faster", "slower"]
RUNS = 300
PAIRS = 4
MARGIN = 0.01
LATENCY = make.LATENCY.model_copy(
    update={
        "phase": "prefill", "batch_sizes": (1,), "primary_batch": 1, "prompt_tokens": 512, "steps_per_block": 16,
        "margin": MARGIN,
    }
)  # fmt: skip
PLAN: Plan = make.plan(PAIRS, accuracy=None, latency=LATENCY, preset="prefill", looks=(PAIRS,))
LAUNCH_SD, STEP_CV, QUEUE_US = 0.002, 0.02, 400.0


def compared(rng: np.random.Generator, effect: float, first_token: float = 0.0) -> LatencyVerdict:
    """One comparison whose prefills of 20 ms have a true ratio of 1 + ``effect``.

    Launches differ, prefills differ more, and the client waits for a little else besides: exponentially long, and
    ``first_token`` longer in relation for the candidate.
    """
    blocks: list[Record] = []
    for pair in range(1, PAIRS + 1):
        launch = {"A": rng.normal(0, LAUNCH_SD), "B": np.log1p(effect) + rng.normal(0, LAUNCH_SD)}
        for planned in planned_blocks(LATENCY, pair):
            busy = 20_000.0 * np.exp(launch[planned.role] + rng.normal(0, STEP_CV, LATENCY.steps_per_block))
            waited = busy + rng.exponential(QUEUE_US, LATENCY.steps_per_block)
            ttft = waited * (1.0 + first_token * (planned.role == "B"))
            columns = make.prefill_steps(1, busy.tolist(), LATENCY).model_dump() | {"period_us": ttft.tolist()}
            steps = StepColumns.model_validate(columns)
            blocks.append(BlockRecord(**(planned.model_dump() | {"pair": pair, "steps": steps, "client": ()})))
    verdict = judge(make.together(make.launches(PLAN, PAIRS), make.treatment(), blocks), PLAN).latency
    assert verdict is not None
    return verdict


def test_equal_prefills_are_seldom_called_different() -> None:
    rng = np.random.default_rng(1)
    words = [compared(rng, 0.0).word for _ in range(RUNS)]
    assert at_most(words.count("faster") + words.count("slower"), RUNS, 0.05)


@pytest.mark.parametrize(("effect", "word", "opposite"), [(-0.03, "faster", "slower"), (0.03, "slower", "faster")])
def test_a_planted_difference_is_found_and_held_by_its_interval(effect: float, word: Word, opposite: Word) -> None:
    rng = np.random.default_rng(2)
    verdicts = [compared(rng, effect) for _ in range(RUNS)]
    words = [verdict.word for verdict in verdicts]
    assert at_least(words.count(word), RUNS, 0.8)
    assert at_most(words.count(opposite), RUNS, 0.025)
    intervals = [verdict.evidence.busy.interval for verdict in verdicts]
    assert at_least(sum(one is not None and one.low <= effect <= one.high for one in intervals), RUNS, 0.95)


def test_a_first_token_later_by_the_margin_is_seldom_called_equivalent() -> None:
    """The engine's own time being equal, what the client waits for decides."""
    rng = np.random.default_rng(3)
    words = [compared(rng, 0.0, first_token=MARGIN).word for _ in range(RUNS)]
    assert at_most(words.count("equivalent"), RUNS, 0.05)
