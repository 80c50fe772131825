"""``make demo``: the whole product line against simulated engines, in a world where the candidate is 1.64 % faster.

Everything but the engines is real: service, queue, launcher, processes, HTTP, records, judge. What it measures is kept
in a data folder of its own below the cache, where ``equipoise report`` and the pages find it.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from equipoise_service.cli.main import main as equipoise
from equipoise_service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = Path(str(files("equipoise_evals.gsm8k") / "data" / "shipped" / "test.jsonl"))

# In real time, so that what clients see of a stream is what the engine pretends.
WORLD = {
    "effect": {"persistent": -0.0164},
    "launch_sd": 0.0005,
    "accuracy": 0.6,
    "questions": [str(SHIPPED)],
    "time_scale": 1.0,
}


def prepare(world: Mapping[str, object]) -> None:
    """Point this process at simulated engines in such a world, and at the demo's data folder."""
    os.environ.update(
        EQUIPOISE_DATA=str(Settings.from_env().cache / "demo"),
        EQUIPOISE_DEVICE="simulated",
        EQUIPOISE_ENGINE_MODULE="tests.fakes.simulated_engine",
        EQUIPOISE_PLUGIN_PATH=str(ROOT),
        EQUIPOISE_ENGINE_VARIABLES=json.dumps({"EQUIPOISE_SIM": json.dumps(world)}),
        EQUIPOISE_GSM8K="shipped",
    )


def demo(options: Sequence[str]) -> int:
    """Run one simulated comparison and return its exit code; 0 is ship. Options are those of ``equipoise compare``."""
    prepare(WORLD)
    print("simulated engines: a world in which the candidate is 1.64 % faster and answers alike", file=sys.stderr)
    return equipoise(["compare", "--pairs-max", "3", "--shots", "2", *options])


if __name__ == "__main__":
    sys.exit(demo(sys.argv[1:]))
