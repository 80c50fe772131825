"""On which machines and GPUs launch pairs ran: history holds for its own, and one kind differs from another.

What a record does not hold is not compared.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pydantic import JsonValue

from equipoise_evals.model import LaunchHistory, LaunchRecord

PLACES = {"machine": "host or driver", "device": "kind of device", "gpu": "GPU"}
"""What says where a launch ran, and what it is called."""


def place_of(launch: LaunchRecord) -> dict[str, JsonValue]:
    """Where it ran, as far as it was recorded: the host's digest and driver, the device and the GPU's UUID."""
    seen = {"machine": launch.server_info.get("machine")}
    seen |= {name: launch.attestation.get(name) for name in ("device", "gpu")}
    return {name: value for name, value in seen.items() if value is not None}


def elsewhere(history: Iterable[LaunchHistory], launches: Sequence[LaunchRecord]) -> str | None:
    """What a reader must know where a launch ran on another machine or GPU than the history; None where none did."""
    for ran_on in (one.ran_on for one in history):
        for launch in launches:
            seen = place_of(launch)
            for name, called in PLACES.items():
                if name in seen and name in ran_on and seen[name] != ran_on[name]:
                    return (
                        f"Nothing is borrowed from history: launch pair {launch.pair} ran on another {called} than the "
                        "A/A comparisons that it rests on."
                    )
    return None


def kinds_note(launches: Sequence[LaunchRecord]) -> str | None:
    """What a reader must know where launch pairs ran on several kinds of device; None where they did not."""
    kinds: dict[int, str] = {}
    for launch in launches:
        device = launch.attestation.get("device")
        if isinstance(device, Mapping) and device.get("name"):
            kinds[launch.pair] = str(device["name"])
    if len(set(kinds.values())) < 2:
        return None
    shown = ", ".join(f"{kind} ({pairs})" for kind, pairs in sorted(Counter(kinds.values()).items()))
    return (
        f"Launch pairs ran on devices of several kinds: {shown}. The number is the mean over them, and the change may "
        "be of another size on each."
    )
