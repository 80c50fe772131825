"""The service's settings: every one an ``EQUIPOISE_*`` variable, read once, frozen, handed down.

Only ``Settings.from_env`` reads the environment. Variables that belong to the hub's client (``HF_TOKEN``, ``HF_HOME``,
``HF_HUB_OFFLINE``) are that client's own and are not repeated here. ``docs/operations.md`` has the table; a test
compares it with this class.
"""

import difflib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from equipoise_service.errors import SettingsError

PREFIX = "EQUIPOISE_"


def _from_json(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as broken:
        raise ValueError(f"is not JSON ({broken})") from broken


def _database(value: str) -> str:
    from sqlalchemy.engine import make_url  # noqa: PLC0415 - slow, and few set this
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

    try:
        make_url(value).get_dialect().import_dbapi()
    except (ArgumentError, ImportError) as unusable:
        raise ValueError(f"is no URL of a database ({unusable})") from unusable
    return value


class Settings(BaseSettings):
    """What an operator decides. A request can override none of it."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", allow_inf_nan=False)

    data: Path = Field(
        default=Path("~/.local/state/equipoise"),
        description="Folder of the database, the engine logs and the lock of the running service.",
    )
    cache: Path = Field(
        default=Path("~/.cache/equipoise"),
        description="Folder of the engine environment and of converted models; may be shared by clones.",
    )
    database_url: Annotated[str, AfterValidator(_database)] | None = Field(
        default=None, description="SQLAlchemy URL of the database; `equipoise.db` in the data folder if not set."
    )
    engine_python: Path | None = Field(
        default=None,
        description="Interpreter of the environment with SGLang; the one that `make setup` built if not set.",
    )
    engine_module: str = Field(
        default="sglang.launch_server",
        pattern=r"^[A-Za-z_][\w.]*$",
        description="Python module that is run to start an engine.",
    )
    plugin_path: Path | None = Field(
        default=None,
        description="Folder put first on the engines' PYTHONPATH, for a plugin that is not installed; the one that "
        "`make setup` built if neither this nor EQUIPOISE_ENGINE_PYTHON is set.",
    )
    engine_variables: Annotated[dict[str, str], BeforeValidator(_from_json)] = Field(
        default_factory=dict, description="A JSON object of variables that every engine gets, in both arms alike."
    )
    gsm8k: str | None = Field(
        default=None,
        description="A folder with `test.jsonl` and `train.jsonl`, or one of the words `shipped` and `hub`; "
        "if not set, `hub` on a CUDA device and `shipped` elsewhere.",
    )
    device: Literal["auto", "cuda", "cpu", "simulated"] = Field(
        default="auto", description="What engines run on; `auto` takes a CUDA device where there is one, else the CPU."
    )
    host: str = Field(default="127.0.0.1", description="Address that `equipoise serve` binds.")
    port: int = Field(
        default=8642, ge=0, le=65535, description="Port that `equipoise serve` binds; 0 takes a free one."
    )
    job_limit_s: float = Field(
        default=172_800, gt=0, description="Longest time that one comparison may take, in seconds."
    )
    stall_limit_s: float = Field(
        default=7_200, gt=0, description="A comparison that reports no progress for so many seconds has hung and fails."
    )
    attach_hosts: Annotated[tuple[str, ...], BeforeValidator(_from_json)] = Field(
        default=(),
        description="A JSON list of hosts, as `gpu7` or `10.0.0.7:30000`, whose running engines a request may attach "
        "to, beside those on the loopback.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level of the service's log lines on standard error."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only arguments: a test's settings must not depend on the machine's variables."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read the settings from the environment.

        Args:
            environment: The variables; the process's own if None.

        Raises:
            SettingsError: A value is unusable, or a variable with our prefix is not one of ours; names the variable.
        """
        variables = os.environ if environment is None else environment
        values = {
            name.removeprefix(PREFIX).lower(): text for name, text in variables.items() if name.startswith(PREFIX)
        }
        for name in values:
            if name not in cls.model_fields:
                raise SettingsError(variable_of(name), f"is not a setting{_nearest(name, cls.model_fields)}")
        try:
            settings = cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            raise SettingsError(
                variable_of(name), f"{first['msg'].removeprefix('Value error, ')}, got {values.get(name)!r}"
            ) from error
        return settings.model_copy(update={"data": settings.data.expanduser(), "cache": settings.cache.expanduser()})

    @property
    def url_of_database(self) -> str:
        """The database's URL, the default filled in."""
        return self.database_url or f"sqlite:///{self.data.expanduser() / 'equipoise.db'}"


def variable_of(field: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + field.upper()


def _nearest(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {variable_of(close[0])}?" if close else ""
