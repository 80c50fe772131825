"""From stored raw records to a verdict, and nothing else: no clock, no environment, no file, no engine.

``judge(records, plan)`` can be run again on any old comparison and gives the same bytes under the same lock file. It
is ``conclude(measure(records, plan), plan)``: what was seen becomes contrasts and grades, then those become words.
"""

from equipoise_evals.judge.canonical import canonical_json
from equipoise_evals.judge.conclude import conclude
from equipoise_evals.judge.measure import Measured, measure
from equipoise_evals.model import Plan, Records, Verdict

__all__ = ["Measured", "canonical_json", "conclude", "judge", "measure"]


def judge(records: Records, plan: Plan) -> Verdict:
    """The verdict that these records justify under this plan."""
    return conclude(measure(records, plan), plan)
