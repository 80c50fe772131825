"""The policy of a gate: a versioned YAML file that says what a release needs and what may be waived."""

from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, StringConstraints, ValidationError, model_validator

from equipoise_evals.model import Frozen
from equipoise_service.repeated_keys import repeated_keys
from equipoise_service.requests import CompareRequest

CheckName = Literal["treatment", "accuracy", "outputs", "latency", "other_batches"]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]

LATENCY_WORDS = Literal["faster", "equivalent"]
ACCURACY_WORDS = Literal["identical", "improved", "non_inferior"]


class PolicyError(ValueError):
    """A policy file that cannot be used; nothing was run."""


class Accepted(Frozen):
    """Words that pass, by half; every other decided word fails."""

    latency: tuple[LATENCY_WORDS, ...] = Field(default=("faster", "equivalent"), min_length=1)
    accuracy: tuple[ACCURACY_WORDS, ...] = Field(default=("identical", "improved", "non_inferior"), min_length=1)


class Waiver(Frozen):
    """Somebody's word that a failed or undecided check may pass, for a reason and a time.

    Attributes:
        check: The check that is waived. ``treatment`` cannot be: a run whose treatment was not live says nothing.
        by: Who answers for it.
        expires: Last day on which it counts.
    """

    check: Literal["accuracy", "outputs", "latency", "other_batches"]
    by: Text
    reason: Text
    expires: date


class Policy(Frozen):
    """What a release needs.

    Attributes:
        margin_latency: Change of the step time that counts, as a ratio; None is a request's own default.
        margin_accuracy_pp: Loss of accuracy that counts, in percentage points; None likewise.
        required: Checks that decide.
        advisory: Checks that are shown and decide nothing.
        accept: Words that pass.
        undecided: What an undecided required check means: the gate fails with exit code 2, or passes with a warning. An
            undecided ``treatment`` never passes.
        request: Further fields of ``POST /compare``; the model is the command's.
        waivers: What may pass although it failed.
    """

    version: Literal[1]
    margin_latency: float | None = Field(default=None, gt=0, lt=1)
    margin_accuracy_pp: float | None = Field(default=None, gt=0, lt=100)
    required: tuple[CheckName, ...] = Field(
        default=("treatment", "accuracy", "outputs", "latency", "other_batches"), min_length=1
    )
    advisory: tuple[CheckName, ...] = ()
    accept: Accepted = Accepted()
    undecided: Literal["fail", "pass"] = "fail"
    request: dict[str, Any] = Field(default_factory=dict)
    waivers: tuple[Waiver, ...] = ()

    @model_validator(mode="after")
    def _each_check_has_one_role(self) -> Self:
        named = [*self.required, *self.advisory]
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise ValueError(f"named more than once as required or advisory: {', '.join(twice)}")
        if "treatment" not in self.required:
            raise ValueError("`treatment` is always required: without it a comparison says nothing about the change")
        return self

    @model_validator(mode="after")
    def _margins_and_model_have_one_place(self) -> Self:
        misplaced = sorted(self.request.keys() & {"model", "margin_latency", "margin_accuracy_pp"})
        if misplaced:
            raise ValueError(
                f"not under `request`: {', '.join(misplaced)} (margins stand at the top, the model is MODEL)"
            )
        return self

    @property
    def wanted_latency(self) -> float:
        """The margin of the step time that holds: the policy's, or the one of a request that gives none."""
        default: float = CompareRequest.model_fields["margin_latency"].default
        return default if self.margin_latency is None else self.margin_latency

    @property
    def wanted_accuracy_pp(self) -> float:
        """The margin of accuracy that holds, likewise."""
        default: float = CompareRequest.model_fields["margin_accuracy_pp"].default
        return default if self.margin_accuracy_pp is None else self.margin_accuracy_pp

    def request_for(self, model: str) -> dict[str, Any]:
        """The body of ``POST /compare`` that this policy asks for."""
        margins = {"margin_latency": self.margin_latency, "margin_accuracy_pp": self.margin_accuracy_pp}
        return {"model": model} | self.request | {name: value for name, value in margins.items() if value is not None}


def load_policy(path: Path | None) -> Policy:
    """The policy in a file; the default one, which asks for every check, without a file.

    Raises:
        PolicyError: The file cannot be read, is no YAML, or does not say what a policy says; it names the place.
    """
    if path is None:
        return Policy(version=1)
    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
        twice = next(repeated_keys(yaml.compose(text, Loader=yaml.SafeLoader)), None)
    except OSError as unreadable:
        raise PolicyError(f"{path}: {unreadable.strerror}") from unreadable
    except (yaml.YAMLError, UnicodeDecodeError) as broken:
        raise PolicyError(f"{path} is not YAML: {' '.join(str(broken).split())}") from broken
    if twice is not None:
        raise PolicyError(f"{path}: {'.'.join(map(str, (*twice[0], twice[1])))}: stands there twice")
    try:
        return Policy.model_validate(content)
    except ValidationError as wrong:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'the file'}: {e['msg']}" for e in wrong.errors())
        raise PolicyError(f"{path}: {problems}") from wrong
