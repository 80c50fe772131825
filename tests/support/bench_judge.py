"""What a verdict costs: ``python -m tests.support.bench_judge``, by ``make bench-judge`` into docs/evidence.

Ten pairs of eight blocks of 4,096 steps, eight passes of 1,319 questions: 1 s and 500 MB, records and libraries
included; and the four-run test on outputs with 10,000 draws.
"""

import platform
import resource
import sys
import time

import numpy as np

from equipoise_evals.judge import judge
from equipoise_evals.stats.paired import output_shift
from tests.support.large import long_plan, long_records

TRIES = 5
JUDGE_S, SHIFT_S, PEAK_MB = 1.0, 1.0, 500.0


def main() -> int:
    """Measure, print, and fail where a limit is passed."""
    plan = long_plan()
    records = long_records(plan)
    judged_s = []
    for _ in range(TRIES):
        begun = time.process_time()
        verdict = judge(records, plan)
        judged_s.append(time.process_time() - begun)
    rng = np.random.default_rng(7)
    runs = rng.integers(0, 3, (4, 1_319))
    begun = time.process_time()
    output_shift(runs[0], runs[1], runs[2], runs[3], rng)
    shift_s = time.process_time() - begun
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000
    print(f"{platform.python_version()}, {platform.machine()}; processor time")
    print(f"judge: {judged_s[0]:.2f} s the first time, {min(judged_s):.2f} later, of {JUDGE_S}: {verdict.overall.word}")
    print(f"output_shift with 10,000 draws: {shift_s:.2f} s of {SHIFT_S}")
    print(f"peak of the process, records and libraries included: {peak_mb:.0f} MB of {PEAK_MB:.0f}")
    return int(judged_s[0] > JUDGE_S or shift_s > SHIFT_S or peak_mb > PEAK_MB)


if __name__ == "__main__":
    sys.exit(main())
