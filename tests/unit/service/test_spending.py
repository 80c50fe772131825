"""Where the time went: stages of launch pairs and of engine starts, summed and told apart."""

import pytest

from equipoise_evals.model import ROLES, SpentRecord
from equipoise_service.report.spending import StartStage, spending_of
from tests.support import records as make


def test_stages_add_up_over_pairs_and_the_last_launch_of_a_pair_counts() -> None:
    spent = [
        SpentRecord(pair=1, stage_s={"launches": 50.0, "warm_up": 5.0}),  # launched again
        SpentRecord(pair=1, stage_s={"launches": 60.0, "warm_up": 5.0, "blocks": 15.0}),
        SpentRecord(pair=2, stage_s={"launches": 60.0, "blocks": 20.0}),
    ]
    found = spending_of(spent, [])
    assert found.stage_s == {"launches": 120.0, "warm_up": 5.0, "blocks": 35.0}
    assert found.shares == pytest.approx(
        {"engine starts": 0.75, "warm-up and attestation": 0.03125, "timed blocks": 0.21875}
    )
    assert found.sentence == "engine starts 75%, warm-up and attestation 3%, timed blocks 22%"


def test_what_was_not_recorded_is_not_there() -> None:
    found = spending_of([], [make.launch(1, "A", "baseline")])
    assert (found.stage_s, found.starts, found.sentence) == ({}, (), "")
    assert spending_of([SpentRecord(pair=1, stage_s={"launches": 0.0})], []).sentence == ""


def test_starts_of_the_first_pair_stand_apart() -> None:
    launches = [
        make.launch(pair, role, "baseline").model_copy(update={"stage_s": {"imports": seconds, "spawn_to_ready": 30.0}})
        for pair, of_pair in ((1, (100.0, 110.0)), (2, (10.0, 14.0)))
        for role, seconds in zip(ROLES, of_pair, strict=True)
    ]
    launches.append(make.launch(3, "A", "baseline").model_copy(update={"stage_s": {"gate": 2.0}}))
    assert spending_of([], launches).starts == (
        StartStage(name="imports", first_s=105.0, later_s=12.0),
        StartStage(name="spawn_to_ready", first_s=30.0, later_s=30.0),
        StartStage(name="gate", first_s=None, later_s=2.0),
    )
