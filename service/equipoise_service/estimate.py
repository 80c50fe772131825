"""What a planned comparison would hold a device for, before anything starts: from the last run alike, or from profiles.

``equipoise plan`` says how many launch pairs would decide; this says what the pairs of one plan cost on this machine.
"""

from typing import Literal

from equipoise_evals.judge.cost import device_seconds, timed_pairs_seconds
from equipoise_evals.model import ROLES, Frozen, Plan, StopRecord
from equipoise_evals.model.plan import DEVICE_SETS
from equipoise_service.engines.environment import Device
from equipoise_service.profiles import PROFILES
from equipoise_service.store import ListFilter, Status, Store

RUNS_LOOKED_AT = 20
BLOCKS_PER_QUAD = 4


class Estimate(Frozen):
    """Device time of a plan.

    Attributes:
        pairs_least: Launch pairs if the first look ends the run; ``pairs_most`` where the plan has no look.
        pairs_most: Launch pairs if no look does.
        gpu_minutes_least: Minutes that engines hold the device for ``pairs_least``; on a CPU, minutes of its cores.
        gpu_minutes_most: The same for ``pairs_most``.
        basis: ``history``: launch pairs of an earlier run with the same plan but for its seed; ``profile``: typical
            figures of this kind of device, good to a factor of two or three, without stress if that is asked for.
    """

    pairs_least: int
    pairs_most: int
    gpu_minutes_least: float
    gpu_minutes_most: float
    basis: Literal["history", "profile"]


class DryRun(Frozen):
    """What ``POST /compare?dry_run=true`` answers: nothing was queued."""

    plan: Plan
    estimate: Estimate


def estimate(plan: Plan, device: Device, store: Store) -> Estimate:
    """The device time of a plan on this machine."""
    measured_s = seconds_per_pair_before(plan, store)
    pair_s = seconds_per_pair(plan, device) if measured_s is None else measured_s
    least = plan.looks[0] if plan.looks else plan.pairs_max
    return Estimate(
        pairs_least=least,
        pairs_most=plan.pairs_max,
        gpu_minutes_least=round(least * pair_s / 60, 2),
        gpu_minutes_most=round(plan.pairs_max * pair_s / 60, 2),
        basis="profile" if measured_s is None else "history",
    )


def seconds_per_pair(plan: Plan, device: Device) -> float:
    """Seconds of one launch pair by the device's profile: starts one after the other, blocks, passes; no stress.

    Engines that are attached to run already and are not started. Two device sets that are held at once count twice.
    """
    profile = PROFILES[device]
    seconds = 0.0 if plan.arms.attached else len(ROLES) * profile.start_s
    if plan.latency is not None:
        blocks = BLOCKS_PER_QUAD * plan.latency.quads_per_pair
        for batch in plan.latency.batch_sizes:
            prefill_s = profile.prefill_s(batch * plan.latency.prompt_tokens)
            step_s = prefill_s if plan.phase == "prefill" else profile.step_s(batch)
            seconds += blocks * plan.latency.steps_per_block * step_s
    if plan.accuracy is not None:
        accuracy = plan.accuracy
        rounds = len(accuracy.questions.ids) / accuracy.concurrency
        pass_s = max(rounds, 1.0) * accuracy.sampling.max_new_tokens * profile.step_s(accuracy.concurrency)
        seconds += len(ROLES) * pass_s
    return DEVICE_SETS[plan.layout] * seconds


def seconds_per_pair_before(plan: Plan, store: Store) -> float | None:
    """Mean over the launch pairs of the newest finished run of the same plan; None if there is none.

    With a latency half only over pairs that were timed: others cost less, since the speed was decided.
    """
    newest = store.comparisons.page(ListFilter(plan.model.name, None, Status.SUCCEEDED), RUNS_LOOKED_AT).items
    for summary in newest:
        stored = store.comparisons.get(summary.id)
        if stored is None or summary.verdict_word == "treatment_inactive":
            continue  # which ended in the midst of its first pair
        # Neither the seed nor when it looks changes what a pair costs.
        same = {"seed": plan.seed, "looks": plan.looks, "history": plan.history}
        if Plan.model_validate_json(stored.plan).model_copy(update=same) == plan:
            records = store.records.load(stored.id)
            stops, blocks = records.of(StopRecord), records.current_blocks()
            held_s = (
                timed_pairs_seconds(stops, blocks, plan.layout) if plan.latency else device_seconds(stops, plan.layout)
            )
            if held_s:
                return sum(held_s.values()) / len(held_s)
    return None
