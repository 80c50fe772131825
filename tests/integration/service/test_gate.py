"""The gate over simulated engines: every exit code, what is left behind, and the GitHub action step by step."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import Error, Failure, TestSuite

from tests.integration.service.command import Command, command_in
from tests.integration.service.served import clean_environment, variables_of

ACTION = Path(__file__).parents[3] / "docs" / "ci" / "github" / "action.yml"
SPEED = {
    "version": 1,
    "required": ["treatment", "latency", "other_batches"],
    "request": {
        "parts": ["latency"], "pairs_max": 3, "quads": 1, "steps_per_block": 16, "batch_sizes": [1, 4],
        "primary_batch": 4,
    },
}  # fmt: skip
"""A policy that gates on speed alone, small enough for a test."""


@pytest.fixture
def equipoise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(tmp_path)
    return command_in(tmp_path, monkeypatch)


def policy_in(folder: Path, **changes: Any) -> str:
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump(SPEED | changes))
    return str(path)


def left(folder: Path, out: str = "out") -> dict[str, Any]:
    """What the gate left: its JSON, and beside it JUnit that an independent parser reads as the same decision."""
    document: dict[str, Any] = json.loads((folder / out / "gate.json").read_text())
    suite = TestSuite.fromstring((folder / out / "gate.xml").read_text())
    cases = list(suite)
    kinds = [type(result) for case in cases for result in case.result]
    assert (suite.tests, suite.failures, suite.errors) == (len(cases), kinds.count(Failure), kinds.count(Error))
    if document["result"] is None:
        assert [case.name for case in cases] == ["comparison"]
        assert kinds == [Error]
    else:
        assert [case.name for case in cases] == [check["name"] for check in document["result"]["checks"]]
        assert (Failure in kinds) == (document["exit_code"] != 0)
    return document


@pytest.mark.parametrize(("effect", "code", "decision"), [(-0.05, 0, "pass"), (0.05, 1, "block")])
def test_a_decided_comparison_passes_or_blocks(
    equipoise: Command, tmp_path: Path, effect: float, code: int, decision: str
) -> None:
    out = ("--output", str(tmp_path / "out"))
    assert equipoise("gate", "m", "--policy", policy_in(tmp_path), *out, effect={"persistent": effect}) == code
    document = left(tmp_path)
    assert (document["exit_code"], document["result"]["decision"]) == (code, decision)
    assert document["policy"]["required"] == SPEED["required"]
    # The same comparison under another policy: nothing runs again.
    for_good = {"by": "J", "reason": "wanted", "expires": "9999-12-31"}
    waived = policy_in(tmp_path, waivers=[{"check": check, **for_good} for check in ("latency", "other_batches")])
    assert equipoise("gate", "--comparison", document["comparison_id"], "--policy", waived, *out) == 0
    again = left(tmp_path)
    assert again["comparison_id"] == document["comparison_id"]
    assert again["policy"]["waivers"][0]["by"] == "J"
    assert bool(again["result"]["warnings"]) == (code == 1)


def test_a_finished_comparison_is_held_to_the_policys_margins_and_request(equipoise: Command, tmp_path: Path) -> None:
    """A reviewer's gate passed a candidate that was a fifth slower: its comparison had been asked with wide margins."""
    out = ("--output", str(tmp_path / "out"))
    wide = policy_in(tmp_path, margin_latency=0.5)
    assert equipoise("gate", "m", "--policy", wide, *out, effect={"persistent": 0.2}) == 0
    comparison = ("--comparison", left(tmp_path)["comparison_id"])
    for margins in ({"margin_latency": 0.005}, {}):
        assert equipoise("gate", *comparison, "--policy", policy_in(tmp_path, **margins), *out) == 1
        result = left(tmp_path)["result"]
        assert [check["word"] for check in result["checks"] if check["name"] == "latency"] == ["slower"]
        assert "measured by 50.00%; its records were judged again" in result["warnings"][0]
    assert equipoise("gate", "else/where", *comparison, "--policy", wide, *out) == 64
    assert "not of 'else/where'" in left(tmp_path)["error"]
    longer = policy_in(tmp_path, margin_latency=0.5, request=SPEED["request"] | {"pairs_max": 10})  # type: ignore[operator]
    assert equipoise("gate", "m", *comparison, "--policy", longer, *out) == 64
    document = left(tmp_path)
    assert (document["comparison_id"], document["result"]) == (comparison[1], None)
    assert "its pairs_max is 3, the policy asks for 10: run it again" in document["error"]
    nonsense = policy_in(tmp_path, request={"nonsense": 1})
    assert equipoise("gate", *comparison, "--policy", nonsense, *out) == 64


def test_a_declared_aa_never_passes(equipoise: Command, tmp_path: Path) -> None:
    request = SPEED["request"] | {"declared_aa": True, "candidate": {"name": "again", "scratch": "baseline"}}  # type: ignore[operator]
    policy = policy_in(tmp_path, request=request, margin_latency=0.2, undecided="pass")
    assert equipoise("gate", "m", "--policy", policy, "--output", str(tmp_path / "out")) == 2
    treatment = left(tmp_path)["result"]["checks"][0]
    assert (treatment["name"], treatment["state"]) == ("treatment", "undecided")
    assert "declared A/A" in treatment["detail"]


def test_one_pair_is_undecided(equipoise: Command, tmp_path: Path) -> None:
    policy = policy_in(tmp_path, request=SPEED["request"] | {"pairs_max": 1})  # type: ignore[operator]
    assert equipoise("gate", "m", "--policy", policy, "--output", str(tmp_path / "out")) == 2
    assert left(tmp_path)["result"]["decision"] == "undecided"


def test_an_engine_that_fails_is_an_error(equipoise: Command, tmp_path: Path) -> None:
    failures = [{"kind": "crash_at_start", "role": "B"}]
    out = ("--output", str(tmp_path / "out"))
    assert equipoise("gate", "m", "--policy", policy_in(tmp_path), *out, failures=failures) == 3
    document = left(tmp_path)
    assert document["result"] is None
    assert "arm B, stage start" in document["error"]
    named = ("--comparison", document["comparison_id"])
    assert equipoise("gate", *named, "--policy", policy_in(tmp_path), *out) == 3
    assert left(tmp_path)["error"] == document["error"]


@pytest.mark.parametrize(
    ("changes", "said"), [({"version": 7}, "version: Input should be 1"), ({"request": {"nonsense": 1}}, "/nonsense")]
)
def test_wrong_use_runs_nothing(equipoise: Command, tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    assert equipoise("gate", "m", "--policy", policy_in(tmp_path, **changes), "-o", str(tmp_path / "out")) == 64
    document = left(tmp_path)
    assert (document["exit_code"], document["result"]) == (64, None)
    assert said in document["error"]


@pytest.mark.parametrize("output", [(), ("-o", "out"), ("--output=out",)])
def test_wrong_use_leaves_no_older_answer(equipoise: Command, tmp_path: Path, output: tuple[str, ...]) -> None:
    folder = tmp_path / ("out" if output else "")
    folder.mkdir(exist_ok=True)
    (folder / "gate.json").write_text('{"exit_code": 0}')
    assert equipoise("gate", *output, "--bogus") == 64
    found = json.loads((folder / "gate.json").read_text())
    assert (found["exit_code"], found["result"]) == (64, None)
    assert "--bogus" in found["error"]


def test_the_github_action_step_by_step(tmp_path: Path) -> None:
    """Each step's script as the runner would run it: inputs in its environment, outputs read from its file."""
    action = yaml.safe_load(ACTION.read_text())
    inputs = {
        "model": "m",
        "policy": policy_in(tmp_path),
        "equipoise": f"{sys.executable} -m equipoise_service",
    }
    files = {name: tmp_path / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    environment = (
        clean_environment()
        | variables_of(tmp_path, effect={"persistent": 0.05})
        | {"EQUIPOISE_ENGINE_PYTHON": sys.executable, "GITHUB_ACTIONS": "true"}
        | {name: str(path) for name, path in files.items()}
    )
    codes, said = [], ""
    for step in action["runs"]["steps"]:
        variables = {name: filled(text, inputs) for name, text in step["env"].items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env=environment | variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        codes.append(done.returncode)
        said += done.stdout
    assert codes == [0, 1]
    assert files["GITHUB_OUTPUT"].read_text() == "exit-code=1\n"
    assert "::error title=equipoise gate::Block: the candidate decodes slower" in said
    assert files["GITHUB_STEP_SUMMARY"].read_text().startswith("## Gate: block (m)")
    assert left(tmp_path, "equipoise-gate")["exit_code"] == 1


def filled(text: str, inputs: dict[str, str]) -> str:
    for name, value in inputs.items():
        text = text.replace(f"${{{{ inputs.{name} }}}}", value)
    assert "${{" not in text
    return text


def test_make_gate_passes_the_policy_on_and_fails_on_a_block(tmp_path: Path) -> None:
    printed = subprocess.run(
        ["make", "-n", "gate", "MODEL=owner/name", "POLICY=p.yaml"],
        cwd=ACTION.parents[3],
        env=os.environ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "equipoise gate 'owner/name' --policy 'p.yaml'" in printed
