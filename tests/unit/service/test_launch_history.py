"""Which A/A comparisons of this machine a plan borrows its launch variance from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equipoise_evals.judge import judge
from equipoise_evals.model import LaunchRecord, Plan, Records, Slo
from equipoise_service.engines.host import this_host
from equipoise_service.launch_history import with_history
from equipoise_service.store import Store
from tests.support import records as make
from tests.support import stored

DAYS = 30
DEVICE = {"name": "H200"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'equipoise.db'}")
    yield opened
    opened.database.close()


def planned(**changes: Any) -> Plan:
    return make.plan(accuracy=None, **changes)


def an_aa(
    store: Store,
    seed: int,
    *,
    pairs: int = 3,
    machine: object = None,
    sglang: str = "0.5.17",
    gpu: str | None = None,
    **plan: Any,
) -> str:
    """A finished A/A comparison as this host would have left it; 3 pairs with a launch SD of 0.1 %."""
    declared = planned(declared_aa=True, pairs_max=pairs, **plan)
    seen = {"machine": this_host() if machine is None else machine}
    launches = [
        one.model_copy(
            update={
                "server_info": seen,
                "attestation": one.attestation | {"versions": {"sglang": sglang}, "device": DEVICE, "gpu": gpu},
            }
        )
        for one in make.launches(declared, pairs)
        if isinstance(one, LaunchRecord)
    ]
    blocks = make.blocks(declared, pairs, np.random.default_rng(seed))
    return stored.finish(store, declared, make.together(launches, make.treatment(60, 60), blocks)).id


def sglang() -> str:
    return "0.5.17"


def test_three_alike_give_both_metrics_a_prior_and_a_look_at_two_pairs(store: Store) -> None:
    ids = [an_aa(store, seed) for seed in range(3)]
    plan = with_history(planned(), store, sglang, DAYS)
    assert set(plan.history) == {"busy", "period"}
    assert plan.looks[:2] == (2, 3)
    assert plan.history["busy"].histories == 3
    assert all(comparison_id in plan.history["busy"].source for comparison_id in ids)
    assert 0.0003 < plan.history["busy"].s0 < 0.01  # the SD put in is 0.1 %, steps add to it
    blocks = make.blocks(plan, 2, np.random.default_rng(9), effect=-0.05)
    verdict = judge(make.together(make.launches(plan, 2), make.treatment(), blocks), plan)
    assert verdict.latency is not None
    assert (verdict.latency.word, verdict.latency.evidence.busy.borrowed) == ("faster", True)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"gpu": "GPU-1", "device": DEVICE}, None),
        ({"gpu": "GPU-2", "device": DEVICE}, "ran on another GPU than"),
        ({"gpu": "GPU-1", "device": {"name": "A100"}}, "ran on another kind of device than"),
        ({"machine": {"host": "another"}}, "ran on another host or driver than"),
        ({}, None),  # What a record does not hold is not compared.
    ],
)
def test_launches_that_ran_elsewhere_borrow_nothing(store: Store, seen: dict[str, Any], said: str | None) -> None:
    for seed in range(3):
        an_aa(store, seed, gpu="GPU-1")
    plan = with_history(planned(), store, sglang, DAYS)
    assert plan.history["busy"].ran_on == {"machine": this_host(), "device": DEVICE, "gpu": "GPU-1"}
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    attested = {name: value for name, value in seen.items() if name != "machine"}
    info = {name: value for name, value in seen.items() if name == "machine"}
    launches = [
        one.model_copy(update={"attestation": one.attestation | attested, "server_info": info})
        for one in make.launches(plan, 2)
        if isinstance(one, LaunchRecord)
    ]
    blocks = make.blocks(plan, 2, np.random.default_rng(9), effect=-0.05)
    latency = judge(make.together(launches, make.treatment(), blocks), plan).latency
    assert latency is not None
    assert (latency.word, latency.evidence.busy.borrowed) == (("faster", True) if not said else ("inconclusive", False))
    notes = [note for note in latency.evidence.notes if note.startswith("Nothing is borrowed from history")]
    assert len(notes) == (said is not None)
    assert said is None or said in notes[0]


def test_nothing_is_borrowed_from_another_gpu_of_this_host(store: Store) -> None:
    for seed in range(3):
        an_aa(store, seed, gpu="GPU-1")
    assert with_history(planned(), store, sglang, DAYS, "GPU-1").history["busy"].histories == 3
    assert with_history(planned(), store, sglang, DAYS, "GPU-2") == planned()
    assert with_history(planned(), store, sglang, DAYS).history["busy"].histories == 3  # nobody to ask


@pytest.mark.parametrize(
    "other",
    [
        {"machine": {"host": "another"}},
        {"gpu": "GPU-2"},
        {"sglang": "0.5.23"},
        {"pairs": 1},
        {"latency": make.LATENCY.model_copy(update={"steps_per_block": 400})},
        {"model": planned().model.model_copy(update={"revision": "another"})},
    ],
    ids=lambda other: str(next(iter(other))),
)
def test_what_is_not_alike_does_not_count(store: Store, other: dict[str, Any]) -> None:
    for seed in range(2):
        an_aa(store, seed)
    an_aa(store, 2, **other)
    assert with_history(planned(), store, sglang, DAYS) == planned()
    an_aa(store, 3)
    assert with_history(planned(), store, sglang, DAYS).history["busy"].histories == 3


def test_other_engine_options_another_margin_and_an_unknown_version(store: Store) -> None:
    for seed in range(3):
        an_aa(store, seed, latency=make.LATENCY.model_copy(update={"margin": 0.02}))
    assert with_history(planned(), store, lambda: None, DAYS).history
    arms = planned().arms
    flagged = {"flags": ("--another",)}
    both = arms.model_copy(
        update={
            "baseline": arms.baseline.model_copy(update=flagged),
            "candidate": arms.candidate.model_copy(update=flagged),
        }
    )
    assert not with_history(planned(arms=both), store, sglang, DAYS).history
    one = arms.model_copy(update={"candidate": arms.candidate.model_copy(update=flagged)})
    assert with_history(planned(arms=one), store, sglang, DAYS).history


def test_shorter_blocks_of_the_past_serve_longer_ones(store: Store) -> None:
    for seed in range(3):
        an_aa(store, seed)
    longer = make.LATENCY.model_copy(update={"steps_per_block": 64, "quads_per_pair": 2})
    assert with_history(planned(latency=longer), store, sglang, DAYS).history
    other = make.LATENCY.model_copy(update={"prompt_tokens": 64})
    assert not with_history(planned(latency=other), store, sglang, DAYS).history
    prefills = make.LATENCY.model_copy(update={"phase": "prefill"})
    assert not with_history(planned(latency=prefills), store, sglang, DAYS).history
    with_objective = make.LATENCY.model_copy(update={"slo": Slo(ttft_ms=200, tpot_ms=50)})
    assert with_history(planned(latency=with_objective), store, sglang, DAYS).history
    stored.finish(store, make.plan(latency=None, declared_aa=True), Records())
    assert with_history(planned(), store, sglang, DAYS).history["busy"].histories == 3


def test_nothing_is_borrowed_where_nothing_may_be(store: Store) -> None:
    for seed in range(3):
        an_aa(store, seed)
    accuracy = make.plan(latency=None)
    assert with_history(accuracy, store, sglang, DAYS) == accuracy
    assert with_history(planned(), store, sglang, 0) == planned()


def test_a_layout_whose_unit_is_two_pairs_borrows_nothing(store: Store) -> None:
    for seed in range(3):
        an_aa(store, seed, layout="crossover", pairs=6)
    plan = planned(layout="crossover", pairs_max=6)
    assert with_history(plan, store, sglang, DAYS) == plan


def test_engines_that_run_one_after_the_other_borrow_from_their_like_and_may_decide_at_two_pairs(store: Store) -> None:
    ids = [an_aa(store, seed, layout="alternating", pairs=4) for seed in range(3)]
    assert not with_history(planned(), store, sglang, DAYS).history  # engines that share a device are not their like
    plan = with_history(planned(layout="alternating", pairs_max=9), store, sglang, DAYS)
    assert plan.looks == (2, 4, 6, 8)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert all(comparison_id in plan.history["period"].source for comparison_id in ids)
    blocks = make.blocks(plan, 2, np.random.default_rng(9), effect=-0.05)
    verdict = judge(make.together(make.launches(plan, 2), make.treatment(), blocks), plan)
    assert verdict.latency is not None
    assert (verdict.latency.word, verdict.latency.evidence.busy.borrowed) == ("faster", True)


def test_runs_on_a_shared_device_are_no_history_of_engines_alone(store: Store) -> None:
    for seed in range(3):
        an_aa(store, seed)
    plan = planned(layout="alternating")
    assert with_history(plan, store, sglang, DAYS) == plan


def test_runs_without_any_spread_or_record_are_no_history(store: Store) -> None:
    declared = planned(declared_aa=True, pairs_max=3)
    stored.finish(store, declared, Records())
    assert with_history(planned(), store, sglang, DAYS) == planned()


def test_a_host_is_named_by_a_digest_and_its_driver(tmp_path: Path) -> None:
    assert set(this_host(tmp_path / "none")) == {"host"}
    version = tmp_path / "version"
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23\nGCC version:  12.3.0\n")
    assert this_host(version)["driver"] == "580.95.05"
    version.write_text("no number")
    assert set(this_host(version)) == {"host"}
