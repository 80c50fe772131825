"""Where the time of a comparison went: stages of its launch pairs, and stages of its engines' starts."""

from collections.abc import Iterable
from statistics import median
from typing import get_args

from equipoise_evals.model import Frozen, LaunchRecord, SpentRecord
from equipoise_evals.model.records import PairStage

STAGE_NAMES: dict[PairStage, str] = {
    "launches": "engine starts",
    "warm_up": "warm-up and attestation",
    "treatment": "traces",
    "gsm8k": "GSM8K",
    "blocks": "timed blocks",
    "end": "guards and stops",
}


class StartStage(Frozen):
    """One stage of an engine's start: the median over the first pair's starts, and over later ones; None where none."""

    name: str
    first_s: float | None
    later_s: float | None


class Spending(Frozen):
    """Where the time went.

    Attributes:
        stage_s: Seconds of each stage, over all launch pairs of which it was recorded; empty where of none.
        starts: Stages of an engine's start, as far as its log told them, in their order.
    """

    stage_s: dict[PairStage, float]
    starts: tuple[StartStage, ...]

    @property
    def shares(self) -> dict[str, float]:
        """The part of each stage by the name that people read, of all that was recorded."""
        whole = sum(self.stage_s.values())
        return {STAGE_NAMES[stage]: seconds / whole for stage, seconds in self.stage_s.items() if whole > 0}

    @property
    def sentence(self) -> str:
        """The shares in one line; empty where nothing was recorded."""
        return ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())


def spending_of(spent: Iterable[SpentRecord], launches: Iterable[LaunchRecord]) -> Spending:
    """The spending of these records; of a pair that was launched again, its last launch counts."""
    last = {one.pair: one.stage_s for one in spent}
    stages: tuple[PairStage, ...] = get_args(PairStage)
    totals = {stage: sum(of_pair.get(stage, 0.0) for of_pair in last.values()) for stage in stages}
    return Spending(
        stage_s={stage: seconds for stage, seconds in totals.items() if any(stage in one for one in last.values())},
        starts=tuple(start_stages(list(launches))),
    )


def start_stages(launches: list[LaunchRecord]) -> Iterable[StartStage]:
    """Every stage that some start recorded. The first pair's starts stand apart: a new host compiles kernels there."""
    for name in dict.fromkeys(stage for launch in launches for stage in launch.stage_s):
        first = [launch.stage_s[name] for launch in launches if launch.pair == 1 and name in launch.stage_s]
        later = [launch.stage_s[name] for launch in launches if launch.pair > 1 and name in launch.stage_s]
        yield StartStage(name=name, first_s=median(first) if first else None, later_s=median(later) if later else None)
