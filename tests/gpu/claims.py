"""What stored records of a GPU run must show, each claim beside what was seen. Pure: a record can be checked again."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple, get_args

from equipoise_evals.judge import canonical_json, judge
from equipoise_evals.model import (
    LatencyContrast,
    LatencyEvidence,
    LaunchRecord,
    PassRecord,
    StressPhaseName,
    StressRecord,
    TreatmentRecord,
    Verdict,
)
from equipoise_evals.stats.latency import ratio_interval
from equipoise_service.interchange import RecordsDocument

Document = RecordsDocument

STRESS_PHASES = get_args(StressPhaseName)
UNLINKED = "not exercised by this model"
FILLS_PER_LAYER = {"xqa": 2, "trtllm-gen": 3}
"""K and V scale; with TRTLLM-GEN the counter buffer too."""


START_S, BOTH_READY_S = 25.0, 40.0
START_STAGES = {"imports", "spawn", "gate", "distributed", "weights", "kv_pool", "graph_capture", "http", "warm_up"}
VERDICT_S = 200.0
LEAST_BIASED_US = 20.0
"""Shorter delays drown in what launches differ by."""


class Claim(NamedTuple):
    """A sentence, whether the records bear it out, and what they show."""

    claim: str
    holds: bool
    seen: str


def reproduces(document: Document) -> Claim:
    """Judging the records again gives the stored verdict."""
    stored = "null" if document.verdict is None else canonical_json(document.verdict)
    again = canonical_json(judge(document.observed, document.plan))
    return Claim("judging the stored records again gives the stored verdict", stored == again, f"{len(again)} bytes")


def treatment(document: Document, layers: int) -> list[Claim]:
    """Fills per decode step, kernel path, and which half of the treatment the hardware exercises."""
    records = document.observed.of(TreatmentRecord)
    fills = {record.role: _fills(record.per_step) for record in records}
    paths = {str(launch.attestation.get("kernel_path")) for launch in document.observed.of(LaunchRecord)}
    path = next(iter(paths)) if len(paths) == 1 else ""
    wanted = {"A": layers * FILLS_PER_LAYER.get(path, -1), "B": 0}
    halves = {_half(launch) for launch in document.observed.of(LaunchRecord)}
    links = {record.role: _pdl(record) for record in records}
    half = "exercised" if path == "trtllm-gen" else "not exercised: xqa returns before it looks at the counter buffer"
    return [
        Claim(f"FillFunctor<float> per decode step is {wanted['A']} and 0", fills == wanted, str(fills)),
        Claim("every engine used one known kernel path", path in FILLS_PER_LAYER, str(sorted(paths))),
        Claim(f"the counter half is {half!r}", halves == {half}, str(sorted(halves))),
        # None of the models measured here has the fused rope-gate kernel; Qwen3.5 has.
        Claim(
            f"a fill between PDL-linked kernels is {UNLINKED!r}",
            links == dict.fromkeys(("A", "B"), UNLINKED),
            str(links),
        ),
    ]


def placed(document: Document, gpus_of_an_engine: int) -> list[Claim]:
    """Each engine ran on the devices of its layout: one set for all, or in ``crossover`` two, swapped pair by pair."""
    sets = {
        (launch.pair, launch.role): tuple(launch.environment.get("CUDA_VISIBLE_DEVICES", "").split(","))
        for launch in document.observed.of(LaunchRecord)
    }
    pairs = sorted({pair for pair, _ in sets})
    of_baseline = [sets.get((pair, "A")) for pair in pairs]
    of_candidate = [sets.get((pair, "B")) for pair in pairs]
    if document.plan.layout == "crossover":
        swapped = of_baseline[1:] == of_candidate[:-1] and of_candidate[1:] == of_baseline[:-1]
        kept = swapped and all(a != b for a, b in zip(of_baseline, of_candidate, strict=True))
    else:
        kept = len({*of_baseline, *of_candidate}) == 1
    return [
        Claim("the layout was taken as asked", document.plan.layout_why != "", document.plan.layout_why),
        Claim(
            f"each engine had {gpus_of_an_engine} GPUs",
            all(len(devices) == gpus_of_an_engine and devices != ("",) for devices in sets.values()),
            str(sorted(set(sets.values()))),
        ),
        Claim(
            f"devices are those of {document.plan.layout}", kept and len(pairs) > 1, f"{of_baseline}, {of_candidate}"
        ),
        Claim(
            "launch pairs stand in the units of the verdict",
            (latency := _verdict(document).latency) is not None
            and latency.evidence.busy.pairs_per_unit == document.plan.pairs_per_unit,
            "none" if latency is None else f"{latency.evidence.busy.pairs} pairs, {latency.evidence.busy.units} units",
        ),
    ]


def faster(document: Document, low_us: Mapping[int, float], high_us: Mapping[int, float]) -> list[Claim]:
    """``faster``, from at least three launch pairs, by about the known difference at every batch size."""
    verdict = _verdict(document)
    if verdict.latency is None:
        return [Claim("the latency half has a verdict", holds=False, seen="none")]
    evidence = verdict.latency.evidence
    found = [
        Claim("latency is 'faster'", verdict.latency.word == "faster", verdict.latency.word),
        Claim("from at least 3 launch pairs", evidence.look >= 3, str(evidence.look)),
        Claim("the clients' TPOT stands beside it", evidence.client is not None, _shown(evidence.client)),
        Claim("the period stands beside it", evidence.period.interval is not None, _shown(evidence.period)),
    ]
    for contrast in _busy(evidence):
        difference_us = contrast.candidate_us - contrast.baseline_us
        assert contrast.batch is not None
        low, high = low_us[contrast.batch], high_us[contrast.batch]
        sentence = f"busy time at batch {contrast.batch} differs by {low:g} to {high:g} us"
        found.append(Claim(sentence, low <= difference_us <= high, f"{difference_us:.1f} us; {_shown(contrast)}"))
    return found


def no_difference(document: Document) -> list[Claim]:
    """An A/A is neither faster nor slower."""
    verdict = _verdict(document)
    word = verdict.latency.word if verdict.latency else "none"
    shown = _shown(verdict.latency.evidence.busy) if verdict.latency else ""
    return [
        Claim("latency is neither 'faster' nor 'slower'", word in {"equivalent", "inconclusive"}, f"{word}; {shown}")
    ]


def starts(document: Document) -> list[Claim]:
    """How long engines take to start on a host that has compiled its kernels; the records say where it goes."""
    launches = document.observed.of(LaunchRecord)
    later = [one for one in launches if one.pair > 1]
    each_s = [one.stage_s["spawn_to_ready"] for one in later]
    both_s = [both_ready_s([one for one in later if one.pair == pair]) for pair in sorted({one.pair for one in later})]
    stages = {name for one in launches for name in one.stage_s}
    return [
        Claim(f"a later start takes at most {START_S:g} s", bool(each_s) and max(each_s) <= START_S, _seconds(each_s)),
        Claim(
            f"both arms are ready at most {BOTH_READY_S:g} s after the request",
            bool(both_s) and max(both_s) <= BOTH_READY_S,
            _seconds(both_s),
        ),
        Claim("the records say where a start's time goes", stages >= START_STAGES, str(sorted(stages))),
    ]


def both_ready_s(launches: Sequence[LaunchRecord]) -> float:
    """Seconds from the start of the first engine of a pair, or its turn where it had waited, until both were ready."""
    began = [
        datetime.fromisoformat(one.started_at) + timedelta(seconds=one.stage_s.get("ahead", 0.0)) for one in launches
    ]
    return max(
        (at - min(began)).total_seconds() + one.stage_s["spawn_to_ready"]
        for at, one in zip(began, launches, strict=True)
    )


def cheap_and_faster(document: Document) -> list[Claim]:
    """A correct ``faster`` within the promised device seconds, launches included."""
    verdict = _verdict(document)
    word = verdict.latency.word if verdict.latency else "none"
    shown = _shown(verdict.latency.evidence.busy) if verdict.latency else ""
    spent_s = verdict.cost.device_seconds
    cost = f"{spent_s:.0f} s, {verdict.cost.launch_pairs} pairs"
    return [
        Claim("latency is 'faster'", word == "faster", f"{word}; {shown}"),
        Claim(f"it took at most {VERDICT_S:g} device seconds", 0 < spent_s <= VERDICT_S, cost),
    ]


def injected_delay(document: Document) -> list[Claim]:
    """The interval covers the delay that the candidate's engines measured of themselves, and is hardly biased.

    The level is 98.75 %, so that four delays together err in at most 5 % of runs.
    """
    verdict = _verdict(document)
    told = [
        one.attestation.get("test_delay_measured_us") for one in document.observed.of(LaunchRecord) if one.role == "B"
    ]
    delay_us = fmean([float(us) for us in told if isinstance(us, int | float)] or [0.0])
    if verdict.latency is None or verdict.latency.evidence.busy.units < 2:
        return [Claim("at least two units of launch pairs are compared", holds=False, seen="none")]
    busy = verdict.latency.evidence.busy
    interval = ratio_interval(busy.unit_logs, confidence=0.9875)
    low, estimate, high = (busy.baseline_us * (ratio - 1) for ratio in (interval.low, interval.ratio, interval.high))
    seen = f"{estimate:.1f} [{low:.1f}, {high:.1f}] us for {delay_us:.1f} us, {busy.pairs} pairs"
    found = [Claim("the 98.75 % interval covers the measured delay", low <= delay_us <= high, seen)]
    if delay_us >= LEAST_BIASED_US:
        bias = estimate / delay_us - 1
        found.append(Claim("the bias is at most 10 %", abs(bias) <= 0.1, f"{bias:+.1%}"))
    return found


def inactive(document: Document) -> list[Claim]:
    """The same pair without the declaration is no comparison."""
    word = _verdict(document).overall.word
    return [Claim("the verdict is 'treatment_inactive'", word == "treatment_inactive", word)]


def gsm8k(document: Document, questions: int) -> list[Claim]:
    """All questions in both arms, at least two passes, and their outputs compared."""
    passes = document.observed.of(PassRecord)
    answered = [sum(answer.state == "answered" for answer in one.answers) for one in passes]
    verdict = _verdict(document)
    if verdict.accuracy is None:
        return [Claim("the accuracy half has a verdict", holds=False, seen="none")]
    evidence = verdict.accuracy.evidence
    flips = evidence.only_baseline + evidence.only_candidate
    per_arm = min(sum(one.role == role for one in passes) for role in ("A", "B"))
    return [
        Claim(f"every pass answered {questions} questions", set(answered) == {questions}, str(answered)),
        Claim("there are at least two passes in each arm", per_arm >= 2, str(per_arm)),
        Claim("A/A and A/B match rates", {"A1-A2", "A1-B1"} <= evidence.matches.keys(), str(evidence.matches)),
        Claim("flips are counted", evidence.graded == questions, f"{flips} flips of {evidence.graded}"),
        Claim("output_shift has a p", evidence.output_shift_p is not None, str(evidence.output_shift_p)),
    ]


def stress(document: Document) -> list[Claim]:
    """Both arms went through every phase, nothing failed or tripped, and each arm's passes are compared."""
    records = document.observed.of(StressRecord)
    ran = {record.role: tuple(phase.name for phase in record.phases if phase.finished) for record in records}
    phases = [phase for record in records for phase in record.phases]
    guards = {role: {phase.guard for one in records if one.role == role for phase in one.phases} for role in ("A", "B")}
    checks = [[phase.guard_checks for phase in record.phases] for record in records if record.role == "B"]
    accuracy = _verdict(document).accuracy
    matches = {} if accuracy is None else accuracy.evidence.matches
    return [
        Claim("every phase ran on both arms", ran == dict.fromkeys(("A", "B"), STRESS_PHASES), str(ran)),
        Claim("some requests were aborted in each arm", _aborted(records), _ends(records)),
        Claim(
            "no request failed",
            bool(phases) and not any(phase.failed for phase in phases),
            f"{sum(phase.failed for phase in phases)} of {sum(phase.requests for phase in phases)}; "
            + str([phase.first_error for phase in phases if phase.first_error]),
        ),
        Claim(
            "the guard stayed clean, and looked anew after each phase",
            guards["B"] == {"clean"}
            and guards["A"] <= {"clean", "not_applicable"}
            and all(later > earlier for of_one in checks for earlier, later in pairwise(of_one)),
            f"{guards}, checks {checks}",
        ),
        Claim("each arm's passes are compared", {"A1-A2", "B1-B2"} <= matches.keys(), str(matches)),
    ]


def _aborted(records: Sequence[StressRecord]) -> bool:
    by_role = {record.role: sum(phase.aborted for phase in record.phases) for record in records}
    return set(by_role) == {"A", "B"} and min(by_role.values()) > 0


def _ends(records: Sequence[StressRecord]) -> str:
    return "; ".join(
        f"{record.role}{record.pair} {phase.name} {phase.finished} + {phase.aborted} + {phase.failed}"
        for record in records
        for phase in record.phases
    )


def _verdict(document: Document) -> Verdict:
    return judge(document.observed, document.plan)


def _seconds(seconds: Sequence[float]) -> str:
    return ", ".join(f"{one:.1f}" for one in seconds) + " s" if seconds else "none"


def _fills(per_step: Mapping[str, float]) -> float:
    return sum(number for name, number in per_step.items() if "FillFunctor<float>" in name)


def _pdl(record: TreatmentRecord) -> str:
    if record.pdl is None:
        return "not recorded"
    return f"{record.pdl.fills_between_per_step:g} per step" if record.pdl.links_per_step else UNLINKED


def _half(launch: LaunchRecord) -> str:
    treated = launch.attestation.get("treatment")
    exercised = treated.get("exercised") if isinstance(treated, dict) else None
    return str(exercised.get("counters")) if isinstance(exercised, dict) else "not attested"


def _busy(evidence: LatencyEvidence) -> Iterable[LatencyContrast]:
    return [evidence.busy, *(one for one in evidence.secondary if one.metric == "busy")]


def _shown(contrast: LatencyContrast | None) -> str:
    if contrast is None:
        return "none"
    interval = contrast.interval
    limits = "no interval" if interval is None else f"[{interval.low:+.3%}, {interval.high:+.3%}] at {interval.level:g}"
    return (
        f"{contrast.metric} at batch {contrast.batch}: {contrast.baseline_us:.1f} -> {contrast.candidate_us:.1f} us, "
        f"{contrast.effect:+.3%} {limits}, {contrast.pairs} pairs"
    )
