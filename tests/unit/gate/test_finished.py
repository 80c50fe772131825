"""Finished comparisons under a policy: what is refused, what is told, and which margins hold."""

from typing import Any

import pytest

from equipoise_evals.model import Plan
from equipoise_service.gate import PolicyError
from equipoise_service.gate.finished import held_to, judged_again, refusals, unsaid
from equipoise_service.requests import CompareRequest
from tests.support import records as make
from tests.unit.gate.test_decide import policy

PLAN = make.plan()
PREFILL = make.plan(latency=make.LATENCY.model_copy(update={"batch_sizes": (1, 4), "primary_batch": 4}))


def asked(**fields: Any) -> CompareRequest:
    return CompareRequest.model_validate({"model": "owner/name"} | fields)


def refused(request: dict[str, Any], comparison: CompareRequest, plan: Plan = PLAN, model: str | None = None) -> str:
    return "; ".join(refusals(policy(request=request), comparison, plan, model))


@pytest.mark.parametrize("model", [None, "owner/name", "simulated"], ids=["none", "as asked", "as it is called"])
def test_what_the_policy_asks_for_is_taken(model: str | None) -> None:
    request = {
        "pairs_max": 4, "parts": ["accuracy", "latency"], "batch_sizes": [16, 1], "baseline": {}, "shots": 3,
        "candidate": {"scratch": "upstream"}, "evidence": [{"kind": "fills"}],
    }  # fmt: skip
    assert refused(request, asked(**request, priority=7, margin_latency=0.5), model=model) == ""
    assert unsaid(policy(request=request), asked(**request, seed=9), PLAN) == ()


@pytest.mark.parametrize(
    ("request_", "comparison", "said"),
    [
        ({"pairs_max": 4}, {}, "its pairs_max is 10, the policy asks for 4: run it again"),
        ({"questions": 100}, {"questions": 16}, "its questions is 16, the policy asks for 100"),
        ({"declared_aa": False}, {"declared_aa": True}, "its declared_aa is true, the policy asks for false"),
        ({"candidate": {"scratch": "upstream"}}, {}, 'the policy asks for {"scratch": "upstream"}'),
        ({"candidate": {}}, {"candidate": {"flags": ["--x"]}}, 'its candidate is {"flags": ["--x"]}'),
        ({"evidence": []}, {}, "its evidence is null, the policy asks for []"),
        ({"preset": "flag"}, {}, 'its preset is "persistent-buffer", the policy asks for "flag"'),
        ({}, {"preset": "flag"}, "name it under `request`, or run it again"),
    ],
)
def test_what_it_does_not_ask_for_is_refused(request_: dict[str, Any], comparison: dict[str, Any], said: str) -> None:
    assert said in refused(request_, asked(**comparison))


def test_what_it_leaves_open_is_taken_as_it_was() -> None:
    assert refused({}, asked(seed=9, pairs_max=3, questions=16)) == ""


def test_another_model_is_refused() -> None:
    assert refused({}, asked(), model="else/where") == (
        "it is of the model 'owner/name', not of 'else/where': name that model, or leave it out"
    )


def test_what_a_preset_set_counts_as_measured() -> None:
    """The request left the batch sizes out, so that it looks like one that asks for the default ones."""
    assert "its batch_sizes is [1, 4], the policy asks for [1, 16]" in refused(
        {"batch_sizes": [1, 16]}, asked(), PREFILL
    )
    assert refused({"batch_sizes": [1, 4], "primary_batch": 4}, asked(), PREFILL) == ""
    assert "its parts is" in refused({"parts": ["accuracy"]}, asked(), make.plan(accuracy=None))
    assert refused({"parts": ["accuracy"]}, asked(parts=["accuracy"]), make.plan(latency=None)) == ""


def test_a_request_that_is_none_is_the_policys_fault() -> None:
    with pytest.raises(PolicyError, match=r"request\.nonsense"):
        refused({"nonsense": 1}, asked())


def test_what_the_policy_says_nothing_of_is_told() -> None:
    mine = asked(questions=16, candidate={"scratch": "upstream"}, pairs_max=2)
    assert unsaid(policy(), mine, PLAN) == (
        'the comparison\'s candidate is {"scratch": "upstream"}, not null; the policy does not say what it must be',
        "the comparison's questions is 16, not null; the policy does not say what it must be",
    )
    assert unsaid(policy(request={"questions": 16, "candidate": {"scratch": "upstream"}}), mine, PLAN) == ()


def test_margins_are_the_policys_or_a_requests_own() -> None:
    wide = make.plan(
        latency=make.LATENCY.model_copy(update={"margin": 0.5}), accuracy=make.accuracy_plan(margin_pp=50.0)
    )
    assert held_to(policy(), wide) == PLAN
    assert held_to(policy(margin_latency=0.5, margin_accuracy_pp=50.0), wide) == wide
    assert judged_again(wide) == (
        "the comparison was measured by 50.00% and 50 pp; its records were judged again by the policy's margins"
    )


@pytest.mark.parametrize(("half", "said"), [("accuracy", "0.50%"), ("latency", "1 pp")])
def test_a_half_that_was_not_measured_has_no_margin(half: str, said: str) -> None:
    halves: dict[str, Any] = {half: None}
    plan = make.plan(**halves)
    assert getattr(held_to(policy(margin_latency=0.1, margin_accuracy_pp=3.0), plan), half) is None
    assert f"by {said}; its records" in judged_again(plan)
