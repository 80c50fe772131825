"""Block lengths chosen by how launches, blocks and steps varied in the newest comparison alike.

The choice is made with the plan, before anything runs, and is part of it; a request that names a length keeps it.
"""

from equipoise_evals.block_plan import BlockAdvice, block_advice
from equipoise_evals.model import LatencyPlan, Plan, StopRecord
from equipoise_service.launch_history import alike
from equipoise_service.store import ListFilter, Status, Store

RUNS_LOOKED_AT = 20
SHORTEST_STEPS, LONGEST = 32, 4
"""Timed steps that a block has at least; and how many times the given measuring time of a pair a choice may take."""


def with_chosen_blocks(plan: Plan, store: Store) -> Plan:
    """The plan with the blocks that the newest finished comparison alike asks for; itself where there is none."""
    if plan.latency is None or plan.arms.attached:
        return plan
    for summary in store.comparisons.page(ListFilter(plan.model.name, None, Status.SUCCEEDED), RUNS_LOOKED_AT).items:
        stored = store.comparisons.get(summary.id)
        past = None if stored is None else Plan.model_validate_json(stored.plan)
        if past is None or past.latency is None or not alike(plan, past):
            continue
        records = store.records.load(summary.id)
        advice = block_advice(records.current_blocks(), records.of(StopRecord), past.latency, past.layout)
        if advice is not None:
            return plan.model_copy(update={"latency": chosen(plan.latency, advice)})
    return plan


def chosen(latency: LatencyPlan, advice: BlockAdvice) -> LatencyPlan:
    """The advice within bounds: blocks long enough to be seen into and no longer than planned, in bounded time."""
    steps = min(max(advice.steps_per_block, SHORTEST_STEPS), latency.steps_per_block - latency.warmup_steps)
    block_s = advice.block_s + (steps + latency.warmup_steps) * advice.step_s
    given_s = latency.quads_per_pair * (advice.block_s + latency.steps_per_block * advice.step_s)
    quads = max(1, min(advice.quads_per_pair, int(LONGEST * given_s / block_s)))
    return latency.model_copy(update={"steps_per_block": steps + latency.warmup_steps, "quads_per_pair": quads})
