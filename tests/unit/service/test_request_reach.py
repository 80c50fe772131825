"""No field of a request reaches a path, a shell, or a flag or variable outside the lists. Issue 10, acceptance 3."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from equipoise_evals.model import ROLES, ModelRef
from equipoise_service import errors
from equipoise_service.access.engine_options import FLAGS, VARIABLES
from equipoise_service.engines.environment import EngineCommand, EngineFiles, Start, engine_command
from equipoise_service.engines.ports import EnginePorts
from equipoise_service.machine import Machine
from equipoise_service.requests import CompareRequest
from equipoise_service.resolve import resolve
from equipoise_service.settings import Settings
from tests.fakes import environments

PLAIN = re.compile(r"-{0,2}[A-Za-z0-9][A-Za-z0-9_.+-]*(=[A-Za-z0-9_.+-]+)?|-?[0-9][0-9.]*")
FILES = EngineFiles(Path("/w/engine.log"), Path("/w/steps.jsonl"), Path("/w/traces"), Path("/w"))
START = Start("eq-1", EnginePorts(21_000, 21_001), FILES, 0)
MODEL = ModelRef(name="m", source="folder", path="/models/m", revision="0")
NASTY = (
    "../../etc/passwd", "/bin/sh", "; touch /tmp/x", "$(id)", "`id`", "a b", "a\nb", "--model-path", "--host=0.0.0.0",
    "--trust-remote-code", "-m", "%s", "{running}", "{batch_sizes}", "~/x", "\\\\host\\share", "file:///etc/passwd",
    "é",
)  # fmt: skip
"""Words that would do something to a shell, a path, a template or SGLang's own command line."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine with two engine environments."""
    folder = tmp_path_factory.mktemp("reach")
    here = Settings(data=folder / "data", cache=folder / "cache", device="simulated")
    environments.register(here.environments, "other", folder / "python", "0.5.17")
    return Machine(here)


word = st.one_of(st.sampled_from(NASTY), st.text(max_size=12), st.sampled_from(["64", "fp8_e4m3", "1"]))
arm = st.fixed_dictionaries(
    {},
    optional={
        "name": word,
        "engine": st.one_of(word, st.sampled_from(["default", "other"])),
        "flags": st.lists(st.one_of(word, st.sampled_from(sorted(FLAGS))), max_size=4),
        "environment": st.dictionaries(st.one_of(word, st.sampled_from(sorted(VARIABLES))), word, max_size=3),
        "scratch": st.one_of(word, st.sampled_from(["baseline", "persistent", "upstream"])),
    },
)
evidence = st.fixed_dictionaries(
    {"kind": st.sampled_from(["kernel", "attribute", "version", "fills"])},
    optional={"name": word, "package": word, "change": st.sampled_from(["appears", "count"]), "candidate": word},
)
REQUESTS = st.fixed_dictionaries(
    {"model": st.just("m"), "preset": st.one_of(st.sampled_from(["flag", "prefill", "sglang-version"]), word)},
    optional={"baseline": arm, "candidate": arm, "evidence": st.lists(evidence, max_size=2)},
)


def commands_of(body: dict[str, Any], machine: Machine) -> list[EngineCommand]:
    """What would be executed; nothing where the request is refused."""
    try:
        request = CompareRequest.model_validate(body | {"parts": ["latency"]})
        plan = resolve(request, machine)
    except (ValidationError, errors.Refusal):
        return []
    known = machine.environments()
    return [engine_command(known[plan.arms.of(role).engine], plan.arms.of(role), MODEL, START) for role in ROLES]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(REQUESTS)
def test_whatever_is_asked_an_engine_gets_listed_flags_and_variables_alone(
    machine: Machine, body: dict[str, Any]
) -> None:
    pythons = {str(one.python) for one in machine.environments().values()}
    for argv, variables in commands_of(body, machine):
        # The head is ours: interpreter, module, model, address, ports, memory.
        assert argv[0] in pythons
        assert argv[1:5] == ("-m", "sglang.launch_server", "--model-path", "/models/m")
        assert argv[5:7] == ("--host", "127.0.0.1")
        rest = argv[11:]
        assert rest[0] == "--mem-fraction-static"
        for place in rest:
            assert PLAIN.fullmatch(place), place
            if place.startswith("--"):
                assert place.partition("=")[0] in FLAGS
        for name, value in variables.items():
            ours = {"EQUIPOISE_ARM", "EQUIPOISE_STEP_LOG", "EQUIPOISE_LAUNCH_ID", "PYTHONUNBUFFERED", "PYTHONPATH"}
            assert name in VARIABLES or name in ours
            assert name in ours or PLAIN.fullmatch(value)


def test_the_search_is_not_empty(machine: Machine) -> None:
    """Requests that pass do reach the checks above."""
    body = {"model": "m", "preset": "flag", "candidate": {"engine": "other", "flags": ["--page-size", "64"]}}
    assert [command.argv[-2:] for command in commands_of(body, machine)][1] == ("--page-size", "64")


@pytest.mark.parametrize("nasty", NASTY)
@pytest.mark.parametrize("field", ["preset", "engine", "flags", "value", "variable", "content", "scratch", "package"])
def test_a_word_that_would_do_something_is_refused_wherever_it_stands(machine: Machine, field: str, nasty: str) -> None:
    """The cases A5 of published faults again (A5-09, A5-11), for every field that arms of one's own brought."""
    candidates: dict[str, dict[str, Any]] = {
        "engine": {"engine": nasty},
        "flags": {"flags": [nasty]},
        "value": {"flags": ["--attention-backend", nasty]},
        "variable": {"environment": {nasty: "1"}},
        "content": {"environment": {"OMP_NUM_THREADS": nasty}},
        "scratch": {"scratch": nasty},
    }
    preset = nasty if field == "preset" else "flag"
    body: dict[str, Any] = {"model": "m", "preset": preset, "candidate": candidates.get(field, {})}
    if field == "package":
        body["evidence"] = [{"kind": "version", "package": nasty}]
    assert commands_of(body, machine) == []


def test_the_name_of_a_kernel_is_compared_and_never_run(machine: Machine) -> None:
    """A kernel's name may hold anything, since C++ does; it stays in the plan."""
    name = "void f<4, std::array<char*, 1ul>>(int); $(id) ../x"
    evidence = [{"kind": "kernel", "name": name, "change": "count"}]
    commands = commands_of({"model": "m", "preset": "flag", "evidence": evidence}, machine)
    assert len(commands) == 2
    assert all(name not in json.dumps([*command.argv, *command.variables.values()]) for command in commands)
