"""Whether a finished comparison is one that a policy asks for, and how it can be held to the policy's margins.

A fresh run is what the policy asked for by its making; one that was there already may be anything.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import ValidationError

from equipoise_evals.model import Plan
from equipoise_service.gate.policy import Policy, PolicyError
from equipoise_service.requests import ArmRequest, CompareRequest

HELD_ELSEWHERE = frozenset({"model", "margin_latency", "margin_accuracy_pp"})
NO_MATTER = frozenset({"priority"})
"""Fields that say nothing about what was measured."""
ASKED_BY_DEFAULT = frozenset({"preset"})
"""Fields that a policy asks for also where it leaves them out: the preset is the change under test."""
TOLD = frozenset(
    {"baseline", "candidate", "evidence", "batch_sizes", "primary_batch", "questions", "shots", "prompting"}
)
"""Fields whose departure from the default a reader must know where the policy says nothing of them."""
UNORDERED = frozenset({"parts", "batch_sizes"})


class Difference(NamedTuple):
    """One field in which a comparison is not what a policy's own run would be; the values as text."""

    name: str
    wanted: str
    measured: str


def refusals(policy: Policy, asked: CompareRequest, plan: Plan, model: str | None) -> tuple[str, ...]:
    """Why this comparison does not answer the policy, one sentence each; none where it does.

    Args:
        policy: What a release needs.
        asked: What the comparison was asked for.
        plan: What that came to.
        model: The model that the gate was called for; None takes the comparison's.

    Raises:
        PolicyError: What the policy has under ``request`` is no request.
    """
    found = []
    if model is not None and model not in {asked.model, plan.model.name}:
        found.append(f"it is of the model {asked.model!r}, not of {model!r}: name that model, or leave it out")
    for one in _differences(policy, asked, plan):
        if one.name in policy.request:
            found.append(f"its {one.name} is {one.measured}, the policy asks for {one.wanted}: run it again")
        elif one.name in ASKED_BY_DEFAULT:
            found.append(
                f"its {one.name} is {one.measured}, a policy that names none asks for {one.wanted}: name it under "
                "`request`, or run it again"
            )
    return tuple(found)


def unsaid(policy: Policy, asked: CompareRequest, plan: Plan) -> tuple[str, ...]:
    """A warning for each telling field that departs from its default, and of which the policy says nothing."""
    return tuple(
        f"the comparison's {one.name} is {one.measured}, not {one.wanted}; the policy does not say what it must be"
        for one in _differences(policy, asked, plan)
        if one.name in TOLD and one.name not in policy.request
    )


def held_to(policy: Policy, plan: Plan) -> Plan:
    """The plan with the policy's margins.

    Neither an interval nor its level depends on a margin, and levels hold whatever ended the run. So the records can be
    judged by this plan as if it had been theirs.
    """
    accuracy, latency = plan.accuracy, plan.latency
    changed: dict[str, Any] = {}
    if accuracy is not None:
        changed["accuracy"] = accuracy.model_copy(update={"margin_pp": policy.wanted_accuracy_pp})
    if latency is not None:
        changed["latency"] = latency.model_copy(update={"margin": policy.wanted_latency})
    return plan.model_copy(update=changed)


def judged_again(plan: Plan) -> str:
    """That the words are not those of the comparison's own card, and by which margins it was measured."""
    margins = [
        *([f"{plan.latency.margin:.2%}"] if plan.latency else []),
        *([f"{plan.accuracy.margin_pp:g} pp"] if plan.accuracy else []),
    ]
    return (
        f"the comparison was measured by {' and '.join(margins)}; its records were judged again by the policy's margins"
    )


def _differences(policy: Policy, asked: CompareRequest, plan: Plan) -> Iterator[Difference]:
    try:
        by_policy = CompareRequest.model_validate(policy.request_for(asked.model))
    except ValidationError as wrong:
        problems = "; ".join(f"request.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in wrong.errors())
        raise PolicyError(f"the policy's {problems}") from wrong
    for name in [field for field in CompareRequest.model_fields if field not in HELD_ELSEWHERE | NO_MATTER]:
        wanted, measured = getattr(by_policy, name), getattr(asked, name)
        if name in policy.request:
            # The preset may have set what the request left out.
            measured = _resolved(plan).get(name, measured)
        if _comparable(name, wanted) != _comparable(name, measured):
            yield Difference(name, _text(wanted), _text(measured))


def _resolved(plan: Plan) -> dict[str, Any]:
    """Fields that a preset may have set, as they were measured."""
    times = plan.latency
    return {"parts": plan.parts} | (
        {} if times is None else {"batch_sizes": times.batch_sizes, "primary_batch": times.primary_batch}
    )


def _comparable(name: str, value: Any) -> Any:  # noqa: ANN401 - the value of any field
    if value == ArmRequest():
        return None
    return frozenset(value) if name in UNORDERED else value


def _text(value: Any) -> str:  # noqa: ANN401 - the value of any field
    """As it would stand in the policy's ``request``."""
    return json.dumps(value, default=lambda one: one.model_dump(mode="json", exclude_defaults=True))
