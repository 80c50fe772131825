"""The experiment, as one straight line. It knows engines, a clock and a recorder only by their ports."""

from collections.abc import Sequence
from functools import partial
from itertools import count, groupby, takewhile

from equipoise_evals.decode.schedule import PlannedBlock, launch_order, launches, pair_blocks
from equipoise_evals.gsm8k.chat import AnyPrompt
from equipoise_evals.gsm8k.measure import ask_divergences, measure_pass
from equipoise_evals.judge import judge
from equipoise_evals.judge.accuracy import OUTPUT_SHIFT_P
from equipoise_evals.judge.treatment import judge_treatment, missing_text
from equipoise_evals.model import (
    ROLE_NAMES,
    ROLES,
    AccuracyInconclusive,
    AccuracyPlan,
    AskedQuestion,
    BlockRecord,
    GuardRecord,
    Invalid,
    LatencyInconclusive,
    LatencyPlan,
    LaunchRecord,
    PassRecord,
    Plan,
    QuestionsRecord,
    Records,
    Regression,
    Role,
    SpentRecord,
    TreatmentInactive,
    TreatmentRecord,
    Verdict,
)
from equipoise_evals.ports import Decoded, Engine, EngineFault, Engines, World
from equipoise_evals.stopwatch import Stopwatch

STRESS_BATCH = 16
"""Batch of the stress profile where none is timed: the largest for which the presets capture a graph by default."""
TRACED_STEPS = 8
"""Decode steps, or prefills, in a profiler trace: enough to tell a fill per step from the trace's edges."""


async def run_comparison(plan: Plan, prompts: Sequence[AnyPrompt], world: World) -> Verdict:
    """Measure launch pairs until the plan is decided, then judge what was recorded.

    A recorder that holds records already is gone on with: complete launch pairs stay, the one that was cut short is
    launched again, and no question that it had answered is asked again. Where two pairs balance each other, one without
    the other is launched again too: it may have run on other devices.

    Args:
        plan: What is measured, and when a look may end it.
        prompts: The prompts of the accuracy half, in the order asked; empty without one.
        world: Launcher, clock, recorder, progress.

    Raises:
        EngineFault: an engine did not do what was asked; everything recorded before stays recorded.
    """
    found = world.recorder.records()
    known = finished_pairs(found)
    if known < plan.pairs_max:
        known -= known % plan.pairs_to_balance
    verdict = judge(of_first_pairs(found, known), plan)
    if known and is_decided(verdict, plan, known):
        return judge(found, plan)
    while known < plan.pairs_max:
        pair = known + 1
        await run_pair(plan, prompts, pair, world, verdict=verdict, known=known)
        known = max(pair, finished_pairs(world.recorder.records()))
        verdict = judge(world.recorder.records(), plan)
        world.judged(known, verdict)
        if is_decided(verdict, plan, known):
            break
    return verdict


async def run_pair(
    plan: Plan, prompts: Sequence[AnyPrompt], pair: int, world: World, *, verdict: Verdict, known: int
) -> None:
    """Launch one pair and measure in it what the verdict on the first ``known`` pairs leaves open.

    Raises ``EngineFault`` as ``run_comparison`` does.
    """
    if not world.recorder.records().of(QuestionsRecord):
        world.recorder.append(questions_record(prompts))
    world.progress("launch", pair - 1, plan.pairs_max, f"starting launch pair {pair}{_expected(verdict, plan)}")
    still_open = open_halves(plan, verdict, known)
    watch = Stopwatch(world.clock)
    for together in launches(plan, pair):
        async with world.launcher.launch_pair(plan, pair, together) as engines:
            watch.lap("launches")
            await warm_up(engines, still_open, world)
            await attest(engines, world)
            watch.lap("warm_up")
            await measure_latency(engines, still_open, pair, world)
            watch.lap("blocks")
            live = await treatment_is_live(engines, plan, pair, world)
            watch.lap("treatment")
            if live:
                await measure_accuracy(engines, plan, prompts, pair, world, accuracy=still_open.accuracy)
                watch.lap("gsm8k")
                await verify_guards(engines, pair, world)
        watch.lap("end")
    world.recorder.append(SpentRecord(pair=pair, stage_s=watch.stage_s))
    world.progress("launch", pair, plan.pairs_max, f"launch pair {pair} finished")


def complete_pairs(records: Records) -> frozenset[int]:
    """Launch pairs whose guards were looked at last in both engines: nothing comes after that.

    In records from before that look was recorded, a pair before one that was launched had come to its end.
    """
    guarded = {(guard.pair, guard.role) for guard in records.of(GuardRecord)}
    last = max((launch.pair for launch in records.of(LaunchRecord)), default=0)
    before_looks = min([last, *(pair for pair, _ in guarded)])
    looked_at = {pair for pair, _ in guarded if all((pair, role) in guarded for role in ROLES)}
    return frozenset(looked_at | set(range(1, before_looks)))


def finished_pairs(records: Records) -> int:
    """Complete launch pairs from the first on, without a gap."""
    return len(list(takewhile(complete_pairs(records).__contains__, count(1))))


def pairs_at_once(records: Records, plan: Plan, known: int, most: int) -> tuple[int, ...]:
    """Launch pairs that may be measured at the same time on different machines, in order, ``most`` at most.

    They follow the first ``known``, and are not complete. Nothing is decided between two looks, so those up to the next
    look depend on nothing that the others show. The first pair runs alone: its traces say whether there is anything to
    measure. So does every pair where only two of them are balanced, since what one cancels of the other belongs to a
    device set of one machine.
    """
    if known == 0 or plan.pairs_to_balance > 1:
        return (known + 1,)
    complete = complete_pairs(records)
    last = min((look for look in looks_of(plan) if look > known), default=plan.pairs_max)
    return tuple(pair for pair in range(known + 1, last + 1) if pair not in complete)[:most]


def looks_of(plan: Plan) -> tuple[int, ...]:
    """Numbers of launch pairs after which what is measured next may change.

    Not the last pass beside a latency half: no pair after it has one, whatever it showed.
    """
    of_passes = plan.accuracy.looks if plan.accuracy else ()
    if plan.latency is None:
        return of_passes
    return tuple(sorted({*plan.looks, *of_passes[:-1]}))


def of_first_pairs(records: Records, pairs: int) -> Records:
    """The records of the first launch pairs: those of a pair that was cut short decide nothing yet."""
    return Records(records=tuple(one for one in records.records if getattr(one, "pair", 0) <= pairs))


def open_halves(plan: Plan, verdict: Verdict, pairs: int) -> Plan:
    """The plan without the half that a look has decided, which is measured no further while the other goes on.

    Passes go on beside the blocks where a shift of outputs is suspected: only more launches can confirm it. Blocks go
    on where they are disturbed so far, since no look has decided by them; that says nothing of the passes.
    """
    timed = _latency_is_settled(verdict, plan) and not isinstance(verdict.overall, Invalid)
    shift_p = verdict.accuracy.evidence.output_shift_p if verdict.accuracy else None
    suspected = shift_p is not None and shift_p < OUTPUT_SHIFT_P
    return plan.model_copy(
        update={
            "latency": None if timed else plan.latency,
            "accuracy": None if _accuracy_is_settled(verdict, plan, pairs) and not suspected else plan.accuracy,
        }
    )


def pairs_expected(verdict: Verdict, plan: Plan) -> int | None:
    """The look at which the open halves are likely to be decided, at most the last pair; None before any estimate."""
    needed = [
        *([verdict.latency.pairs_needed] if isinstance(verdict.latency, LatencyInconclusive) else []),
        *([verdict.accuracy.passes_needed] if isinstance(verdict.accuracy, AccuracyInconclusive) else []),
    ]
    if not needed:
        return None
    most = max(plan.pairs_max if pairs is None else pairs for pairs in needed)
    return next((look for look in plan.looks if look >= most), plan.pairs_max)


def _expected(verdict: Verdict, plan: Plan) -> str:
    pairs = pairs_expected(verdict, plan)
    return "" if pairs is None else f", of about {pairs} expected"


def questions_record(prompts: Sequence[AnyPrompt]) -> QuestionsRecord:
    """The questions asked and the digests of their prompts, for the record."""
    return QuestionsRecord(
        asked=tuple(AskedQuestion(question=prompt.question, prompt_sha256=prompt.sha256) for prompt in prompts)
    )


def present(engines: Engines) -> list[Role]:
    """The roles of the engines that run, the baseline's first."""
    return [role for role in ROLES if role in engines]


async def warm_up(engines: Engines, plan: Plan, world: World) -> None:
    """Decode one unrecorded block per batch size in each engine, so that nothing is compiled in a timed block."""
    batches = plan.latency.batch_sizes if plan.latency else (1,)
    tokens, steps = (plan.latency.prompt_tokens, plan.latency.warmup_steps) if plan.latency else (16, 8)
    for done, batch in enumerate(batches):
        world.progress("warm_up", done, len(batches), f"batch {batch}")
        for role in present(engines):
            await engines[role].decode(batch, tokens, steps, seed=plan.seed)
            if plan.latency and plan.phase == "prefill":
                await engines[role].prefill(batch, tokens, steps, seed=plan.seed)


async def attest(engines: Engines, world: World) -> None:
    """Record what each engine proves it is. A missing or wrong attestation raises ``EngineFault``."""
    for role in present(engines):
        world.recorder.append(await engines[role].attest())


async def verify_guards(engines: Engines, pair: int, world: World) -> None:
    """Ask each engine once more, after the work and before its stop: a tripped guard raises ``EngineFault``."""
    for role in present(engines):
        guard = (await engines[role].attest()).attestation.get("guard")
        state = guard.get("state") if isinstance(guard, dict) else None
        world.recorder.append(GuardRecord(pair=pair, role=role, state=None if state is None else str(state)))


async def treatment_is_live(engines: Engines, plan: Plan, pair: int, world: World) -> bool:
    """Trace the engines of the first pair; False ends the run before it costs more: equal arms, or unequal in an A/A.

    Only once its blocks are measured: a GPU's profiler stays attached to an engine that it has traced. On an H200 the
    steps of such engines were 10 % longer and differed more (`docs/decisions/2026-11-30-order-in-a-pair.md`).
    Where one engine runs at a time, the first is measured before the second can be counted.
    Engines that ran already write their traces where nobody here can read them, so there the treatment is not shown.

    Raises:
        EngineFault: The arms differ, but not in what the plan declares: something else is compared than was meant.
    """
    if plan.arms.attached:
        return True
    if pair == 1:
        batch = plan.latency.primary_batch if plan.latency else 1
        tokens = plan.latency.prompt_tokens if plan.latency and plan.phase == "prefill" else None
        for done, role in enumerate(present(engines)):
            world.progress("treatment", done, len(engines), f"tracing the {ROLE_NAMES[role]}")
            world.recorder.append(await engines[role].count_kernels(batch, TRACED_STEPS, tokens))
    records = world.recorder.records()
    evidence = judge_treatment(records.of(TreatmentRecord), records.of(LaunchRecord), plan.evidence)
    if evidence is None:
        return len(engines) < len(ROLES)
    if plan.declared_aa:
        return not evidence.arms_differ
    if evidence.contradicted:
        raise EngineFault("B", "treatment", missing_text(evidence))
    return evidence.active


async def measure_accuracy(
    engines: Engines,
    plan: Plan,
    prompts: Sequence[AnyPrompt],
    pair: int,
    world: World,
    *,
    accuracy: AccuracyPlan | None,
) -> None:
    """One greedy pass per engine over the same questions, in the order in which the engines were started.

    ``accuracy`` is that half while it is open. ``plan`` is the whole plan, so that stress takes the largest batch that
    is timed also once the speed is decided.
    """
    if accuracy is None or pair > accuracy.passes_max:
        return
    passed = {(done.pair, done.role) for done in world.recorder.records().of(PassRecord)}
    roles = [role for role in launch_order(plan, pair) if role in engines and (pair, role) not in passed]
    if roles and plan.stress and pair > 1:
        await put_under_stress(engines, plan, pair, world)
    for role in roles:
        await measure_pass(engines[role], accuracy, prompts, pair, world)
    await ask_divergences(engines, prompts, pair, world)


async def put_under_stress(engines: Engines, plan: Plan, pair: int, world: World) -> None:
    """Send all engines the same requests that broke scratch elsewhere; a guard that trips raises ``EngineFault``."""
    batch = max(plan.latency.batch_sizes) if plan.latency else STRESS_BATCH
    for done, role in enumerate(role for role in launch_order(plan, pair) if role in engines):
        world.progress("stress", done, len(engines), ROLE_NAMES[role])
        world.recorder.append(await engines[role].stress(batch, seed=plan.seed + pair))


async def measure_latency(engines: Engines, plan: Plan, pair: int, world: World) -> None:
    """Run the planned blocks of these engines; a quad, or an engine's half, beside foreign load is run once more.

    There are at most as many repetitions in a pair as there are batch sizes, so that a busy machine measures longer but
    not for ever; what stays disturbed is judged, and said.
    """
    if plan.latency is None:
        return
    blocks = [block for block in pair_blocks(plan, pair) if block.role in engines]
    total = len(blocks)
    repetitions = len(plan.latency.batch_sizes)
    for _, of_quad in groupby(enumerate(blocks), key=lambda numbered: (numbered[1].batch, numbered[1].quad)):
        quad = list(of_quad)
        measure = partial(measure_quad, engines, plan.latency, quad, world, pair=pair, seed=plan.seed, total=total)
        disturbed = await measure(attempt=1)
        if disturbed and repetitions > 0:
            repetitions -= 1
            await measure(attempt=2)
    world.progress(plan.phase, total, total)


async def measure_quad(
    engines: Engines,
    latency: LatencyPlan,
    quad: Sequence[tuple[int, PlannedBlock]],
    world: World,
    *,
    pair: int,
    seed: int,
    attempt: int,
    total: int,
) -> bool:
    """Run a quad's blocks; True if there was foreign load beside one of them.

    Each comes with how many these engines have done before it, of ``total`` in the pair.
    """
    disturbed = False
    for done, block in quad:
        again = ", again: there was foreign load" if attempt > 1 else ""
        world.progress(latency.phase, done, total, f"{ROLE_NAMES[block.role]}, batch {block.batch}{again}")
        decoded = await run_block(engines[block.role], latency, block.batch, seed + 1_000 * pair + block.quad)
        disturbed |= decoded.disturbed is not None
        world.recorder.append(
            BlockRecord(
                pair=pair,
                role=block.role,
                batch=block.batch,
                quad=block.quad,
                position=block.position,
                sequence=block.sequence,
                steps=decoded.steps,
                client=decoded.client,
                telemetry=decoded.telemetry,
                attempt=attempt,
                disturbed=decoded.disturbed,
                clock=decoded.clock,
            )
        )
    return disturbed


async def run_block(engine: Engine, latency: LatencyPlan, batch: int, seed: int) -> Decoded:
    """One block of what the plan times."""
    timed = engine.prefill if latency.phase == "prefill" else engine.decode
    return await timed(batch, latency.prompt_tokens, latency.steps_per_block, seed=seed)


def is_decided(verdict: Verdict, plan: Plan, pairs: int) -> bool:
    """Whether a look may end the run: nothing that the plan would still measure could change the outcome.

    A disturbed run goes on to its last pair, since shares of a level even out; every other reason for which a run
    cannot be judged ends it at once.
    """
    match verdict.overall:
        case TreatmentInactive():
            return True
        case Invalid():
            return verdict.overall.reason != "disturbed"
    accuracy = _accuracy_is_settled(verdict, plan, pairs)
    if accuracy and isinstance(verdict.accuracy, Regression):
        return True
    return accuracy and _latency_is_settled(verdict, plan)


def _accuracy_is_settled(verdict: Verdict, plan: Plan, pairs: int) -> bool:
    """Whether a look at the passes has decided, or no more are planned; before the first no word is reached."""
    if plan.accuracy is None or pairs >= plan.accuracy.passes_max:
        return True
    return verdict.accuracy is not None and not isinstance(verdict.accuracy, AccuracyInconclusive)


def _latency_is_settled(verdict: Verdict, plan: Plan) -> bool:
    """Whether a look at the launch pairs has decided; between looks the word is always ``inconclusive``."""
    if plan.latency is None:
        return True
    return verdict.latency is not None and not isinstance(verdict.latency, LatencyInconclusive)
