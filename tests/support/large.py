"""The largest comparison that a page, a report or the judge is promised to be quick with."""

import numpy as np

from equipoise_evals.model import ROLES, Answered, PassRecord, Plan, Record, Records, Role
from tests.support import records as make

PAIRS, BLOCKS, STEPS = 10, 8, 4_096
PASSES, QUESTIONS = 8, 1_319
CHANGED = 66
"""Questions on which the arms differ, as in the published comparison of 0.822 and 0.813."""
REASONING = "She sells 16 - 3 - 4 = <<16-3-4=9>>9 eggs a day, and so she makes 9 * 2 = $<<9*2=18>>18 every day. "


def long_plan() -> Plan:
    """Ten pairs of eight blocks of 4,096 steps at one batch size, and eight passes of all of GSM8K's test questions."""
    latency = make.LATENCY.model_copy(
        update={"batch_sizes": (16,), "quads_per_pair": 2, "steps_per_block": STEPS, "warmup_steps": 64}
    )
    return make.plan(PAIRS, latency=latency, accuracy=make.accuracy_plan(QUESTIONS, passes_max=PASSES // 2))


def long_records(plan: Plan) -> Records:
    """What such a plan leaves when the candidate is 1.64 % faster and answers as well."""
    blocks = make.blocks(plan, PAIRS, np.random.default_rng(3), effect=-0.0164)
    assert len(blocks) == PAIRS * BLOCKS
    passes: list[Record] = [a_pass(pair, role) for pair in range(1, PASSES // 2 + 1) for role in ROLES]
    asked = make.questions(QUESTIONS)
    return make.together([asked], make.launches(plan, PAIRS), make.treatment(), passes, blocks)


def a_pass(pair: int, role: Role) -> Record:
    """1,084 or 1,072 right answers of some sentences each, ``CHANGED`` of them right in one arm only."""
    only_first = (CHANGED + 12) // 2
    start = 0 if role == "A" else only_first
    right = range(start, start + (1_084 if role == "A" else 1_072))
    answers = tuple(long_answer(question, question in right) for question in range(QUESTIONS))
    return PassRecord(pair=pair, role=role, answers=answers, duration_s=60.0)


def long_answer(question: int, right: bool) -> Answered:
    """Reasoning of GSM8K's length, and the number that is asked for or another."""
    final = question if right else question + 1_000
    return make.answered(question, f"{REASONING * 3}\n#### {final}").model_copy(
        update={"output_ids": tuple(range(120))}
    )
