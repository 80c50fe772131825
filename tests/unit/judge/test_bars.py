"""What keeps launch pairs from deciding whatever they show: pairs that were dropped, and load beside one arm."""

from collections.abc import Callable

import numpy as np
import pytest

from equipoise_evals.judge import judge
from equipoise_evals.judge.load import ForeignLoad, foreign_load
from equipoise_evals.model import BlockRecord, LatencyInconclusive, LatencyVerdict, Record, Role
from tests.support import records as make

LOAD = "80 % of the CPUs busy with something else"


def judged(pairs: int, kept: Callable[[BlockRecord], BlockRecord | None], effect: float = -0.02) -> LatencyVerdict:
    plan = make.plan(accuracy=None)
    blocks: list[Record] = []
    for block in make.blocks(plan, pairs, np.random.default_rng(3), effect=effect, launch_sd=0.0003):
        assert isinstance(block, BlockRecord)
        if (one := kept(block)) is not None:
            blocks.append(one)
    latency = judge(make.together(make.launches(plan, pairs), make.treatment(), blocks), plan).latency
    assert latency is not None
    return latency


def lacking(*pairs: int, all_of_it: bool = False) -> Callable[[BlockRecord], BlockRecord | None]:
    """Without a block of the primary batch, or any block, of these pairs."""

    def kept(block: BlockRecord) -> BlockRecord | None:
        lost = block.pair in pairs and (all_of_it or (block.batch == 16 and block.position == 4))
        return None if lost else block

    return kept


def beside(counts: Callable[[BlockRecord], bool]) -> Callable[[BlockRecord], BlockRecord]:
    return lambda block: block.model_copy(update={"disturbed": LOAD if counts(block) else None})


@pytest.mark.parametrize("all_of_it", [False, True])
def test_a_pair_that_was_dropped_between_others_is_named_and_nothing_is_decided(all_of_it: bool) -> None:
    latency = judged(4, lacking(2, all_of_it=all_of_it))
    assert isinstance(latency, LatencyInconclusive)
    assert (latency.evidence.busy.pairs, latency.evidence.bars) == (3, ("dropped_pairs",))
    assert latency.why == "launch pairs in between were not measured whole, and those that were may differ from them"
    (note,) = latency.evidence.notes
    assert note.startswith("Blocks are missing of launch pair 2: ")


def test_slow_pairs_that_all_lack_a_block_do_not_leave_a_look_at_the_fast_ones() -> None:
    latency = judged(10, lacking(2, 3, 5, 6, 8, 9, 10))
    assert isinstance(latency, LatencyInconclusive)
    assert latency.pairs_needed is None
    assert "missing of launch pairs 2, 3, 5, 6, 8, 9: " in latency.evidence.notes[0]


def test_the_last_pair_may_be_under_way() -> None:
    latency = judged(4, lacking(4))
    assert (latency.word, latency.evidence.bars, latency.evidence.notes) == ("faster", (), ())
    assert "bars" not in latency.evidence.model_dump(mode="json")


def test_a_dropped_pair_is_told_apart_from_too_few() -> None:
    plan = make.plan(accuracy=None)
    blocks = [
        one for one in make.blocks(plan, 4, np.random.default_rng(3), effect=-0.02) if getattr(one, "pair", 0) != 2
    ]
    verdict = judge(make.together(make.launches(plan, 4), make.treatment(), blocks), plan)
    assert "find out why launch pairs were not measured whole" in verdict.what_to_do.lower()


@pytest.mark.parametrize("role", ["A", "B"])
@pytest.mark.parametrize("effect", [-0.03, 0.03])
def test_load_beside_one_arm_decides_nothing(role: Role, effect: float) -> None:
    latency = judged(3, beside(lambda block: block.role == role), effect)
    assert isinstance(latency, LatencyInconclusive)
    assert latency.evidence.bars == ("one_sided_load",)
    a, b = (12, 0) if role == "A" else (0, 12)
    assert latency.evidence.notes == (
        f"{a} of the baseline's 12 blocks and {b} of the candidate's 12 blocks ran beside foreign load, also when "
        f"repeated ({LOAD}): load beside one arm looks like an effect, so that nothing is decided.",
    )


def test_load_beside_both_arms_is_in_the_spread_and_may_be_decided_over() -> None:
    latency = judged(3, beside(lambda block: block.position in {1, 2}))
    assert latency.word == "faster"
    assert latency.evidence.notes == (
        f"12 of 24 blocks ran beside foreign load, also when repeated ({LOAD}): the spread between launch pairs "
        "contains it.",
    )


def test_load_is_one_sided_where_fishers_exact_test_says_so() -> None:
    """5 of 12 against none: 2 C(12, 5) / C(24, 5) = 0.037; 4 of 12: 0.093."""
    for count, one_sided in ((0, False), (4, False), (5, True)):
        disturbed: dict[Role, int] = {"A": 0, "B": count}
        assert ForeignLoad(blocks={"A": 12, "B": 12}, disturbed=disturbed, said=()).one_sided is one_sided
    assert foreign_load([]).notes == ()
