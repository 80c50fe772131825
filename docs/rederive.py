"""Derive the latency intervals of a downloaded record again, with nothing of Equipoise imported.

python docs/rederive.py records.json[.xz]        needs scipy; get the file from /comparisons/{id}/records
"""

import json
import lzma
import math
import sys
from pathlib import Path
from statistics import fmean

from scipy.stats import t


def step_times(block: dict, clock: str, latency: dict) -> dict[int, float]:
    """Time of each full-batch step after the warm-up by one clock, by its context in tokens; a prefill by its place."""
    steps, warmup = block["steps"], latency["warmup_steps"]
    full = [i for i, real in enumerate(steps["real_batch"]) if real == block["batch"]]
    if latency.get("phase") == "prefill":
        return {i: steps[f"{clock}_us"][i] for i in full[warmup:]}
    first = steps["context_tokens"][full[0]] + warmup * block["batch"]
    times = {c: steps[f"{clock}_us"][i] for i in full if (c := steps["context_tokens"][i]) >= first}
    return {context: us for context, us in times.items() if us is not None}


def quad_contrast(quad: list[dict], clock: str, latency: dict) -> float:
    """Mean log of the B blocks less mean log of the A blocks, over the contexts that all four share."""
    times = [(block["role"], step_times(block, clock, latency)) for block in quad]
    common = set.intersection(*(set(steps) for _, steps in times))
    logs = [(role, math.log(fmean(steps[c] for c in common))) for role, steps in times]
    return fmean(log for role, log in logs if role == "B") - fmean(log for role, log in logs if role == "A")


def rederive(document: dict, clock: str = "busy") -> tuple[float, float, float]:
    """Effect, lower and upper limit by one clock at the primary batch, at the level that the verdict states."""
    latency = document["plan"]["latency"]
    engines: dict[tuple[int, str], list[dict]] = {}
    for r in document["records"]:
        if r["kind"] == "launch":  # what was cut short is launched again and timed again as a whole, both engines of it
            if (r["pair"], r["role"]) in engines:
                engines = {place: blocks for place, blocks in engines.items() if place[0] != r["pair"]}
            engines[r["pair"], r["role"]] = []
        if r["kind"] == "block" and r["batch"] == latency["primary_batch"]:
            engines.setdefault((r["pair"], r["role"]), []).append(r)
    quads: dict[int, dict[int, list[dict]]] = {}
    for (pair, _), blocks in engines.items():
        for r in blocks:  # beside foreign load a quad is run again, and its last run counts
            if r.get("attempt", 1) == max(b.get("attempt", 1) for b in blocks if b["quad"] == r["quad"]):
                quads.setdefault(pair, {}).setdefault(r["quad"], []).append(r)
    logs = [fmean(quad_contrast(q, clock, latency) for q in pair.values()) for pair in quads.values()]
    stated = document["verdict"]["latency"]["evidence"][clock]
    if stated.get("pairs_per_unit", 1) == 2:  # devices are swapped in every second launch pair: two make one unit
        logs = [fmean(both) for both in zip(logs[::2], logs[1::2])]
    level = stated["interval"]["level"]
    mean, n = fmean(logs), len(logs)
    half = t.ppf((1 + level) / 2, n - 1) * math.sqrt(sum((x - mean) ** 2 for x in logs) / (n - 1) / n)
    return math.expm1(mean), math.expm1(mean - half), math.expm1(mean + half)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_file():
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    document = json.loads(lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes())
    for clock in ("busy", "period"):
        effect, low, high = (f"{100 * value:+.4f} %" for value in rederive(document, clock))
        level = document["verdict"]["latency"]["evidence"][clock]["interval"]["level"]
        batch = document["plan"]["latency"]["primary_batch"]
        print(f"{clock} time at batch {batch}: {effect} ({low} to {high}, {100 * level:.4g} %)")
