"""Differences between the arms other than the change under test: device, clocks, sampling, prefix cache.

Each makes a comparison confounded: whatever it shows may come from there. What a record does not hold is not compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from pydantic import JsonValue

from equipoise_evals.judge.contrasts import units_of
from equipoise_evals.model import (
    ROLES,
    Answer,
    Answered,
    BlockRecord,
    Invalid,
    LaunchRecord,
    PassRecord,
    Plan,
    Records,
    Role,
)

CLOCK_GAP = 0.02
"""Relative difference between the arms' median SM clocks from which their step times cannot be compared."""

CACHE_GAP = 0.01
"""Difference between the arms' shares of prompt tokens out of the prefix cache that may be left."""


class _PairDevices(NamedTuple):
    """The device set, and the node of a cluster, of each engine of one launch pair."""

    pair: int
    by_role: Mapping[Role, tuple[str, ...]]


def judge_confounding(records: Records, plan: Plan) -> Invalid | None:
    """The first difference that is not the change under test, or None."""
    passes = records.of(PassRecord)
    return (
        _devices(records.of(LaunchRecord), plan)
        or _not_swapped(records.of(LaunchRecord), plan)
        or _sampling(passes)
        or _prompts(passes)
        or _caches(passes)
        or _clocks(records.current_blocks())
    )


def _devices(launches: Sequence[LaunchRecord], plan: Plan) -> Invalid | None:
    """Both engines of a pair on the same device: two GPUs of one kind differ by more than arms do (A2-19).

    In ``crossover`` on two of one kind in one machine, since there a second pair undoes their difference.
    """
    seen: dict[int, dict[Role, tuple[JsonValue, ...]]] = {}
    for launch in launches:
        if launch.attached and not launch.attestation:
            continue  # What a record does not hold is not compared.
        device = launch.attestation.get("device")
        name = device.get("name") if isinstance(device, Mapping) else None
        visible = None if plan.layout == "crossover" else launch.environment.get("CUDA_VISIBLE_DEVICES")
        place = (name, visible) if not launch.node else (name, visible, launch.node)
        seen.setdefault(launch.pair, {})[launch.role] = place
    for pair, devices in seen.items():
        if len(set(devices.values())) > 1:
            detail = ", ".join(
                f"arm {role} on {name} ({', '.join(map(str, more))})" for role, (name, *more) in sorted(devices.items())
            )
            return Invalid(reason="device_differs", detail=f"the engines of pair {pair} ran on two devices: {detail}")
    return None


def _not_swapped(launches: Sequence[LaunchRecord], plan: Plan) -> Invalid | None:
    """In ``crossover`` both arms of a unit on each device set as often: only then does their difference cancel."""
    if plan.layout != "crossover":
        return None
    seen: dict[int, dict[Role, tuple[str, ...]]] = {}
    for launch in launches:
        if (devices := launch.environment.get("CUDA_VISIBLE_DEVICES")) is not None:
            place = (devices, launch.node) if launch.node else (devices,)
            seen.setdefault(launch.pair, {})[launch.role] = place
    whole = [_PairDevices(pair, by_role) for pair, by_role in seen.items() if len(by_role) == len(ROLES)]
    for unit in units_of(whole, plan.pairs_per_unit):
        ran = {role: [one.by_role[role] for one in unit] for role in ROLES}
        if sorted(ran["A"]) != sorted(ran["B"]):
            said = ", ".join(
                f"arm {role} on {' and '.join(f'({place})' for place in map(', '.join, ran[role]))}" for role in ROLES
            )
            pairs = " and ".join(str(one.pair) for one in unit)
            return Invalid(
                reason="device_differs",
                detail=f"the device sets were not swapped between pairs {pairs}: {said}",
            )
    return None


def _sampling(passes: Sequence[PassRecord]) -> Invalid | None:
    known = [(p, a.sampling) for p in passes for a in p.answers if isinstance(a, Answered) and a.sampling is not None]
    for one, sampling in known:
        if sampling != known[0][1]:
            names = sorted(k for k in sampling | known[0][1] if sampling.get(k) != known[0][1].get(k))
            return Invalid(
                reason="sampling_differs",
                detail=f"a request of pair {one.pair}, arm {one.role}, was sent other sampling parameters than the "
                f"first of all: {', '.join(names)}",
            )
    return None


def _prompts(passes: Sequence[PassRecord]) -> Invalid | None:
    probes = [done for done in passes if done.probe is not None]
    for done in probes:
        if done.probe != probes[0].probe:
            return Invalid(
                reason="prompt_differs",
                detail=f"the first prompt of pair {done.pair}, arm {done.role}, has other tokens than that of pair "
                f"{probes[0].pair}, arm {probes[0].role}",
            )
    return None


def _caches(passes: Sequence[PassRecord]) -> Invalid | None:
    shares = {role: _cached_share(a for p in passes if p.role == role for a in p.answers) for role in ROLES}
    a, b = shares["A"], shares["B"]
    if a is None or b is None or abs(a - b) <= CACHE_GAP:
        return None
    return Invalid(
        reason="cache_differs",
        detail=f"{a:.1%} of the baseline's prompt tokens and {b:.1%} of the candidate's came out of the prefix cache; "
        f"at most {CACHE_GAP:.0%} may lie between",
    )


def _cached_share(answers: Iterable[Answer]) -> float | None:
    answered = [answer for answer in answers if isinstance(answer, Answered)]
    prompts = sum(answer.prompt_tokens for answer in answered)
    return sum(answer.cached_tokens for answer in answered) / prompts if prompts else None


def _clocks(blocks: Sequence[BlockRecord]) -> Invalid | None:
    medians = {role: _median_clock(block for block in blocks if block.role == role) for role in ROLES}
    a, b = medians["A"], medians["B"]
    if a is None or b is None or abs(a - b) <= CLOCK_GAP * max(a, b):
        return None
    return Invalid(
        reason="clock_gap",
        detail=f"the device ran at {a:.0f} MHz under the baseline and at {b:.0f} MHz under the candidate (medians); at "
        f"most {CLOCK_GAP:.0%} may lie between",
    )


def _median_clock(blocks: Iterable[BlockRecord]) -> float | None:
    clocks = [
        float(value)
        for block in blocks
        if isinstance(clock := block.telemetry.get("sm_clock_mhz"), Mapping)
        and isinstance(value := clock.get("median"), int | float)
    ]
    return median(clocks) if clocks else None
