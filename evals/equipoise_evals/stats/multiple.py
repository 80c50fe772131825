"""Several tests at once: Holm's step-down adjustment for the secondary batch sizes of one family.

Owns no choice of family: which tests belong together is fixed in the plan before the data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from statsmodels.stats.multitest import multipletests

from equipoise_evals.stats.checks import Floats, sample


def holm(p_values: ArrayLike) -> list[float]:
    """Return Holm's adjusted p-values, in the order given (Holm 1979, Scandinavian Journal of Statistics 6, 65-70).

    Valid under any dependence of the tests. An empty family adjusts to an empty list.

    Args:
        p_values: shape (m,), each in [0, 1].

    Raises:
        ValueError: a p-value is missing or outside [0, 1].
    """
    raw = sample(p_values, "p_values", at_least=0)
    if ((raw < 0.0) | (raw > 1.0)).any():
        msg = "a p-value lies between 0 and 1"
        raise ValueError(msg)
    return [float(p) for p in _adjusted(raw)] if raw.size else []


def _adjusted(raw: Floats) -> Floats:
    """The one place where statsmodels' untyped answer becomes ours."""
    return np.asarray(multipletests(raw, method="holm")[1], dtype=np.float64)
