import re
from pathlib import Path

import pytest

from equipoise_service.errors import SettingsError
from equipoise_service.settings import Settings, variable_of

OPERATIONS = Path(__file__).resolve().parents[3] / "docs" / "operations.md"


ROW = re.compile(r"^\| `(EQUIPOISE_\w+)` \| (.*?) \| (.*) \|$", re.M)


def test_every_setting_is_documented_with_its_default_and_meaning() -> None:
    rows = {name: (default, meaning) for name, default, meaning in ROW.findall(OPERATIONS.read_text())}
    expected = {}
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        expected[variable_of(name)] = ("not set" if default is None else f"`{default}`", field.description)
    assert rows == expected


def test_values_come_from_the_environment_alone() -> None:
    settings = Settings.from_env(
        {"EQUIPOISE_PORT": "0", "EQUIPOISE_DATA": "/d", "EQUIPOISE_ENGINE_VARIABLES": '{"A": "1"}', "PORT": "9"}
    )
    assert (settings.port, settings.data, settings.engine_variables) == (0, Path("/d"), {"A": "1"})


def test_arguments_do_not_mix_with_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQUIPOISE_PORT", "1")
    assert Settings(port=2).port == 2
    assert Settings().port == 8642


@pytest.mark.parametrize(
    ("variables", "named", "says"),
    [
        ({"EQUIPOISE_PORT": "many"}, "EQUIPOISE_PORT", "'many'"),
        ({"EQUIPOISE_PORT": "70000"}, "EQUIPOISE_PORT", "65535"),
        ({"EQUIPOISE_DEVICE": "tpu"}, "EQUIPOISE_DEVICE", "'tpu'"),
        ({"EQUIPOISE_ENGINE_VARIABLES": "{"}, "EQUIPOISE_ENGINE_VARIABLES", "JSON"),
        ({"EQUIPOISE_PROT": "1"}, "EQUIPOISE_PROT", "did you mean EQUIPOISE_PORT?"),
        ({"EQUIPOISE_DATABASE_URL": "nonsense"}, "EQUIPOISE_DATABASE_URL", "no URL of a database"),
        ({"EQUIPOISE_DATABASE_URL": "nosuchsql://x"}, "EQUIPOISE_DATABASE_URL", "no URL of a database"),
        ({"EQUIPOISE_GSM8K": ""}, "EQUIPOISE_GSM8K", "at least 1 character"),
        ({"EQUIPOISE_ZZZ": "1"}, "EQUIPOISE_ZZZ", "is not a setting"),
    ],
)
def test_an_unusable_value_is_refused_by_name(variables: dict[str, str], named: str, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.from_env(variables)
    assert refused.value.variable == named
    assert named in str(refused.value)
    assert says in str(refused.value)


def test_home_is_expanded() -> None:
    assert Settings.from_env({}).data == Path.home() / ".local/state/equipoise"


@pytest.mark.sqlite
def test_the_database_is_in_the_data_folder_unless_it_is_named() -> None:
    assert Settings.from_env({"EQUIPOISE_DATA": "/d"}).url_of_database == "sqlite:////d/equipoise.db"


@pytest.mark.sqlite
def test_a_database_may_be_anywhere() -> None:
    settings = Settings.from_env({"EQUIPOISE_DATABASE_URL": "sqlite:////elsewhere/e.db"})
    assert settings.url_of_database == "sqlite:////elsewhere/e.db"


def test_settings_cannot_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        setattr(Settings(), "port", 3)  # noqa: B010 - mypy refuses the assignment already
