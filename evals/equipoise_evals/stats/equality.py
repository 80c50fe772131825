"""Equality of outputs: the same greedy questions asked of several launches, compared as texts.

Owns the 4-run test against an A/A and a B/B control, its launch-level counterpart, the curves of the first
divergence, and the bound on a mismatch rate. Two outputs match when they are equal, whole; what an output is (text or
token ids) is the caller's. A missing output (``None``) is refused: it would match another missing one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from equipoise_evals.stats.checks import count, open_unit

Outputs = Sequence[object]

LEAST_LAUNCHES = 5
"""Launches per arm below which a permutation of launches cannot reach p < 0.01 (5 against 5: 1/126)."""

MOST_ALLOCATIONS = 200_000
"""Allocations of launches that are enumerated: 10 launches per arm have 184,756."""


class OutputShift(NamedTuple):
    """The 4-run test; ``p_value`` was drawn, ``exact_p`` is the probability that the drawing estimates."""

    statistic: float
    p_value: float
    match_aa: float
    match_bb: float
    match_ab: float
    exact_p: float
    questions: int


class LaunchPermutation(NamedTuple):
    """Exact test whether launches of one arm agree more among themselves than with the other arm's."""

    statistic: float
    p_value: float
    match_aa: float
    match_bb: float
    match_ab: float
    allocations: int


class DivergenceCurve(NamedTuple):
    """Kaplan-Meier estimate of P(two outputs still agree after a position), with pointwise limits."""

    positions: tuple[int, ...]
    survival: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    at_risk: tuple[int, ...]
    diverged: tuple[int, ...]
    questions: int


def output_shift(  # noqa: PLR0917  DESIGN section 5 fixes the order of the arguments
    a1: Outputs, a2: Outputs, b1: Outputs, b2: Outputs, rng: np.random.Generator, resamples: int = 10_000
) -> OutputShift:
    """Test whether the outputs of two arms differ by more than an arm's outputs differ from themselves.

    Statistic: mean of the two within-arm match rates less the mean of the four cross match rates. Null hypothesis:
    per question the four outputs are exchangeable, so each of the three ways to pair them up is as likely to be the
    within-arm one; p = (1 + draws at least as large)/(1 + resamples), one-sided (Phipson & Smyth 2010).

    Only two patterns of equality can tell the pairings apart: two and two equal (within-arm matches 2, 0, 0) and two
    equal with two different (1, 0, 0). The null sum is therefore 2 Bin(n22, 1/3) + Bin(n211, 1/3), which is drawn
    as such (no array of questions x resamples) and summed exactly for ``exact_p``.

    The question is the unit here. A state that a whole launch shares (a kernel chosen at start) breaks that
    exchangeability and shows as a shift, so a small p is a suspicion that ``launch_permutation`` has to confirm.

    Args:
        a1: outputs of the first launch of the baseline, one per question.
        a2: outputs of its second launch, same questions and order.
        b1: outputs of the first launch of the candidate.
        b2: outputs of its second launch.
        rng: the source of randomness, seeded by the caller.
        resamples: number of draws, at least 1.

    Raises:
        ValueError: no questions, lists of different lengths, a missing output, or no draws.
    """
    labels = _labels([a1, a2, b1, b2])
    if count(resamples, "resamples") < 1:
        msg = "a p-value by drawing needs at least one draw"
        raise ValueError(msg)
    matches = _match_counts(labels)
    questions = labels.shape[1]
    within = int(matches[0, 1] + matches[2, 3])
    cross = int(matches[:2, 2:].sum())
    twos, ones, observed = _pairing_counts(labels)
    drawn = 2 * rng.binomial(twos, 1 / 3, size=resamples) + rng.binomial(ones, 1 / 3, size=resamples)
    at_least = int(np.count_nonzero(drawn >= observed))
    return OutputShift(
        statistic=(2 * within - cross) / (4 * questions),
        p_value=(1 + at_least) / (1 + resamples),
        match_aa=float(matches[0, 1]) / questions,
        match_bb=float(matches[2, 3]) / questions,
        match_ab=cross / (4 * questions),
        exact_p=_pairing_tail(twos, ones, observed),
        questions=questions,
    )


def _aligned(runs: Sequence[Outputs]) -> list[list[object]]:
    """The runs as lists, all of one positive length and without a missing output."""
    lists = [list(run) for run in runs]
    lengths = {len(run) for run in lists}
    if len(lengths) != 1 or lengths == {0}:
        msg = f"runs compare question by question, so their lengths {sorted(lengths)} must be one and positive"
        raise ValueError(msg)
    if any(output is None for run in lists for output in run):
        msg = "a missing output is its own state and matches nothing; leave its question out of all runs"
        raise ValueError(msg)
    return lists


def _labels(runs: Sequence[Outputs]) -> NDArray[np.int64]:
    """Per run and question a number that equal outputs to the same question share, shape (runs, questions)."""
    columns = []
    for outputs in zip(*_aligned(runs), strict=True):
        seen: dict[object, int] = {}
        columns.append([seen.setdefault(_key(output), len(seen)) for output in outputs])
    return np.array(columns, dtype=np.int64).T


def _key(output: object) -> object:
    """The output as something that can be looked up; token ids are equal whatever sequence holds them."""
    return tuple(output) if isinstance(output, list | np.ndarray) else output


def _match_counts(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Questions on which two runs match, shape (runs, runs); the diagonal is left 0."""
    matches = np.array([np.count_nonzero(labels == run, axis=1) for run in labels], dtype=np.int64)
    np.fill_diagonal(matches, 0)
    return matches


def _pairing_counts(labels: NDArray[np.int64]) -> tuple[int, int, int]:
    """Questions of the patterns 2+2 and 2+1+1, and the within-arm matches seen on them."""
    a1, a2, b1, b2 = labels
    pairings = np.array(
        [
            (a1 == a2).astype(np.int64) + (b1 == b2),
            (a1 == b1).astype(np.int64) + (a2 == b2),
            (a1 == b2).astype(np.int64) + (a2 == b1),
        ]
    )
    most = pairings.max(axis=0)
    telling = pairings.min(axis=0) != most
    return (
        int(np.count_nonzero(telling & (most == 2))),
        int(np.count_nonzero(telling & (most == 1))),
        int(pairings[0, telling].sum()),
    )


def _pairing_tail(twos: int, ones: int, observed: int) -> float:
    """P(2 Bin(twos, 1/3) + Bin(ones, 1/3) >= observed)."""
    count_twos = np.arange(twos + 1)
    weight = stats.binom.pmf(count_twos, twos, 1 / 3)
    tail = stats.binom.sf(observed - 1 - 2 * count_twos, ones, 1 / 3)
    return min(1.0, math.fsum((weight * tail).tolist()))


def launch_permutation(baseline: Sequence[Outputs], candidate: Sequence[Outputs]) -> LaunchPermutation:
    """Test for a shift of outputs with the launch, not the question, as the unit of exchange.

    Statistic as in ``output_shift``: mean within-arm match rate over pairs of launches, averaged over the arms, less
    the mean cross match rate. All allocations of the launches to two arms of these sizes are enumerated, so p is
    exact: the share with a statistic at least as large, the observed one among them.

    Args:
        baseline: outputs of each baseline launch, one list per launch, same questions and order throughout.
        candidate: outputs of each candidate launch.

    Raises:
        ValueError: fewer than 5 launches in an arm (p could not fall below 0.01), more allocations than are
            enumerated, or runs that ``output_shift`` would refuse.
    """
    first, second = len(baseline), len(candidate)
    allocations = math.comb(first + second, first)
    if min(first, second) < LEAST_LAUNCHES or allocations > MOST_ALLOCATIONS:
        msg = f"launches are permuted from {LEAST_LAUNCHES} per arm to 10 per arm, not {first} against {second}"
        raise ValueError(msg)
    labels = _labels([*baseline, *candidate])
    matches = _match_counts(labels) / labels.shape[1]
    in_first = _allocations(first, second)
    reached = in_first @ matches
    inside = (reached * in_first).sum(axis=1) / 2.0
    outside = (reached * (1.0 - in_first)).sum(axis=1)
    other = matches.sum() / 2.0 - inside - outside
    match_aa, match_bb = inside / math.comb(first, 2), other / math.comb(second, 2)
    match_ab = outside / (first * second)
    statistics = (match_aa + match_bb) / 2.0 - match_ab
    # The first combination is the allocation that was run; 1e-12 keeps rounding from parting equal allocations.
    at_least = int(np.count_nonzero(statistics >= statistics[0] - 1e-12))
    observed = (float(statistics[0]), at_least / allocations)
    return LaunchPermutation(*observed, float(match_aa[0]), float(match_bb[0]), float(match_ab[0]), allocations)


@lru_cache(maxsize=4)
def _allocations(first: int, second: int) -> NDArray[np.float64]:
    """Every way to choose the first arm's launches, the one that was run first; 1 where a launch is chosen."""
    chosen = np.array(list(combinations(range(first + second), first)))
    in_first = np.zeros((len(chosen), first + second), dtype=np.float64)
    np.put_along_axis(in_first, chosen, 1.0, axis=1)
    return in_first


def first_divergence(first: Sequence[object], second: Sequence[object]) -> tuple[int, bool]:
    """Return (position, diverged) of two outputs read in step: tokens, or characters of a text.

    Positions count from 0. Where one output is a beginning of the other they diverge where the shorter one ends;
    equal outputs are censored at their length: they were not seen to diverge.
    """
    for position, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return position, True
    return min(len(first), len(second)), len(first) != len(second)


def divergence_curve(
    first: Sequence[Sequence[object]], second: Sequence[Sequence[object]], confidence: float = 0.95
) -> DivergenceCurve:
    """Return the Kaplan-Meier curve of the first divergence between two runs of the same questions.

    Read an A-B curve against the A-A curve of the same questions: where they part, the arms differ by more than two
    launches of one arm do. Limits are pointwise, log-log Greenwood; where they do not exist (no output diverged yet,
    or none is left) they are ``nan``. Curves of the same questions are not independent, so there is no log-rank p here.

    Args:
        first: outputs of one run, each a sequence of tokens or a text.
        second: outputs of the other run, same questions and order.
        confidence: pointwise level.

    Raises:
        ValueError: no questions, lists of different lengths, a missing output, or a level outside (0, 1).
    """
    _aligned([first, second])
    level = open_unit(confidence, "confidence")
    pairs = [first_divergence(one, other) for one, other in zip(first, second, strict=True)]
    positions = np.array([position for position, _ in pairs], dtype=np.int64)
    diverged = np.array([seen for _, seen in pairs], dtype=np.bool_)
    marks = np.unique(positions[diverged])
    at_risk = np.array([np.count_nonzero(positions >= mark) for mark in marks], dtype=np.int64)
    events = np.array([np.count_nonzero(positions[diverged] == mark) for mark in marks], dtype=np.int64)
    survival = np.cumprod(1.0 - events / at_risk)
    greenwood = np.cumsum([e / (r * (r - e)) if r > e else math.inf for e, r in zip(events, at_risk, strict=True)])
    limits = [_log_log_limits(s, v, level) for s, v in zip(survival.tolist(), greenwood.tolist(), strict=True)]
    return DivergenceCurve(
        positions=tuple(marks.tolist()),
        survival=tuple(survival.tolist()),
        low=tuple(low for low, _ in limits),
        high=tuple(high for _, high in limits),
        at_risk=tuple(at_risk.tolist()),
        diverged=tuple(events.tolist()),
        questions=len(pairs),
    )


def _log_log_limits(survival: float, greenwood: float, confidence: float) -> tuple[float, float]:
    """Limits of a survival probability from the variance of log(-log S) (Kalbfleisch & Prentice 1980)."""
    if not 0.0 < survival < 1.0:
        return math.nan, math.nan
    z = -float(special.ndtri((1.0 - confidence) / 2.0))
    factor = math.exp(z * math.sqrt(greenwood) / -math.log(survival))
    return survival**factor, survival ** (1.0 / factor)


def mismatch_upper(mismatches: int, n: int, confidence: float = 0.95) -> float:
    """Return the one-sided Clopper-Pearson upper bound of a mismatch rate; "none of 1,319" still bounds it by 0.23 %.

    Args:
        mismatches: questions whose outputs differ.
        n: questions compared.
        confidence: one-sided level.

    Raises:
        ValueError: no questions, more mismatches than questions, or a level outside (0, 1).
    """
    differ, n = count(mismatches, "mismatches"), count(n, "n")
    level = open_unit(confidence, "confidence")
    if n == 0 or differ > n:
        msg = f"{differ} mismatches of {n} questions have no rate"
        raise ValueError(msg)
    return 1.0 if differ == n else float(special.betaincinv(differ + 1.0, float(n - differ), level))
