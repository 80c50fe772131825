"""``make demo``: the whole product line against simulated engines, in a world where the candidate is 1.64 % faster.

Everything but the engines is real: service, queue, launcher, processes, HTTP, records, judge. Nothing is kept.
"""

import json
import os
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from equipoise_service.cli.main import main as equipoise

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = Path(str(files("equipoise_evals.gsm8k") / "data" / "shipped" / "test.jsonl"))

WORLD = {"effect": {"persistent": -0.0164}, "launch_sd": 0.0005, "accuracy": 0.6, "questions": [str(SHIPPED)]}


def demo() -> int:
    """Run one simulated comparison and return its exit code; 0 is ship."""
    with tempfile.TemporaryDirectory(prefix="equipoise-demo-") as folder:
        os.environ.update(
            EQUIPOISE_DATA=folder,
            EQUIPOISE_DEVICE="simulated",
            EQUIPOISE_ENGINE_MODULE="tests.fakes.simulated_engine",
            EQUIPOISE_PLUGIN_PATH=str(ROOT),
            EQUIPOISE_ENGINE_VARIABLES=json.dumps({"EQUIPOISE_SIM": json.dumps(WORLD)}),
            EQUIPOISE_GSM8K="shipped",
        )
        print("simulated engines: a world in which the candidate is 1.64 % faster and answers alike", file=sys.stderr)
        return equipoise(["compare", "--pairs-max", "3", "--shots", "2"])


if __name__ == "__main__":
    sys.exit(demo())
