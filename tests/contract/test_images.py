"""The Dockerfiles, the compose file and the examples name only what exists; nothing here builds or starts an image."""

import json
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from equipoise_service.settings import Settings, variable_of

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
SETTINGS = {variable_of(name) for name in Settings.model_fields}
NOT_SETTINGS = {"EQUIPOISE_DATABASE_PASSWORD", "EQUIPOISE_MODEL_FOLDER"}
"""What only the compose file's own .env has."""


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Instruction and the rest of its line, continued lines joined, comments left out."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(word, rest) for line in joined.splitlines() if line for word, _, rest in [line.partition(" ")]]


def of(dockerfile: Path, word: str) -> list[str]:
    return [rest for found, rest in instructions(dockerfile) if found == word]


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return loaded


def test_there_are_two_images() -> None:
    assert [path.name for path in DOCKERFILES] == ["engine.Dockerfile", "service.Dockerfile"]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_every_path_that_is_copied_exists_and_is_let_through(dockerfile: Path) -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    let_through = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    copied = [path for rest in of(dockerfile, "COPY") if "--from" not in rest for path in rest.split()[:-1]]
    assert copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert path.rstrip("/") in let_through, path


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_a_copy_from_another_stage_takes_what_that_stage_makes(dockerfile: Path) -> None:
    stages = {rest.split()[-1] for rest in of(dockerfile, "FROM") if " AS " in rest}
    for rest in of(dockerfile, "COPY"):
        if "--from" in rest:
            stage, source, _ = re.fullmatch(r"--from=(\S+) (\S+) (\S+)", rest).groups()  # type: ignore[union-attr] # or it fails
            assert stage in stages
            assert f"UV_PROJECT_ENVIRONMENT={source}" in " ".join(of(dockerfile, "ENV"))


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_entry_points_extras_and_versions_are_the_projects(dockerfile: Path) -> None:
    service = tomllib.loads((ROOT / "service" / "pyproject.toml").read_text())["project"]
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (entry,) = of(dockerfile, "ENTRYPOINT")
    (argument,) = of(dockerfile, "CMD")
    module, _, function = service["scripts"][json.loads(entry)[0]].partition(":")
    assert callable(getattr(__import__(module, fromlist=[function]), function))
    assert json.loads(argument) == ["serve"]
    assert (ROOT / "service" / "equipoise_service" / "cli" / "serve.py").is_file()
    installs = " ".join(of(dockerfile, "RUN"))
    assert set(re.findall(r"--extra (\S+)", installs)) <= set(root["optional-dependencies"])
    pinned = re.search(r"^UV_VERSION := (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert pinned is not None
    assert f"uv=={pinned[1]}" in installs


def test_the_engine_image_is_sglangs_by_digest_and_brings_the_plugin() -> None:
    engine = DOCKER / "engine.Dockerfile"
    (base,) = of(engine, "FROM")
    assert re.fullmatch(r"lmsysorg/sglang:v0\.5\.17@sha256:[0-9a-f]{64}", base)
    assert base.rpartition("@sha256:")[2][:12] in (ROOT / "docs" / "deployment.md").read_text()
    plugin = tomllib.loads((ROOT / "backends" / "pyproject.toml").read_text())["project"]["entry-points"]
    for group in ("sglang.srt.plugins", "sglang.srt.platforms"):
        for target in plugin[group].values():
            module, _, function = target.partition(":")
            source = (ROOT / "backends" / Path(*module.split("."))).with_suffix(".py").read_text()
            assert f"def {function}(" in source
    assert "--target /opt/plugin ./backends" in " ".join(of(engine, "RUN"))
    assert "EQUIPOISE_PLUGIN_PATH=/opt/plugin" in " ".join(of(engine, "ENV"))


def test_the_service_runs_as_nobody_in_particular() -> None:
    assert of(DOCKER / "service.Dockerfile", "USER") == ["10001"]


@pytest.mark.parametrize(
    "path", sorted(path for path in DOCKER.iterdir() if path.name != ".env"), ids=lambda path: path.name
)
def test_every_variable_is_a_setting(path: Path) -> None:
    named = set(re.findall(r"\bEQUIPOISE_[A-Z0-9_]+", path.read_text()))
    assert named <= SETTINGS | NOT_SETTINGS


def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), *DOCKERFILES], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_compose_file_is_one_by_the_specifications_schema() -> None:
    """The schema that the compose specification publishes, as the package check-jsonschema brings it."""
    schema = json.loads(files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text())
    validator = Draft202012Validator(schema)
    assert list(validator.iter_errors(compose())) == []
    assert list(validator.iter_errors({"services": {"x": {"imagee": "y"}}})) != []


def test_the_compose_file_agrees_with_the_images() -> None:
    loaded = compose()
    services = loaded["services"]
    for name, dockerfile in (("engine", "engine.Dockerfile"), ("pages", "service.Dockerfile")):
        service = services[name]
        built = (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).resolve()
        assert built == DOCKER / dockerfile
        assert of(built, "HEALTHCHECK")
        (port,) = of(built, "EXPOSE")
        assert all(published.endswith(f":{port}") for published in service["ports"])
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        writable = json.loads(of(built, "VOLUME")[0])
        mounted = {volume.split(":")[1] for volume in service["volumes"] if not volume.endswith(":ro")}
        assert mounted <= set(writable)
        named = {volume.split(":")[0] for volume in service["volumes"] if not volume.startswith("$")}
        assert named <= set(loaded["volumes"])
    (gpu,) = services["engine"]["deploy"]["resources"]["reservations"]["devices"]
    assert (gpu["driver"], gpu["capabilities"]) == ("nvidia", ["gpu"])
    assert "deploy" not in services["pages"]
    assert services["database"]["networks"] == ["inside"]
    assert loaded["networks"]["inside"] == {"internal": True}


def test_documented_build_commands_are_those_of_the_makefile() -> None:
    documented = re.findall(r"^docker build .*$", (ROOT / "docs" / "deployment.md").read_text(), re.MULTILINE)
    made = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "image-service", "image-engine"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert documented == made
    for command in made:
        dockerfile = re.search(r"--file (\S+)", command)
        assert dockerfile is not None
        assert (ROOT / dockerfile[1]).is_file()


def test_the_examples_name_the_images_and_are_what_they_say() -> None:
    tags = set(re.findall(r"--tag (\S+)", (ROOT / "Makefile").read_text()))
    cluster = yaml.safe_load((DOCKER / "kuberay.yaml").read_text())
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    for group in groups:
        pod = group["template"]["spec"]
        places = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert container["image"] in tags
            assert {mount["name"] for mount in container["volumeMounts"]} <= places
    script = DOCKER / "slurm.sbatch"
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    assert any(fnmatch(line, "#SBATCH --signal=B:TERM@*") for line in script.read_text().splitlines())
    assert f"{'equipoise-engine'}.sif" in script.read_text()
    assert "equipoise-engine" in tags
