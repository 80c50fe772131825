"""``make gpu-evidence`` without a GPU: its claims on records of known truth, its driver over simulated engines."""

import json
import lzma
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equipoise_evals.decode.schedule import launch_order
from equipoise_evals.judge import judge
from equipoise_evals.model import (
    ROLES,
    ArmPair,
    ArmSpec,
    BlockRecord,
    LatencyPlan,
    LaunchRecord,
    Layout,
    PdlLinks,
    Record,
    Records,
    Role,
    StopRecord,
    StressRecord,
    TreatmentRecord,
)
from equipoise_service.interchange import RecordsDocument
from equipoise_service.settings import Settings
from tests.gpu import claims
from tests.gpu.claims import Claim, Document
from tests.gpu.steps import STEPS
from tests.support import records as made

ROOT = Path(__file__).resolve().parents[2]
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >"
UNLINKED = PdlLinks(links_per_step=0, fills_between_per_step=0)
HALF = "not exercised: xqa returns before it looks at the counter buffer"


def fills(baseline: float, candidate: float, pdl: PdlLinks | None = UNLINKED) -> list[Record]:
    return [
        TreatmentRecord(pair=1, role=role, activity="GPU", steps=8, per_step={FILL: number, "attention": 30.0}, pdl=pdl)
        for role, number in (("A", baseline), ("B", candidate))
    ]


def launches(path: str = "xqa", half: str = HALF) -> list[Record]:
    attested = {"kernel_path": path, "treatment": {"exercised": {"counters": half}}}
    return [
        one.model_copy(update={"attestation": {**one.attestation, **attested}})
        for pair in (1, 2, 3)
        for one in (made.launch(pair, "A", "baseline"), made.launch(pair, "B", "persistent"))
    ]


def document_of(found: list[Record], **changes: object) -> Document:
    plan = made.plan(pairs_max=3, accuracy=None, **changes)
    verdict = judge(Records(records=tuple(found)), plan)
    return RecordsDocument(plan=plan, records=tuple(found), verdict=verdict)


def timed(effect: float, **changes: object) -> Document:
    plan = made.plan(pairs_max=3, accuracy=None, **changes)
    rng = np.random.default_rng(5)
    blocks = made.blocks(plan, 3, rng, effect=effect, launch_sd=0.0002, base_us=1_300.0)
    return document_of([*fills(60, 60 if plan.declared_aa else 0), *launches(), *blocks], **changes)


def holding(found: list[Claim]) -> dict[str, bool]:
    return {claim.claim: claim.holds for claim in found}


def test_the_treatments_claims_hold_for_what_an_h200_showed() -> None:
    assert all(holding(claims.treatment(document_of([*fills(60, 0), *launches()]), layers=30)).values())


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        ([*fills(60, 60), *launches()], "FillFunctor<float> per decode step is 60 and 0"),
        ([*fills(59.5, 0), *launches()], "FillFunctor<float> per decode step is 60 and 0"),
        ([*fills(60, 0), *launches(half="exercised")], f"the counter half is {HALF!r}"),
        ([*fills(60, 0), *launches(path="None")], "every engine used one known kernel path"),
        ([*fills(60, 0, pdl=None), *launches()], "a fill between PDL-linked kernels is 'not exercised by this model'"),
        (
            [*fills(60, 0, pdl=PdlLinks(links_per_step=10, fills_between_per_step=20)), *launches()],
            "a fill between PDL-linked kernels is 'not exercised by this model'",
        ),
    ],
)
def test_each_claim_of_the_treatment_can_fail(found: list[Record], broken: str) -> None:
    assert holding(claims.treatment(document_of(found), layers=30))[broken] is False


def test_on_trtllm_gen_three_fills_per_layer_are_claimed() -> None:
    document = document_of([*fills(90, 0), *launches(path="trtllm-gen", half="exercised")])
    assert all(holding(claims.treatment(document, layers=30)).values())


def test_faster_holds_at_the_known_difference_only() -> None:
    # -7.2 % of 1,300 us is -93.6 us, at both batch sizes.
    limits = {"low_us": {1: -125.0, 16: -125.0}, "high_us": {1: -65.0, 16: -65.0}}
    assert all(holding(claims.faster(timed(-0.072), **limits)).values())
    slight = holding(claims.faster(timed(-0.01), **limits))
    assert slight["busy time at batch 16 differs by -125 to -65 us"] is False
    assert holding(claims.faster(timed(0.0), **limits))["latency is 'faster'"] is False


def test_an_aa_must_be_neither_faster_nor_slower() -> None:
    assert all(holding(claims.no_difference(timed(0.0, declared_aa=True))).values())
    assert not any(holding(claims.no_difference(timed(-0.05, declared_aa=True))).values())


def test_equal_fills_undeclared_must_be_inactive() -> None:
    assert all(holding(claims.inactive(document_of([*fills(60, 60), *launches()]))).values())
    assert not any(holding(claims.inactive(document_of([*fills(60, 0), *launches()]))).values())


def test_a_sparsely_clocked_arm_is_compared_over_the_same_contexts() -> None:
    latency = LatencyPlan(
        batch_sizes=(16,), primary_batch=16, quads_per_pair=1, prompt_tokens=32, steps_per_block=512, warmup_steps=32,
        margin=0.005,
    )  # fmt: skip
    arms = ArmPair(
        baseline=ArmSpec(name="baseline", scratch="baseline"),
        candidate=ArmSpec(name="clock-16", scratch="baseline", environment={"EQUIPOISE_STEP_CLOCK_EVERY": "16"}),
    )
    plan = made.plan(pairs_max=3, accuracy=None, latency=latency, arms=arms, declared_aa=True)
    thinned: list[Record] = []
    for record in made.blocks(plan, 3, np.random.default_rng(1), launch_sd=0.0, step_cv=0.0, base_us=1_000.0):
        assert isinstance(record, BlockRecord)
        columns = {name: values[::16] for name, values in record.steps.model_dump().items()}
        sparse = record.model_copy(update={"steps": record.steps.model_validate(columns)})
        thinned.append(sparse if record.role == "B" else record)
    verdict = judge(Records(records=(*fills(60, 60), *thinned)), plan)
    assert verdict.latency is not None
    # Without noise both arms take the same time in every step, wherever it was sampled.
    assert verdict.latency.evidence.busy.effect == pytest.approx(0.0, abs=1e-12)
    assert verdict.latency.evidence.period.effect == pytest.approx(0.0, abs=1e-12)


def started(pair: int, role: Role, at_s: float, **stages: float) -> Record:
    began = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s)
    launch = made.launch(pair, role, "baseline")
    return launch.model_copy(update={"started_at": began.isoformat(), "stage_s": stages})


def test_the_claims_about_starts_leave_the_first_pair_out() -> None:
    """The second pair: ready 24 s and 12 + 25 s after its first engine was started."""
    stages = dict.fromkeys(claims.START_STAGES, 1.0)
    first = [started(1, role, 0.0, spawn_to_ready=120.0, **stages) for role in ROLES]
    second = [started(2, "A", 200.0, spawn_to_ready=24.0), started(2, "B", 212.0, spawn_to_ready=25.0)]
    assert set(holding(claims.starts(document_of([*first, *second]))).values()) == {True}
    late = [started(2, "A", 200.0, spawn_to_ready=24.0), started(2, "B", 216.0, spawn_to_ready=24.5)]
    found = claims.starts(document_of([*first, *late]))
    assert [claim.holds for claim in found] == [True, False, True]
    assert found[1].seen == "40.5 s"
    assert set(holding(claims.starts(document_of(launches()[:2]))).values()) == {False}


def test_an_engine_that_imported_ahead_is_late_from_its_turn_on() -> None:
    ahead = [
        started(2, "A", 0.0, ahead=200.0, spawn_to_ready=9.0),
        started(2, "B", 1.0, ahead=200.5, spawn_to_ready=18.0),
    ]
    first = [started(1, role, 0.0, spawn_to_ready=30.0) for role in ROLES]
    found = claims.starts(document_of([*first, *ahead]))
    assert [claim.seen for claim in found[:2]] == ["9.0, 18.0 s", "19.5 s"]


def with_cost(document: Document, seconds: float) -> Document:
    stops = [StopRecord(pair=pair, role="A", held_s=seconds / 3, clean=True) for pair in (1, 2, 3)]
    return RecordsDocument(plan=document.plan, records=(*document.records, *stops), verdict=document.verdict)


def test_a_verdict_must_be_right_and_cheap() -> None:
    assert set(holding(claims.cheap_and_faster(with_cost(timed(-0.0164), 199.0))).values()) == {True}
    assert list(holding(claims.cheap_and_faster(with_cost(timed(-0.0164), 201.0))).values()) == [True, False]
    assert list(holding(claims.cheap_and_faster(with_cost(timed(0.0), 199.0))).values()) == [False, True]


def delayed(effect: float, measured_us: float | None) -> list[bool]:
    document = timed(effect, declared_aa=True)
    attested = [
        one.model_copy(update={"attestation": one.attestation | {"test_delay_measured_us": measured_us}})
        if isinstance(one, LaunchRecord)
        else one
        for one in document.records
    ]
    found = RecordsDocument(plan=document.plan, records=tuple(attested), verdict=document.verdict)
    return [claim.holds for claim in claims.injected_delay(found)]


def test_an_injected_delay_is_covered_and_hardly_biased() -> None:
    """4 % of 1,300 us are 52 us, from launches that differ by 0.02 % and means that differ by about 0.2 %."""
    assert delayed(0.04, 52.0) == [True, True]
    assert delayed(0.04, 80.0) == [False, False]
    assert delayed(0.0, None) == [True]
    assert [claim.holds for claim in claims.injected_delay(document_of(launches()))] == [False]


@pytest.mark.parametrize("name", STEPS)
def test_every_step_is_a_request_that_the_service_accepts(name: str) -> None:
    from equipoise_service.requests import CompareRequest  # noqa: PLC0415
    from equipoise_service.resolve import require_allowed  # noqa: PLC0415

    request = CompareRequest.model_validate(STEPS[name].body(Path("/models")))
    assert request.model.startswith("/models/")
    require_allowed(request, Settings())


@pytest.fixture
def simulated(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    world = {"effect": {"persistent": -0.0164}, "launch_sd": 0.0005}
    for model in {step.model for step in STEPS.values()}:
        (tmp_path / model).mkdir()
        (tmp_path / model / "config.json").write_text("{}")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("EQUIPOISE_")},
        "EQUIPOISE_DATA": str(tmp_path / "data"),
        "EQUIPOISE_DEVICE": "simulated",
        "EQUIPOISE_ENGINE_MODULE": "tests.fakes.simulated_engine",
        "EQUIPOISE_PLUGIN_PATH": str(ROOT),
        "EQUIPOISE_ENGINE_VARIABLES": json.dumps({"EQUIPOISE_SIM": json.dumps(world)}),
    }

    def run(*arguments: str, gpus: int = 0) -> subprocess.CompletedProcess[str]:
        devices = {"EQUIPOISE_DEVICES": json.dumps([str(number) for number in range(gpus)])}
        command = [
            sys.executable,
            "-m",
            "tests.gpu.evidence",
            "--models",
            str(tmp_path),
            "--out",
            str(tmp_path / "out"),
        ]
        return subprocess.run(
            [*command, *arguments],
            cwd=ROOT,
            env=environment | devices,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_a_step_leaves_records_that_judge_to_its_verdict_and_is_not_run_twice(
    simulated: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = simulated("aa-upstream-undeclared")
    assert done.returncode == 0, done.stdout + done.stderr
    kept: dict[str, Any] = json.loads((tmp_path / "out" / "aa-upstream-undeclared.json").read_text())
    assert kept["verdict"]["overall"]["word"] == "treatment_inactive"
    assert {claim["holds"] for claim in kept["claims"]} == {True}
    assert kept["commit"]
    assert kept["date"]
    assert "tests.gpu.evidence" in kept["command"]
    packed = tmp_path / "out" / "aa-upstream-undeclared.records.json.xz"
    document = RecordsDocument.model_validate_json(lzma.decompress(packed.read_bytes()))
    assert claims.reproduces(document).holds
    again = subprocess.run(
        [sys.executable, "-m", "equipoise_service", "judge", str(packed), "--check"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert "already there" in simulated("aa-upstream-undeclared").stdout


def test_an_injected_delay_is_measured_over_simulated_engines(
    simulated: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """100 us in each step of about 2 ms; simulated launches differ by 0.05 %, and the engine attests the delay."""
    done = simulated("delay-100-alone", gpus=2)
    assert done.returncode == 0, done.stdout + done.stderr
    kept: dict[str, Any] = json.loads((tmp_path / "out" / "delay-100-alone.json").read_text())
    assert kept["verdict"]["latency"]["evidence"]["busy"]["pairs"] == 4
    assert {claim["claim"] for claim in kept["claims"]} >= {
        "the 98.75 % interval covers the measured delay", "the bias is at most 10 %",
    }  # fmt: skip


def test_a_claim_that_fails_is_said_and_fails_the_command(
    simulated: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    # The shipped question set has 64 questions, not GSM8K's 1,319.
    done = simulated("gsm8k")
    assert done.returncode == 1
    assert "FAILS: every pass answered 1319 questions: [64, 64, 64, 64]" in done.stdout


def placed_document(layout: Layout, sets: Mapping[tuple[int, Role], str]) -> Document:
    plan = made.plan(6, accuracy=None, layout=layout, layout_why="it was asked for")
    started = [
        made.launch(pair, role, "baseline" if role == "A" else "persistent", launch_order(plan, pair)[0]).model_copy(
            update={"environment": {"CUDA_VISIBLE_DEVICES": devices}}
        )
        for (pair, role), devices in sets.items()
    ]
    records = (*fills(60, 0), *started, *made.blocks(plan, 6, np.random.default_rng(5), effect=-0.02))
    verdict = judge(Records(records=records), plan)
    return RecordsDocument(plan=plan, records=records, verdict=verdict)


def swapped(pair: int, role: Role) -> str:
    return str((pair + (role == "B")) % 2)


PAIRS: tuple[tuple[int, Role], ...] = tuple((pair, role) for pair in range(1, 7) for role in ("A", "B"))


def test_the_claims_about_a_layouts_devices_hold_for_devices_that_the_launcher_gives() -> None:
    crossed = placed_document("crossover", {place: swapped(*place) for place in PAIRS})
    assert set(holding(claims.placed(crossed, gpus_of_an_engine=1)).values()) == {True}
    together = placed_document("alternating", dict.fromkeys(PAIRS, "0,1"))
    assert set(holding(claims.placed(together, gpus_of_an_engine=2)).values()) == {True}


@pytest.mark.parametrize("layout", ["alternating", "crossover"])
def test_the_script_that_imports_nothing_of_ours_agrees_in_every_layout(layout: Layout) -> None:
    rederive = runpy.run_path(str(ROOT / "docs" / "rederive.py"))["rederive"]
    document = placed_document(layout, {place: swapped(*place) for place in PAIRS if layout == "crossover"})
    assert document.verdict is not None
    assert document.verdict.latency is not None
    busy = document.verdict.latency.evidence.busy
    assert busy.interval is not None
    found = rederive(json.loads(document.model_dump_json()))
    assert found == pytest.approx((busy.effect, busy.interval.low, busy.interval.high), abs=1e-9)


@pytest.mark.parametrize("layout", ["alternating", "crossover"])
def test_devices_that_do_not_fit_the_layout_fail_their_claim(layout: Layout) -> None:
    stayed = {(pair, role): "0" if role == "A" else "1" for pair, role in PAIRS}
    found = holding(claims.placed(placed_document(layout, stayed), gpus_of_an_engine=1))
    assert found[f"devices are those of {layout}"] is False
    assert (
        holding(claims.placed(placed_document(layout, dict.fromkeys(PAIRS, "")), 1))["each engine had 1 GPUs"] is False
    )


def test_a_step_that_needs_more_gpus_than_there_are_is_said_and_left_out(
    simulated: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = simulated("crossover")
    assert done.returncode == 0
    assert "crossover: needs 2 GPUs of one host, and there are 0" in done.stdout


def stressed(*records: Record) -> dict[str, bool]:
    found = [*fills(60, 0), *launches(), made.questions(), *made.equal_passes(), *records]
    plan = made.plan(pairs_max=2, latency=None, stress=True)
    return holding(claims.stress(RecordsDocument(plan=plan, records=tuple(found))))


def looking(record: StressRecord) -> StressRecord:
    """The same, with a guard that looks once more after each phase."""
    phases = [one.model_copy(update={"guard_checks": 2 + place}) for place, one in enumerate(record.phases)]
    return record.model_copy(update={"phases": tuple(phases)})


def test_the_claims_about_stress_hold_where_everything_ran() -> None:
    assert set(stressed(made.stress(2, "A"), looking(made.stress(2, "B"))).values()) == {True}


@pytest.mark.parametrize(
    ("records", "broken"),
    [
        ([made.stress(2, "A")], "every phase ran on both arms"),
        ([made.stress(2, "A"), looking(made.stress(2, "B", failed=1))], "no request failed"),
        ([made.stress(2, "A"), made.stress(2, "B")], "the guard stayed clean, and looked anew after each phase"),
        (
            [made.stress(2, "A"), looking(made.stress(2, "B", guard="unchecked"))],
            "the guard stayed clean, and looked anew after each phase",
        ),
        ([made.stress(2, "B")], "some requests were aborted in each arm"),
    ],
)
def test_each_claim_about_stress_can_fail(records: list[Record], broken: str) -> None:
    assert stressed(*records)[broken] is False
