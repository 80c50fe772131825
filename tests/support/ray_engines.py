"""Three comparisons of real CPU engines through Ray on this machine, for ``make ray-evidence``.

All three are submitted at once and claimed at once; the node has the cores of one, so that Ray lets them run one after
the other. What is printed is read out of their records and events.
"""

import os
import sys
import tempfile
import time
from datetime import datetime
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from equipoise_service.store import FINAL
from tests.integration.service.served import Serving
from tests.support.kept import circumstances
from tests.support.loopback_cluster import loopback_cluster

COMPARISONS = 3
CORES = 2.0
REQUEST: dict[str, Any] = {
    "model": "embedded", "pairs_max": 1, "quads": 1, "steps_per_block": 12, "batch_sizes": [1], "primary_batch": 1,
    "questions": 2, "shots": 1, "max_new_tokens": 16,
}  # fmt: skip


def clock(text: str) -> datetime:
    """An instant out of a document."""
    return datetime.fromisoformat(text)


def main() -> int:
    """Run them, print what happened; 0 if all succeeded and no two ran at once."""
    cache = os.environ.get("EQUIPOISE_CACHE", str(Path("~/.cache/equipoise").expanduser()))
    with loopback_cluster([CORES]) as cluster, tempfile.TemporaryDirectory() as folder:
        variables = {
            "EQUIPOISE_DATA": f"{folder}/data", "EQUIPOISE_CACHE": cache, "EQUIPOISE_DEVICE": "cpu",
            "EQUIPOISE_PORT": "0", "EQUIPOISE_EXECUTOR": "ray", "EQUIPOISE_RAY_ADDRESS": cluster.address,
            "EQUIPOISE_RAY_CPUS": str(CORES), "EQUIPOISE_SLOTS": str(COMPARISONS),
        }  # fmt: skip
        with Serving(Path(folder), variables, simulated=False) as serving:
            sent = [
                httpx.post(f"{serving.url}/compare", json=REQUEST | {"seed": seed}, trust_env=False, timeout=600)
                for seed in range(1, COMPARISONS + 1)
            ]
            ids = [answer.raise_for_status().json()["id"] for answer in sent]
            while any(serving.get(f"/comparisons/{one}")["status"] not in FINAL for one in ids):
                time.sleep(2.0)
            views = [serving.get(f"/comparisons/{one}") for one in ids]
            records = [serving.get(f"/comparisons/{one}/records")["records"] for one in ids]
    print(f"{circumstances()}; real engines through Ray {version('ray')}, a node of {CORES:g} cores")
    spans = []
    for number, (view, kept) in enumerate(zip(views, records, strict=True), start=1):
        launches = [one for one in kept if one["kind"] == "launch"]
        stops = [one for one in kept if one["kind"] == "stop"]
        if view["status"] != "succeeded" or len(launches) != 2 or len(stops) != 2:
            print(f"{number}: {view['status']}: {view['error']}")
            return 1
        began = min(clock(one["started_at"]) for one in launches)
        spans.append((began, clock(view["finished_at"])))
        versions = launches[0]["attestation"]["versions"]
        print(
            f"{number}: claimed {clock(view['started_at']):%H:%M:%S}, engines from {began:%H:%M:%S}, ended "
            f"{spans[-1][1]:%H:%M:%S}; both arms on node {launches[0]['node'].split()[1]}"
            f"{'' if launches[0]['node'] == launches[1]['node'] else ' AND ANOTHER'}; SGLang {versions['sglang']}; "
            f"{view['verdict']['overall']['word']}: {view['verdict']['headline']}"
        )
    spans.sort()
    apart = all(ended <= began for (_, ended), (began, _) in pairwise(spans))
    print(f"One after the other: {apart}")
    return 0 if apart else 1


if __name__ == "__main__":
    sys.exit(main())
