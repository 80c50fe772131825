"""What a plan would cost. Expected seconds are worked out by hand from the simulated device's profile."""

import pytest

from equipoise_service.estimate import seconds_per_pair
from tests.support import records as make
from tests.support.attached import ARMS


def test_engines_that_run_already_are_not_started() -> None:
    # 4 blocks of 24 steps of 2 ms at each of two batch sizes, and without attaching two starts of 2 s.
    blocks_s = 2 * 4 * 24 * 0.002
    assert seconds_per_pair(make.plan(accuracy=None), "simulated") == pytest.approx(2 * 2.0 + blocks_s)
    assert seconds_per_pair(make.plan(accuracy=None, arms=ARMS), "simulated") == pytest.approx(blocks_s)
