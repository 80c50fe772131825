"""Policies: what a file may say, and an error that names the place where it says something else."""

from pathlib import Path

import pytest

from equipoise_service.gate import Policy, PolicyError, load_policy

DOCUMENTED = Path(__file__).parents[3] / "docs" / "ci" / "policy.yaml"


def written(folder: Path, text: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(text)
    return path


def test_the_documented_file_is_the_default_with_its_margins() -> None:
    assert load_policy(DOCUMENTED) == Policy(version=1, margin_latency=0.005, margin_accuracy_pp=1.0)
    assert load_policy(None) == Policy(version=1)


def test_a_policy_becomes_a_request(tmp_path: Path) -> None:
    policy = load_policy(written(tmp_path, "version: 1\nmargin_latency: 0.01\nrequest: {pairs_max: 4}\n"))
    assert policy.request_for("m") == {"model": "m", "pairs_max": 4, "margin_latency": 0.01}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: 2", "version: Input should be 1"),
        ("{}", "version: Field required"),
        ("version: 1\nmargins: 3", "margins: Extra inputs are not permitted"),
        ("version: 1\nrequired: [latency]", "`treatment` is always required"),
        ("version: 1\nrequired: [treatment, latency]\nadvisory: [latency]", "named more than once"),
        ("version: 1\naccept: {latency: [slower]}", "accept.latency.0: Input should be 'faster' or 'equivalent'"),
        ("version: 1\nrequest: {model: x}", "the model is MODEL"),
        ("version: 1\nrequest: {margin_latency: 0.1}", "margins stand at the top"),
        ("version: 1\nwaivers: [{check: treatment}]", "waivers.0.check"),
        ("version: 1\nwaivers: [{check: latency, by: ' ', reason: r, expires: 2026-12-31}]", "waivers.0.by"),
        ("version: 1\nwaivers: [{check: latency, by: b, reason: r}]", "waivers.0.expires: Field required"),
        ("version: 1\nmargin_latency: .nan", "margin_latency: Input should be a finite number"),
        ("version: 1\nmargin_accuracy_pp: 100", "margin_accuracy_pp: Input should be less than 100"),
        ("version: 1\nrequired: []", "required: Tuple should have at least 1 item"),
        ("version: 1\nrequired: [treatment, speed]", "required.1"),
        ("version: 1\naccept: {latency: []}", "accept.latency: Tuple should have at least 1 item"),
        ("version: 1\nundecided: ignore", "undecided: Input should be 'fail' or 'pass'"),
        ("version: 1\nwaivers: [{check: latency, by: b, reason: r, expires: never}]", "waivers.0.expires"),
        ("version: 1\nwaivers: [{check: latency, by: b, reason: r, expires: 2026-12-31, until: x}]", "waivers.0.until"),
        ("version: 1\nmargin_latency: 0.005\nmargin_latency: 0.5", "margin_latency: stands there twice"),
        (
            "version: 1\naccept: {latency: [faster], latency: [faster, equivalent]}",
            "accept.latency: stands there twice",
        ),
        ("", "the file: Input should be a valid dictionary"),
        ("- a", "the file"),
        ("a: [", "is not YAML"),
        ("? [a]\n: b", "is not YAML"),
    ],
)
def test_a_policy_that_says_something_else_is_refused_by_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PolicyError, match=r"policy\.yaml") as refused:
        load_policy(written(tmp_path, text))
    assert said in str(refused.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="No such file"):
        load_policy(tmp_path / "none.yaml")
