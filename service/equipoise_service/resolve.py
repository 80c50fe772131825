"""From what people wrote to what is run: the one place where defaults are filled in and requests are refused.

Merge order, the first that says something wins:

1. the request's field;
2. for arms: the preset's arm, changed by the request's ``baseline`` or ``candidate``;
3. for what depends on the machine: its device profile;
4. DESIGN's default, which ``CompareRequest`` carries.

Everything that can be refused is refused here, before any engine starts.
"""

from collections.abc import Sequence
from itertools import chain

from pydantic import ValidationError

from equipoise_evals.model import (
    AccuracyPlan,
    ArmPair,
    ArmSpec,
    LatencyPlan,
    Layout,
    ModelRef,
    Phase,
    Plan,
    SamplingPlan,
    looks_up_to,
)
from equipoise_evals.model.plan import PAIRS_TO_BALANCE
from equipoise_service.access.addresses import address_fault, endpoint
from equipoise_service.access.engine_options import REMOTE_CODE_FLAG, flag_faults, variable_faults
from equipoise_service.engines.placing import PARALLEL, chosen_layout, gpus_needed
from equipoise_service.engines.presets import Preset
from equipoise_service.errors import (
    BackendUnsupported,
    BatchBeyondEngine,
    BatchBeyondPool,
    FieldError,
    NoEngine,
    RequestInvalid,
    TooFewDevices,
    UnknownEngine,
    UnknownPreset,
)
from equipoise_service.machine import Machine
from equipoise_service.questions import plan_questions
from equipoise_service.requests import CompareRequest
from equipoise_service.settings import Settings

ASKED = "it was asked for"


def resolve(request: CompareRequest, machine: Machine) -> Plan:
    """The plan of a request; what is cheap to refuse is refused first, a model is fetched last.

    Raises:
        Refusal: It cannot be run; the class says why.
    """
    require_allowed(request, machine.settings)
    preset = preset_of(request, machine)
    request = with_defaults(request, preset)
    arms = attached_arms(request, machine) if request.attached else resolve_arms(request, machine)
    latency = resolve_latency(request, machine, preset.phase)
    if latency is not None:
        for role, arm in of_roles(arms):
            require_batches_fit(arm, role, latency)
    model = attached_model(request.model) if request.attached else machine.model(request.model)
    if not request.attached and f"{model.name}@{model.revision}" in machine.settings.remote_code:
        arms = with_remote_code(arms)
    layout, why = resolve_layout(request, arms, model, machine)
    pairs_max = balanced_pairs(request.pairs_max, layout)
    return Plan(
        preset=request.preset,
        model=model,
        arms=arms,
        declared_aa=request.declared_aa,
        pairs_max=pairs_max,
        layout=layout,
        layout_why=why,
        gpu_type=request.gpu_type or "",
        looks=looks_up_to(pairs_max, layout=layout),
        seed=request.seed,
        accuracy=resolve_accuracy(request, machine, pairs_max),
        latency=latency,
        stress=request.stress,
        evidence=preset.evidence if request.evidence is None else request.evidence,
    )


def preset_of(request: CompareRequest, machine: Machine) -> Preset:
    """The preset that a request names; the name is looked up among those loaded, and never becomes a path.

    Raises:
        UnknownPreset: There is none of this name.
        RequestInvalid: It leaves something open that the request does not give.
    """
    preset = machine.presets.get(request.preset)
    if preset is None:
        raise UnknownPreset(request.preset, sorted(machine.presets))
    faults = [
        FieldError(f"/{asked.replace('.', '/')}", f"the preset {preset.name} leaves this open: {_hint(asked, machine)}")
        for asked in preset.asks
        if not request.attached and not _given(request, asked)
    ]
    if request.attached and preset.phase == "prefill":
        faults.append(FieldError("/preset", "prefill is timed by the engine's own clock, which engines that ran lack"))
    if faults:
        raise RequestInvalid(faults)
    return preset


def _given(request: CompareRequest, asked: str) -> bool:
    arm, field = asked.split(".")
    changes = request.baseline if arm == "baseline" else request.candidate
    return changes is not None and bool(getattr(changes, field))


def _hint(asked: str, machine: Machine) -> str:
    if asked.endswith(".engine"):
        return f"name an engine environment, of {', '.join(sorted(machine.environments()))}"
    return "say what this arm gets"


def with_defaults(request: CompareRequest, preset: Preset) -> CompareRequest:
    """The request with the preset's values of fields that it did not give, held to the rules of any request.

    Raises:
        RequestInvalid: What was given does not go with the preset's values.
    """
    given = request.model_dump(exclude_unset=True)
    try:
        return CompareRequest.model_validate(given | preset.defaults_beside(frozenset(request.model_fields_set)))
    except ValidationError as wrong:
        faults = [FieldError("/" + "/".join(map(str, one["loc"])), one["msg"]) for one in wrong.errors()]
        raise RequestInvalid(faults) from wrong


def require_allowed(request: CompareRequest, settings: Settings) -> None:
    """Refuse flags and variables that a request may not set; the preset's own were held to the list when it was read.

    Raises:
        RequestInvalid: Names every one of them.
    """
    faults: list[FieldError] = []
    for name, arm in (("baseline", request.baseline), ("candidate", request.candidate)):
        if arm is not None:
            faults += flag_faults(arm.flags, f"/{name}/flags", settings.allow_flags)
            faults += variable_faults(arm.environment, f"/{name}/environment", settings.allow_variables)
    if faults:
        raise RequestInvalid(faults)


def resolve_layout(request: CompareRequest, arms: ArmPair, model: ModelRef, machine: Machine) -> tuple[Layout, str]:
    """The layout that was asked for, or by memory; and why.

    Raises:
        RequestInvalid: A kind of GPU is asked for and there is no cluster to choose from.
        TooFewDevices: It takes more GPUs than there are.
    """
    if request.attached:
        return "co_resident", "the engines ran already"
    on_cluster = machine.settings.executor == "ray"
    if request.gpu_type is not None and not on_cluster:
        raise RequestInvalid([FieldError("/gpu_type", "only a service with EQUIPOISE_EXECUTOR=ray can choose one")])
    for role, arm in of_roles(arms):
        for name in chain.from_iterable(PARALLEL.values()):
            flag_value(arm.flags, name, role)
    layout, why = (
        chosen_layout(model, arms, machine.device_bytes()) if request.layout is None else (request.layout, ASKED)
    )
    needed, there = gpus_needed(arms, layout), len(machine.devices())
    counted = machine.device == "cuda" or layout == "crossover"
    if counted and not on_cluster and needed > there:
        raise TooFewDevices(layout, needed, there)
    return layout, why


def with_remote_code(arms: ArmPair) -> ArmPair:
    """Both arms allowed to run the code of the model's repository, as every record and report shows."""
    changed = {name: arm.model_copy(update={"flags": (*arm.flags, REMOTE_CODE_FLAG)}) for name, arm in of_roles(arms)}
    return ArmPair(**changed)


def resolve_arms(request: CompareRequest, machine: Machine) -> ArmPair:
    """The preset's arms with the request's changes, each asking for an engine environment that there is."""
    preset = machine.presets[request.preset].arms(machine.device, request.batch_sizes)
    environments = machine.environments()
    baseline = request.baseline.applied_to(preset.baseline) if request.baseline else preset.baseline
    candidate = request.candidate.applied_to(preset.candidate) if request.candidate else preset.candidate
    for arm in (baseline, candidate):
        if arm.engine not in environments:
            raise UnknownEngine(arm.name, arm.engine, sorted(environments))
        if (why := machine.unplugged(arm)) is not None:
            raise NoEngine(why)
        if (why := machine.unsupported(arm)) is not None:
            raise BackendUnsupported(arm.name, why)
    return _pair(baseline, candidate)


def attached_arms(request: CompareRequest, machine: Machine) -> ArmPair:
    """The arms of engines that run already, at addresses that this service may speak to.

    Raises:
        RequestInvalid: An address that is none, or is not allowed; or both arms at one engine that is no declared A/A.
    """
    preset = machine.presets[request.preset].arms(machine.device, request.batch_sizes)
    assert request.baseline is not None and request.candidate is not None  # noqa: S101, PT018 - attached: both are given
    faults = [
        FieldError(f"/{name}/attach", fault)
        for name, arm in (("baseline", request.baseline), ("candidate", request.candidate))
        if (fault := address_fault(str(arm.attach), machine.settings.attach_hosts)) is not None
    ]
    one = not faults and endpoint(str(request.baseline.attach)) == endpoint(str(request.candidate.attach))
    if one and not request.declared_aa:
        faults = [FieldError("/candidate/attach", "both arms are one engine, which only a declared A/A can be")]
    if faults:
        raise RequestInvalid(faults)
    return _pair(request.baseline.applied_to(preset.baseline), request.candidate.applied_to(preset.candidate))


def attached_model(name: str) -> ModelRef:
    """A model by the name under which engines that run already serve it; they say when they are attached to."""
    return ModelRef(name=name, source="attached", path=name, revision="not known")


def _pair(baseline: ArmSpec, candidate: ArmSpec) -> ArmPair:
    try:
        return ArmPair(baseline=baseline, candidate=candidate)
    except ValidationError as error:
        sentence = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise RequestInvalid([FieldError("/candidate/name", sentence)]) from error


def resolve_latency(request: CompareRequest, machine: Machine, phase: Phase = "decode") -> LatencyPlan | None:
    """The latency half; None if it was not asked for.

    Raises:
        RequestInvalid: An objective is given and prefills, which have no tokens after the first, are timed.
    """
    if "latency" not in request.parts:
        return None
    if phase == "prefill" and request.slo is not None:
        raise RequestInvalid(
            [FieldError("/slo", "prefills are timed here, so no request has times to hold against it")]
        )
    profile = machine.profile
    steps = request.steps_per_block or profile.steps_per_block
    # A block shortened by the request keeps the profile's share of warm-up steps.
    warmup = max(1, profile.warmup_steps * steps // profile.steps_per_block)
    return LatencyPlan(
        batch_sizes=request.batch_sizes,
        primary_batch=request.primary_batch,
        quads_per_pair=request.quads or profile.quads,
        prompt_tokens=request.prompt_tokens or profile.prompt_tokens,
        steps_per_block=steps,
        warmup_steps=warmup,
        margin=request.margin_latency,
        phase=phase,
        slo=request.slo,
    )


def balanced_pairs(pairs_max: int, layout: Layout) -> int:
    """At most so many launch pairs: no look comes after an odd one where two balance each other. One alone stays."""
    return pairs_max - pairs_max % PAIRS_TO_BALANCE[layout] or pairs_max


def resolve_accuracy(request: CompareRequest, machine: Machine, pairs_max: int) -> AccuracyPlan | None:
    """The accuracy half, its questions drawn, a pass in each launch pair; None if it was not asked for."""
    if "accuracy" not in request.parts:
        return None
    profile = machine.profile
    return AccuracyPlan(
        questions=plan_questions(request, machine),
        sampling=SamplingPlan(max_new_tokens=request.max_new_tokens or profile.max_new_tokens),
        shots=request.shots,
        concurrency=request.concurrency or profile.concurrency,
        passes_max=pairs_max,
        margin_pp=request.margin_accuracy_pp,
        prompting=request.prompting,
    )


def of_roles(arms: ArmPair) -> tuple[tuple[str, ArmSpec], ...]:
    """Both arms, each with the field of a request that changes it."""
    return ("baseline", arms.baseline), ("candidate", arms.candidate)


def require_batches_fit(arm: ArmSpec, role: str, latency: LatencyPlan) -> None:
    """Refuse batches that the arm's engine would never run together: too many requests, or too many tokens."""
    largest = max(latency.batch_sizes)
    limit = flag_value(arm.flags, "--max-running-requests", role)
    if limit is not None and largest > limit:
        raise BatchBeyondEngine(largest, limit, arm.name)
    pool = flag_value(arm.flags, "--max-total-tokens", role)
    tokens = largest * (latency.prompt_tokens + latency.steps_per_block)
    if pool is not None and tokens > pool:
        raise BatchBeyondPool(largest, tokens, pool, arm.name)


def flag_value(flags: Sequence[str], name: str, role: str) -> int | None:
    """The value of an integer flag, as ``--flag 1`` or ``--flag=1``; the last one wins, as in SGLang. None if absent.

    ``role`` is the field of the request to which a fault points.

    Raises:
        RequestInvalid: It has no integer.
    """
    text: str | None = None
    for place, word in enumerate(flags):
        if word == name:
            text = flags[place + 1] if place + 1 < len(flags) else ""
        elif word.startswith(f"{name}="):
            text = word.removeprefix(f"{name}=")
    if text is None:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise RequestInvalid([FieldError(f"/{role}/flags", f"{name} needs a whole number, not {text!r}")]) from error
