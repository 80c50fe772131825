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

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from equipoise_service.access.addresses import is_loopback
from equipoise_service.access.engine_options import Kind
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
        url = make_url(value)
        url.get_dialect().import_dbapi()
    except ArgumentError as unusable:
        raise ValueError("is no URL of a database") from unusable
    except ImportError as missing:
        hint = "; install equipoise-service[postgres]" if url.get_backend_name() == "postgresql" else ""
        raise ValueError(f"needs a driver that is not installed ({missing}){hint}") from missing
    if url.get_dialect().is_async or url.get_backend_name() not in ("sqlite", "postgresql"):
        raise ValueError("names neither SQLite nor PostgreSQL, as `postgresql://user:password@host/name` does")
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
        default=None,
        repr=False,  # it may hold a password
        description="SQLAlchemy URL of the database, SQLite's or PostgreSQL's; `equipoise.db` in the data folder if "
        "not set.",
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
        min_length=1,  # that a variable was left empty by mistake must show
        description="A folder with `test.jsonl` and `train.jsonl`, or one of the words `shipped` and `hub`; "
        "if not set, `hub` on a CUDA device and `shipped` elsewhere.",
    )
    presets: Path | None = Field(
        default=None,
        description="Folder of further presets, `NAME.yaml` each, beside those that come with Equipoise.",
    )
    device: Literal["auto", "cuda", "cpu", "simulated"] = Field(
        default="auto", description="What engines run on; `auto` takes a CUDA device where there is one, else the CPU."
    )
    devices: Annotated[tuple[str, ...], BeforeValidator(_from_json)] = Field(
        default=(),
        description="A JSON list of the GPUs that engines may use, as `CUDA_VISIBLE_DEVICES` names them; "
        "those of that variable, else all, if empty.",
    )
    executor: Literal["local", "ray"] = Field(
        default="local",
        description="Where comparisons run: `local` one at a time on this machine, "
        "`ray` on the nodes of a Ray cluster.",
    )
    slots: int = Field(
        default=8, ge=1, le=1_000, description="Comparisons that may be placed on a Ray cluster at once."
    )
    ray_address: str = Field(default="auto", description="Address of the Ray cluster; `auto` finds this machine's.")
    ray_pairs_at_once: int = Field(
        default=1,
        ge=1,
        le=100,
        description="Launch pairs of one comparison that may be measured at once, each at a place of its own on a Ray "
        "cluster; on GPUs only where a request names its `gpu_type`.",
    )
    ray_place_limit_s: float = Field(
        default=600,
        gt=0,
        description="A comparison that asks for what no node of the Ray cluster has fails after so many seconds, in "
        "which an autoscaler may bring one. While nodes are only busy it waits on.",
    )
    ray_cpus: float = Field(default=2.0, gt=0, description="CPU cores that a comparison takes of a Ray node.")
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
    choose_blocks: bool = Field(
        default=False,
        description="Take block lengths that a request leaves open from how launches, blocks and steps varied in the "
        "newest comparison alike.",
    )
    fast_starts: bool = Field(
        default=True,
        description="On a GPU, let the second engine of a pair import beside the first, and keep compiled kernels in "
        "one folder of the cache: on an H200 both engines were ready after 32 to 49 s, and 53 to 68 s without.",
    )
    imports_ahead: int | None = Field(
        default=None,
        ge=0,
        description="On a GPU with fast starts, engines of later launches that import beside the first and wait: "
        "a later start takes 8 to 12 s on an H200 instead of 27 to 39. Each takes some 3 GB of the host's memory. By "
        "default one for every 4 cores and 8 GB of available memory, less one, at most 12.",
    )
    history_days: int = Field(
        default=30,
        ge=0,
        description="Oldest A/A comparisons, in days, from which a plan borrows the spread between launches; 0 borrows "
        "nothing.",
    )
    require_tokens: bool = Field(
        default=False,
        description="Ask for tokens on the loopback too, as behind a proxy; "
        "on any other address they are always asked for.",
    )
    public_reads: bool = Field(
        default=False, description="Let everybody read where tokens are asked for; changes still need one."
    )
    allowed_hosts: Annotated[tuple[str, ...], BeforeValidator(_from_json)] = Field(
        default=(),
        description="A JSON list of DNS names by which a service on the loopback may be addressed, as by a proxy.",
    )
    models: Annotated[tuple[str, ...], BeforeValidator(_from_json)] = Field(
        default=("*",),
        description="A JSON list of patterns, as `myorg/*`: hub ids that may be compared, beside the embedded model.",
    )
    model_roots: Annotated[tuple[Path, ...], BeforeValidator(_from_json)] | None = Field(
        default=None,
        description="A JSON list of folders below which a model folder must lie, links followed; "
        "if not set, none where tokens are asked for, and any elsewhere.",
    )
    remote_code: Annotated[tuple[str, ...], BeforeValidator(_from_json)] = Field(
        default=(),
        description="A JSON list of `name@revision`: models whose repository's code engines may run, at that revision. "
        "A folder's revision is the digest that a plan shows.",
    )
    allow_flags: Annotated[dict[str, Kind], BeforeValidator(_from_json)] = Field(
        default_factory=dict,
        description="A JSON object of further SGLang flags that requests may set: flag to `switch`, `whole`, `number`, "
        "`word`, `wholes` or `words`.",
    )
    allow_variables: Annotated[dict[str, Kind], BeforeValidator(_from_json)] = Field(
        default_factory=dict,
        description="A JSON object of further variables that requests may set: name to `whole`, `number` or `word`.",
    )
    token: SecretStr | None = Field(
        default=None, description="Token that `equipoise` shows to a service; `equipoise serve` has no use for it."
    )
    body_bytes_max: int = Field(default=1_000_000, ge=1_000, description="Longest body of a request, in bytes.")
    requests_per_s: float | None = Field(
        default=None,
        gt=0,
        description="Requests a second of one token, or of one address without; 50 where tokens are asked for, else no "
        "limit, if not set. Twice as many may come at once.",
    )
    worker: bool = Field(
        default=True,
        description="Take comparisons from the queue; false for a service that only shows and accepts them, beside "
        "others on the same PostgreSQL.",
    )
    queue_max: int = Field(default=10_000, ge=1, description="Comparisons that may wait; more are refused.")
    attach_hosts: Annotated[tuple[str, ...], BeforeValidator(_from_json)] = Field(
        default=(),
        description="A JSON list of hosts, as `gpu7` or `10.0.0.7:30000`, whose running engines a request may attach "
        "to, beside those on the loopback.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level of the service's log lines on standard error."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Form of the service's log lines; `json` is one object a line."
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
            got = "" if name == "database_url" else f", got {values.get(name)!r}"  # a password may be in there
            raise SettingsError(variable_of(name), f"{first['msg'].removeprefix('Value error, ')}{got}") from error
        return settings.model_copy(update={"data": settings.data.expanduser(), "cache": settings.cache.expanduser()})

    @property
    def asks_for_tokens(self) -> bool:
        """Whether a service under these settings asks who somebody is."""
        return self.require_tokens or not is_loopback(self.host)

    @property
    def engine_logs(self) -> Path:
        """Where each comparison has a folder for what its engines write."""
        return self.data.expanduser() / "engines"

    @property
    def environments(self) -> Path:
        """Where `equipoise env add` registers engine environments."""
        return self.data.expanduser() / "environments"

    @property
    def url_of_database(self) -> str:
        """The database's URL, the default filled in."""
        return self.database_url or f"sqlite:///{self.data.expanduser() / 'equipoise.db'}"


def variable_of(field: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + field.upper()


def shown_token(settings: Settings) -> str | None:
    """The token that the command line shows to a service; None shows none."""
    return None if settings.token is None else settings.token.get_secret_value()


def _nearest(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {variable_of(close[0])}?" if close else ""
