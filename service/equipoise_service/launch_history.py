"""How far launches differ on this machine, out of its own A/A comparisons, for a plan that borrows it.

Owns the rule of what is comparable: the same host and driver, SGLang, device, model, layout, engine options and
blocks, and no older than the operator allows. How it is borrowed, and when the pairs at hand contradict it, is the
judge's.
"""

import json
import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from statistics import stdev
from typing import Any, NamedTuple

from pydantic import JsonValue

from equipoise_evals.judge.places import place_of
from equipoise_evals.model import (
    ArmPair,
    EngineMetric,
    LatencyContrast,
    LatencyPlan,
    LaunchHistory,
    LaunchRecord,
    Plan,
    Verdict,
    looks_up_to,
)
from equipoise_evals.stats.moderated import LEAST_HISTORIES, launch_prior
from equipoise_service.engines.host import this_host
from equipoise_service.store import Store
from equipoise_service.store.lists import read_declared_aa

MOST = 100
"""Declared A/A comparisons looked at, the newest of them."""


class Control(NamedTuple):
    """A comparable A/A comparison: its id, the log-ratios of its launch pairs by metric, and where it ran."""

    id: str
    logs: dict[EngineMetric, list[float]]
    ran_on: dict[str, JsonValue]


def with_history(plan: Plan, store: Store, sglang: Callable[[], str | None], days: int, gpu: str | None = None) -> Plan:
    """The plan with the launch variances that this machine's A/A comparisons tell, if there are enough of them.

    Its looks then begin at 2 launch pairs. Where two pairs make one unit nothing is borrowed: a spread between pairs
    is not one between units. In ``alternating`` a drift from launch to launch is part of both spreads, then and now.

    Args:
        plan: A resolved plan.
        store: Where past comparisons are.
        sglang: Gives the version that will run; None where it cannot be told.
        days: Oldest comparison that counts; 0 borrows nothing.
        gpu: The GPU that will run it, by its UUID; where it cannot be told, that of the newest comparison counts.
    """
    if plan.latency is None or plan.arms.attached or plan.pairs_per_unit > 1 or days == 0:
        return plan
    controls = list(comparable(plan, store, sglang(), datetime.now(UTC) - timedelta(days=days), gpu))
    if len(controls) < LEAST_HISTORIES:
        return plan
    metrics: tuple[EngineMetric, ...] = ("busy", "period")
    history = {metric: prior for metric in metrics if (prior := fitted(metric, controls)) is not None}
    if len(history) < len(metrics):
        return plan
    looks = looks_up_to(plan.pairs_max, with_history=True, layout=plan.layout)
    return plan.model_copy(update={"history": history, "looks": looks})


def fitted(metric: EngineMetric, controls: Iterable[Control]) -> LaunchHistory | None:
    """The prior of one metric; None where too few comparisons have a spread."""
    known = [(one, sd) for one in controls if (sd := stdev(one.logs[metric])) > 0.0]
    if len(known) < LEAST_HISTORIES:
        return None
    prior = launch_prior([sd for _, sd in known], [len(one.logs[metric]) for one, _ in known])
    source = f"A/A comparisons of this host: {', '.join(one.id for one, _ in known)}"
    return LaunchHistory(d0=prior.d0, s0=prior.s0, histories=prior.histories, source=source, ran_on=known[0][0].ran_on)


def comparable(
    plan: Plan, store: Store, sglang: str | None, since: datetime, gpu: str | None = None
) -> Iterable[Control]:
    """A/A comparisons like this plan, of at least two pairs, on this host and this GPU, or the newest one's."""
    newest: object = None
    with store.database.read() as connection:
        lines = read_declared_aa(connection, MOST)
    for line in lines:
        stored = store.comparisons.get(line.id)
        if stored is None or stored.verdict is None or line.created_at < since:
            continue
        past = Plan.model_validate_json(stored.plan)
        if not alike(plan, past) or not (plan.latency and past.latency and _no_longer(past.latency, plan.latency)):
            continue
        verdict = Verdict.model_validate_json(stored.verdict)
        evidence = verdict.latency.evidence if verdict.latency else None
        if evidence is None or evidence.busy.pairs < 2 or verdict.overall.word == "invalid":
            continue
        launch = next(iter(store.records.parts(line.id, "launch")), None)
        seen: dict[str, Any] = {} if launch is None else json.loads(launch.payload)
        if not _ran_here(seen, sglang):
            continue
        device = (seen["attestation"].get("device"), seen["attestation"].get("gpu"))
        if gpu is not None and device[1] != gpu:
            continue
        newest = newest or device
        if device == newest:
            logs: dict[EngineMetric, list[float]] = {"busy": _logs(evidence.busy), "period": _logs(evidence.period)}
            yield Control(line.id, logs, place_of(LaunchRecord.model_validate(seen)))


def alike(plan: Plan, past: Plan) -> bool:
    """Whether launches of two plans differ for the same reasons; scratch policy, margins and lengths are none."""
    no_reasons = {"steps_per_block", "quads_per_pair", "warmup_steps", "margin", "slo"}
    blocks = [one.latency.model_dump(exclude=no_reasons) if one.latency else None for one in (past, plan)]
    return (
        past.model == plan.model
        and past.layout == plan.layout
        and blocks[0] == blocks[1]
        and _options(past.arms) <= _options(plan.arms)
    )


def _no_longer(past: LatencyPlan, now: LatencyPlan) -> bool:
    """Whether blocks of the past were no longer and no more: longer ones only lessen what steps add to launches."""
    return (
        past.steps_per_block - past.warmup_steps <= now.steps_per_block - now.warmup_steps
        and past.quads_per_pair <= now.quads_per_pair
    )


def _options(arms: ArmPair) -> set[str]:
    return {
        arm.model_dump_json(include={"engine", "flags", "environment", "attach"})
        for arm in (arms.baseline, arms.candidate)
    }


def _ran_here(launch: dict[str, Any], sglang: str | None) -> bool:
    if not launch:
        return False
    versions = launch["attestation"].get("versions") or {}
    return launch["server_info"].get("machine") == this_host() and (sglang is None or versions.get("sglang") == sglang)


def _logs(contrast: LatencyContrast) -> list[float]:
    return [math.log1p(effect) for effect in contrast.per_pair]
