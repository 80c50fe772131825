"""Many comparisons together: a model's effect over time with what changed, and each machine's noise from A/A runs."""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from equipoise_evals.model import LatencyContrast, Verdict
from equipoise_service.store import ListFilter, Store, Summary
from equipoise_service.store.lists import read_declared_aa

MOST = 100
"""Comparisons looked at, the newest of them."""


class Past(NamedTuple):
    """One finished comparison in a trend.

    Attributes:
        intervals: As a list shows them, by half.
        facts: What was measured: versions, device, weights, each under its name.
        changes: What differs from the comparison before, one sentence each; empty for the first.
    """

    id: str
    created_at: datetime
    verdict: str
    intervals: Mapping[str, list[float | None]]
    facts: Mapping[str, str]
    changes: tuple[str, ...]


class Control(NamedTuple):
    """One A/A comparison: what busy time showed where nothing differed."""

    id: str
    created_at: datetime
    model: str
    busy: LatencyContrast


class Noise(NamedTuple):
    """One machine in one layout.

    ``launch_sd`` is the SD of a launch pair's log-ratio, pooled; None without two pairs, each a unit, in any run.
    """

    machine: str
    controls: tuple[Control, ...]
    launch_sd: float | None


def past_of(store: Store, model: str, arms: str | None) -> list[Past]:
    """The newest finished comparisons of a model, oldest first, each with what changed since the one before."""
    found: list[Past] = []
    newest = store.comparisons.page(ListFilter(model=model, arms=arms), MOST).items
    for line in reversed(newest):
        if line.verdict_word is None or line.intervals is None:
            continue
        facts = facts_of(store, line)
        if facts is None:
            continue
        changes = changes_between(found[-1].facts, facts) if found else ()
        intervals = json.loads(line.intervals)
        found.append(Past(line.id, line.created_at, line.verdict_word, intervals, facts, changes))
    return found


def facts_of(store: Store, line: Summary) -> dict[str, str] | None:
    """What one comparison measured, out of its plan and of what its engines attested first; None if it was pruned."""
    stored = store.comparisons.get(line.id)
    if stored is None:
        return None
    plan = json.loads(stored.plan)
    facts = {"arms": line.arms, "model revision": str(plan["model"]["revision"])}
    seen: set[str] = set()
    for part in store.records.parts(line.id, "launch"):
        launch = json.loads(part.payload)
        if launch["role"] in seen:
            break
        seen.add(launch["role"])
        facts |= _attested(launch["attestation"], {"A": "baseline", "B": "candidate"}[launch["role"]])
    return facts


def changes_between(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """What differs, in the order of its name."""
    names = sorted(before.keys() | after.keys())
    unknown = "not recorded"
    return tuple(
        f"{name}: {before.get(name, unknown)}, now {after.get(name, unknown)}"
        for name in names
        if before.get(name) != after.get(name)
    )


def noise_of(store: Store) -> list[Noise]:
    """Each machine's A/A comparisons, the newest first, and how far its launches differ.

    Layouts stand apart: engines that share a GPU may differ many times more than those that have it alone.
    """
    machines: dict[str, list[Control]] = {}
    with store.database.read() as connection:
        lines = read_declared_aa(connection, MOST)
    for line in lines:
        stored = store.comparisons.get(line.id)
        if stored is None or stored.verdict is None:
            continue
        plan, verdict = json.loads(stored.plan), Verdict.model_validate_json(stored.verdict)
        evidence = verdict.latency.evidence if verdict.latency else None
        # Rounds with engines that ran already say nothing of launches, and their times are the client's.
        if evidence is not None and evidence.clock == "engine":
            control = Control(line.id, line.created_at, line.model_name, evidence.busy)
            machines.setdefault(_where(line.machine, plan), []).append(control)
    return [
        Noise(machine, tuple(controls), pooled_sd(control.busy for control in controls))
        for machine, controls in sorted(machines.items())
    ]


def _where(machine: str | None, plan: Mapping[str, Any]) -> str:
    layout = plan.get("layout", "co_resident")
    return (machine or "not recorded") + ("" if layout == "co_resident" else f", {layout}")


def pooled_sd(contrasts: Iterable[LatencyContrast]) -> float | None:
    """Root of the mean variance between launch pairs, weighted by degrees of freedom; None without any.

    Runs in which two pairs make one unit say nothing of the spread between pairs.
    """
    single = [one for one in contrasts if one.pairs_per_unit == 1]
    known = [(one.pairs - 1, one.launch_sd) for one in single if one.launch_sd is not None and one.pairs > 1]
    freedom = sum(df for df, _ in known)
    return math.sqrt(sum(df * sd**2 for df, sd in known) / freedom) if freedom else None


def _attested(attestation: Mapping[str, Any], arm: str) -> dict[str, str]:
    facts: dict[str, str] = {}
    versions, device = attestation.get("versions"), attestation.get("device")
    if isinstance(versions, dict):
        facts |= {f"{name} ({arm})": str(version) for name, version in versions.items()}
    if isinstance(device, dict):
        facts["device"] = str(device.get("name"))
    return facts
