"""Where the seconds of a launch pair go: laps of the world's clock, so that they add up to the whole."""

from equipoise_evals.model.records import PairStage
from equipoise_evals.ports import MonotonicClock


class Stopwatch:
    """Runs from its making on.

    Args:
        clock: Seconds of a clock that never steps back.

    Attributes:
        stage_s: Seconds of each lap so far.
    """

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock = clock
        self._since_s = clock()
        self.stage_s: dict[PairStage, float] = {}

    def lap(self, stage: PairStage) -> None:
        """What passed since the last lap was this stage, which may come again."""
        now_s = self._clock()
        self.stage_s[stage] = self.stage_s.get(stage, 0.0) + now_s - self._since_s
        self._since_s = now_s
