"""Wrong statistics that people use must fail the tests that the right ones pass: otherwise those tests say nothing."""

from collections.abc import Sequence
from importlib import import_module

import numpy as np
import pytest
from scipy.stats import norm

from equipoise_evals.calibrate.worlds import LatencyWorld
from equipoise_evals.judge import grades, latency, pooled, scores
from equipoise_evals.judge.levels import LookLevels
from equipoise_evals.model import Failed
from equipoise_evals.stats.checks import Interval
from equipoise_evals.stats.latency import RatioInterval, ratio_interval
from tests.support import records as make
from tests.support.guarantees import false_differences, require_at_most
from tests.unit.judge import test_judge

pytestmark = pytest.mark.guarantee

WORLD = LatencyWorld(launch_sd=0.003)
RUNS = 400


@pytest.mark.parametrize("margin", [0.005, 1e-5])
def test_the_judge_itself_passes(margin: float) -> None:
    require_at_most(0.05, false_differences(WORLD, RUNS, seed=44, margin=margin), RUNS)


def test_a_t_test_over_steps_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of one launch taken for replications: the spread of a mean over steps instead of over launches."""
    right = ratio_interval

    def over_steps(log_ratios: Sequence[float], confidence: float = 0.95) -> RatioInterval:
        fitted = right(log_ratios, confidence)
        half = float(norm.ppf((1 + confidence) / 2)) * WORLD.step_cv / np.sqrt(24 * 2 * fitted.n)
        return fitted._replace(low=float(np.exp(fitted.estimate - half)), high=float(np.exp(fitted.estimate + half)))

    monkeypatch.setattr(pooled, "ratio_interval", over_steps)
    with pytest.raises(AssertionError):
        require_at_most(0.05, false_differences(WORLD, RUNS, seed=42), RUNS)


def test_a_percentile_bootstrap_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few launches resampled: the percentiles cover far less than they say."""
    right = ratio_interval
    rng = np.random.default_rng(43)

    def percentile(log_ratios: Sequence[float], confidence: float = 0.95) -> RatioInterval:
        fitted = right(log_ratios, confidence)
        means = rng.choice(np.array(log_ratios), (400, fitted.n)).mean(axis=1)
        low, high = np.exp(np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2]))
        return fitted._replace(low=float(low), high=float(high))

    monkeypatch.setattr(pooled, "ratio_interval", percentile)
    with pytest.raises(AssertionError):
        require_at_most(0.05, false_differences(WORLD, RUNS, seed=43), RUNS)


def test_peeking_without_spending_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same 95 % at each look. A margin of nearly 0 lets `slower` err as often as `faster`."""
    unspent = LookLevels(difference=0.95, equivalence=0.9999)
    monkeypatch.setattr(latency, "look_levels", lambda plan, pairs: unspent)
    with pytest.raises(AssertionError):
        require_at_most(0.05, false_differences(WORLD, RUNS, seed=44, margin=1e-5), RUNS)


def test_unpaired_proportions_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two independent samples: 12 discordant questions, all one way, would show nothing."""

    def unpaired(b: int, c: int, n: int, confidence: float = 0.95) -> Interval:
        rate = 1072 / 1319
        half = float(norm.ppf((1 + confidence) / 2)) * np.sqrt(2 * rate * (1 - rate) / n)
        return Interval((b - c) / n - half, (b - c) / n + half)

    monkeypatch.setattr(scores, "tango_interval", unpaired)
    with pytest.raises(AssertionError):
        test_judge.test_the_published_scores(0, 12, "improved")


def test_errors_counted_as_wrong_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed request graded as an empty answer."""
    right = grades.graded_passes

    def wrong(ids, questions, passes):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - a mutant
        return right(
            ids,
            questions,
            [
                p.model_copy(
                    update={
                        "answers": tuple(
                            make.answered(a.question_id, "") if isinstance(a, Failed) else a for a in p.answers
                        )
                    }
                )
                for p in passes
            ],
        )

    # The package's function `measure` hides its module of the same name.
    monkeypatch.setattr(import_module("equipoise_evals.judge.measure"), "graded_passes", wrong)
    with pytest.raises(AssertionError):
        test_judge.test_missing_answers_are_never_wrong_answers()
