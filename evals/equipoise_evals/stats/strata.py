"""Values that come from several strata, as launch pairs from several machines: do the strata differ?"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from scipy.stats import f as f_distribution


def strata_p(values: Mapping[str, Sequence[float]]) -> float | None:
    """P value of the one-way analysis of variance; H0 is that all strata have the same mean.

    Assumes independent normal values of one variance. Under H0 the ratio of the mean squares between and within strata
    has an F distribution with k - 1 and n - k degrees of freedom (Scheffe, The Analysis of Variance, chapter 3).

    Args:
        values: By stratum, at least one value each.

    Returns:
        The p value; None with fewer than two strata, or where none has two values, so that nothing tells how values of
        one stratum vary. Where they do not vary at all, 0 if strata differ and 1 if not.
    """
    strata, count = len(values), sum(len(group) for group in values.values())
    if strata < 2 or count == strata:
        return None
    grand = fmean(value for group in values.values() for value in group)
    means = {name: fmean(group) for name, group in values.items()}
    between = sum(len(group) * (means[name] - grand) ** 2 for name, group in values.items())
    within = sum((value - means[name]) ** 2 for name, group in values.items() for value in group)
    if within == 0:
        return 0.0 if between > 0 else 1.0
    ratio = (between / (strata - 1)) / (within / (count - strata))
    return float(f_distribution.sf(ratio, strata - 1, count - strata))
