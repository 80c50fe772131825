"""One thing that ``equipoise doctor`` looked at."""

from typing import Literal

from equipoise_evals.model import Frozen


class Finding(Frozen):
    """One thing looked at; ``remedy`` says what to do where ``state`` is not ``ok``."""

    name: str
    state: Literal["ok", "warning", "problem"]
    detail: str
    remedy: str = ""
