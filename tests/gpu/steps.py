"""The comparisons of ``make gpu-evidence``, as the requests that anyone could send to ``POST /compare``."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.gpu import claims
from tests.gpu.claims import Claim, Document
from tests.gpu.clock_cost import clock_claims, hook_claim

DUMMY_WEIGHTS = {"flags": ["--load-format", "dummy"]}
# All-reduce by NCCL: SGLang's own maps one GPU's memory into another, which not every host lets it.
TWO_GPUS = {"flags": ["--load-format", "dummy", "--tp-size", "2", "--disable-custom-all-reduce"]}
ALTERNATING_CLOCK = {"EQUIPOISE_STEP_CLOCK_EVERY": "16", "EQUIPOISE_STEP_CLOCK_ALTERNATING": "1"}

AA_8B: dict[str, Any] = {
    "parts": ["latency"],
    "pairs_max": 3,
    "declared_aa": True,
    "baseline": DUMMY_WEIGHTS,
    "candidate": {"name": "baseline-again", "scratch": "baseline", **DUMMY_WEIGHTS},
}
# Steps of the small model are the shorter ones, so that a delay of 25 us stands out; an engine has the GPU for itself.
AA_DELAYED: dict[str, Any] = {
    "parts": ["latency"],
    "pairs_max": 4,
    "declared_aa": True,
    "batch_sizes": [16],
    "layout": "alternating",
}
# Launches of the 8B shape differ less than those of the small model: by 0.5 to 4 us of 4,600 where no level changes.
AA_8B_DELAYED: dict[str, Any] = {**AA_DELAYED, "quads": 1, "baseline": DUMMY_WEIGHTS}


def delayed(delay_us: int) -> dict[str, str]:
    """The variable that makes every decode step of an engine longer."""
    return {"EQUIPOISE_TEST_DELAY_US": str(delay_us)} if delay_us else {}


class Step(NamedTuple):
    """One comparison.

    Attributes:
        model: Folder below the models' folder.
        request: The body, less the model.
        claims: What its records must show.
        gpus: GPUs of one host that it takes.
    """

    model: str
    request: Mapping[str, Any]
    claims: Callable[[Document], list[Claim]]
    gpus: int = 1

    def body(self, models: Path) -> dict[str, Any]:
        """The whole request."""
        return {"model": str(models / self.model), **self.request}


STEPS: dict[str, Step] = {
    "smollm2": Step(
        "smollm2",
        {"parts": ["latency", "accuracy"], "pairs_max": 3},
        lambda document: [
            *claims.treatment(document, layers=30),
            *claims.faster(document, low_us={1: -140.0, 16: -125.0}, high_us={1: -80.0, 16: -65.0}),
            *claims.gsm8k(document, questions=1_319),
        ],
    ),
    "smollm2-latency": Step(
        "smollm2",
        {"parts": ["latency"], "pairs_max": 4},
        lambda document: [
            *claims.treatment(document, layers=30),
            *claims.faster(document, low_us={1: -140.0, 16: -125.0}, high_us={1: -80.0, 16: -65.0}),
            hook_claim(document),
        ],
    ),
    "llama-8b-shape": Step(
        "llama-8b-shape",
        {"parts": ["latency"], "pairs_max": 4, "baseline": DUMMY_WEIGHTS, "candidate": DUMMY_WEIGHTS},
        lambda document: [
            *claims.treatment(document, layers=32),
            *claims.faster(document, low_us={1: -130.0, 16: -130.0}, high_us={1: -70.0, 16: -70.0}),
            hook_claim(document),
        ],
    ),
    "aa-baseline": Step(
        "smollm2",
        {
            "parts": ["latency"],
            "pairs_max": 3,
            "declared_aa": True,
            "candidate": {"name": "baseline-again", "scratch": "baseline"},
        },
        claims.no_difference,
    ),
    "aa-upstream": Step(
        "smollm2",
        {"parts": ["latency"], "pairs_max": 3, "declared_aa": True, "candidate": {"scratch": "upstream"}},
        claims.no_difference,
    ),
    "aa-upstream-undeclared": Step(
        "smollm2",
        {"parts": ["latency"], "pairs_max": 3, "candidate": {"scratch": "upstream"}},
        claims.inactive,
    ),
    "step-clock": Step(
        "llama-8b-shape",
        {
            "parts": ["latency"],
            "pairs_max": 2,
            "declared_aa": True,
            "steps_per_block": 512,
            "quads": 4,
            "baseline": {"environment": ALTERNATING_CLOCK, **DUMMY_WEIGHTS},
            "candidate": {"name": "again", "scratch": "baseline", "environment": ALTERNATING_CLOCK, **DUMMY_WEIGHTS},
        },
        clock_claims,
    ),
    **{f"aa-8b-{number:02}": Step("llama-8b-shape", AA_8B, claims.no_difference) for number in range(1, 11)},
    # The variance of the first H200 records asks for many short blocks; do launches then differ less?
    "aa-8b-short-blocks": Step("llama-8b-shape", {**AA_8B, "steps_per_block": 48, "quads": 12}, claims.no_difference),
    # One engine alone on the GPU. One quad is enough: blocks of an engine differ far less than engines do.
    **{
        f"aa-8b-alone-{number:02}": Step(
            "llama-8b-shape", {**AA_8B, "pairs_max": 2, "layout": "alternating", "quads": 1}, claims.no_difference
        )
        for number in range(1, 11)
    },
    "verdict-8b-alone": Step(
        "llama-8b-shape",
        {
            "parts": ["latency"],
            "pairs_max": 4,
            "layout": "alternating",
            "quads": 1,
            "baseline": DUMMY_WEIGHTS,
            "candidate": DUMMY_WEIGHTS,
        },
        claims.cheap_and_faster,
    ),
    "starts": Step("llama-8b-shape", {**AA_8B, "pairs_max": 4}, claims.starts),
    "verdict-8b": Step(
        "llama-8b-shape",
        {"parts": ["latency"], "pairs_max": 10, "baseline": DUMMY_WEIGHTS, "candidate": DUMMY_WEIGHTS},
        claims.cheap_and_faster,
    ),
    **{
        f"delay-{delay_us}-alone": Step(
            "smollm2",
            {
                **AA_DELAYED,
                "candidate": {"name": "delayed", "scratch": "baseline", "environment": delayed(delay_us)},
            },
            claims.injected_delay,
        )
        for delay_us in (0, 25, 50, 100)
    },
    **{
        f"delay-{delay_us}-8b": Step(
            "llama-8b-shape",
            {
                **AA_8B_DELAYED,
                "candidate": {
                    "name": "delayed",
                    "scratch": "baseline",
                    "environment": delayed(delay_us),
                    **DUMMY_WEIGHTS,
                },
            },
            claims.injected_delay,
        )
        for delay_us in (0, 25, 50, 100)
    },
    "gsm8k": Step(
        "smollm2",
        {"parts": ["accuracy"], "pairs_max": 2},
        lambda document: claims.gsm8k(document, questions=1_319),
    ),
    "stress": Step(
        "smollm2",
        {"parts": ["accuracy"], "pairs_max": 2, "stress": True},
        lambda document: [*claims.stress(document), *claims.gsm8k(document, questions=1_319)],
    ),
    "alternating-tp2": Step(
        "llama-8b-shape",
        {
            "parts": ["latency"],
            "pairs_max": 2,
            "layout": "alternating",
            "quads": 1,
            "baseline": TWO_GPUS,
            "candidate": TWO_GPUS,
        },
        lambda document: [*claims.treatment(document, layers=32), *claims.placed(document, gpus_of_an_engine=2)],
        gpus=2,
    ),
    "crossover": Step(
        "llama-8b-shape",
        {
            "parts": ["latency"],
            "pairs_max": 6,
            "layout": "crossover",
            "baseline": DUMMY_WEIGHTS,
            "candidate": DUMMY_WEIGHTS,
        },
        lambda document: [*claims.treatment(document, layers=32), *claims.placed(document, gpus_of_an_engine=1)],
        gpus=2,
    ),
}
"""In the order of their worth. ``gsm8k`` repeats a part of ``smollm2``, and ``stress`` all of ``gsm8k``; ``verdict-8b``
borrows the launch variance of the A/A runs before it; ``alternating-tp2`` and ``crossover`` need two GPUs of a host."""
