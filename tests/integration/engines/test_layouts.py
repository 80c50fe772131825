"""Layouts through the real launcher: which processes run at once, on which devices, and what their records say."""

from pathlib import Path
from typing import Any

import pytest

from equipoise_evals.decode.schedule import device_sets, launch_order, launches
from equipoise_evals.experiment import run_comparison
from equipoise_evals.model import ArmPair, LaunchRecord, Layout, Plan, looks_up_to
from equipoise_evals.ports import EngineFault, World
from equipoise_service.engines import SGLangLauncher, persistent_buffer
from equipoise_service.engines.placing import Place
from tests.fakes.launching import QUICK, ListRecorder, latency_plan, simulated_environment

POOL = ("4", "5", "6", "7")


def launcher_of(recorder: ListRecorder, folder: Path, **knobs: Any) -> SGLangLauncher:
    place = Place(POOL, "node 1")
    return SGLangLauncher({"default": simulated_environment(knobs)}, recorder, folder, QUICK, place=place)


def plan_of(layout: Layout, pairs: int, *flags: str) -> Plan:
    arms = persistent_buffer("simulated")
    with_flags = {
        name: arm.model_copy(update={"flags": (*arm.flags, *flags)})
        for name, arm in (("baseline", arms.baseline), ("candidate", arms.candidate))
    }
    looks = looks_up_to(pairs, layout=layout)
    return latency_plan(ArmPair(**with_flags), layout=layout, pairs_max=pairs, looks=looks)


@pytest.mark.parametrize("layout", ["alternating", "crossover"])
async def test_each_engine_gets_its_device_set_and_says_so(tmp_path: Path, layout: Layout) -> None:
    recorder, plan = ListRecorder(), plan_of(layout, 2, "--tp-size", "2")
    launcher = launcher_of(recorder, tmp_path)
    for pair in (1, 2):
        for together in launches(plan, pair):
            async with launcher.launch_pair(plan, pair, together) as engines:
                assert set(engines) == set(together)
                for role in together:
                    recorder.append(await engines[role].attest())
    found = {(one.pair, one.role): one for one in recorder.records().of(LaunchRecord)}
    assert len(found) == 4
    for (pair, role), launch in found.items():
        first = 2 * device_sets(plan, pair)[role]
        assert launch.environment["CUDA_VISIBLE_DEVICES"] == ",".join(POOL[first : first + 2])
        assert launch.started_first == (launch_order(plan, pair)[0] == role)
        assert launch.node == "node 1"


async def test_a_crossover_of_simulated_engines_is_decided_after_six_pairs(tmp_path: Path) -> None:
    recorder, plan = ListRecorder(), plan_of("crossover", 6)
    launcher = launcher_of(recorder, tmp_path, effect={"persistent": -0.0164}, launch_sd=0.0005)
    verdict = await run_comparison(plan, (), World(launcher, lambda: 0.0, recorder, lambda *_: None))
    assert verdict.latency is not None
    assert (verdict.latency.word, verdict.latency.evidence.busy.units) == ("faster", 3)


async def test_pools_of_engines_that_run_one_after_the_other_are_compared_too(tmp_path: Path) -> None:
    plan = plan_of("alternating", 2)
    larger = plan.arms.candidate.model_copy(update={"flags": (*plan.arms.candidate.flags, "--max-total-tokens", "999")})
    plan = plan.model_copy(update={"arms": plan.arms.model_copy(update={"candidate": larger})})
    launcher = launcher_of(ListRecorder(), tmp_path)
    first, second = launches(plan, 1)
    async with launcher.launch_pair(plan, 1, first):
        pass
    with pytest.raises(EngineFault, match="KV pools differ"):
        async with launcher.launch_pair(plan, 1, second):
            pass
