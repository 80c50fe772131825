"""``make gallery``: six simulated comparisons, one for each overall word, for teaching and to fill the pages.

As in ``make demo`` everything but the engines is real. The worlds are chosen so that each word is the right one; who
changes the judge sees here what became of them.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from equipoise_service.cli.documents import latest
from equipoise_service.cli.main import main as equipoise
from tests.fakes.demo import SHIPPED, prepare


class Picture(NamedTuple):
    """One comparison.

    Attributes:
        word: The overall word that its world deserves.
        shows: What there is to see.
        world: Knobs of the simulated engines.
        options: Of ``equipoise compare``.
    """

    word: str
    shows: str
    world: dict[str, Any]
    options: Sequence[str]


QUIET: dict[str, Any] = {"launch_sd": 0.0003, "accuracy": 0.6, "questions": [str(SHIPPED)]}
SMALL = ("--shots", "2", "--questions", "16", "--quads", "1", "--steps-per-block", "24")
THREE = (*SMALL, "--pairs-max", "3")
PICTURES = (
    Picture("ship", "2 % faster, answers alike", {"effect": {"persistent": -0.02}}, THREE),
    Picture("neutral", "equally fast within a margin of 2 %", {}, (*THREE, "--margin-latency", "2%")),
    Picture("block", "2 % slower", {"effect": {"persistent": 0.02}}, THREE),
    Picture(
        "inconclusive", "launches differ by more than the arms", {"effect": {"persistent": -0.005}, "launch_sd": 0.01},
        THREE,
    ),
    Picture("treatment_inactive", "both arms run the same fills", {"treatment": False}, THREE),
    Picture(
        "invalid", "a fifth of one engine's requests fail",
        {"failures": [{"kind": "errors", "share": 0.2, "role": "B"}]}, THREE,
    ),
)  # fmt: skip


def gallery() -> int:
    """Run all of them; 0 if each got its word."""
    prepare({})
    missed = 0
    for picture in PICTURES:
        print(f"{picture.word}: {picture.shows}", file=sys.stderr)
        os.environ["EQUIPOISE_ENGINE_VARIABLES"] = json.dumps({"EQUIPOISE_SIM": json.dumps(QUIET | picture.world)})
        equipoise(["compare", *picture.options])
        seen = latest_word()
        if seen != picture.word:
            print(f"the gallery expected {picture.word} and got {seen}", file=sys.stderr)
            missed += 1
    return min(missed, 1)


def latest_word() -> str | None:
    """The overall word of the newest comparison in the demo's data folder."""
    return latest(None, 1).items[0].verdict


if __name__ == "__main__":
    sys.exit(gallery())
