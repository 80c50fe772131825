"""What keeps a service from starting; each stops the process."""

from pathlib import Path

from equipoise_service.errors.base import EquipoiseError


class SettingsError(EquipoiseError):
    """A setting cannot be used; ``variable`` is its name in the environment."""

    title = "Unusable setting"
    type = "settings"

    def __init__(self, variable: str, why: str) -> None:
        super().__init__(f"{variable}: {why}")
        self.variable = variable


class NoTokens(SettingsError):
    """Nobody could use a service that listens beyond the loopback and knows no token."""

    title = "No tokens"
    type = "no-tokens"

    def __init__(self, host: str) -> None:
        super().__init__(
            "EQUIPOISE_HOST",
            f"{host} can be reached from other machines, where every request needs a token, and there is none yet: "
            "make one with `equipoise token create NAME --scope admin`, or bind 127.0.0.1",
        )


class PresetError(SettingsError):
    """A preset file, or the folder of them, cannot be used; nothing was started.

    ``variable`` is the setting that led to it; empty of a file that no setting names.
    """

    title = "Unusable preset"
    type = "preset"

    def __init__(self, file: Path, line: int | None, why: str, variable: str = "") -> None:
        where = f"{file}{'' if line is None else f':{line}'}: {why}"
        EquipoiseError.__init__(self, f"{variable}: {where}" if variable else where)
        self.file, self.line, self.why, self.variable = file, line, why, variable


class DataInUse(EquipoiseError):
    """Another service works in this data folder."""

    title = "Data folder in use"
    type = "data-in-use"

    def __init__(self, folder: Path, holder: str) -> None:
        super().__init__(
            f"the data folder {folder} is in use by {holder}: wait until its comparison has ended, use the service "
            "that holds it (--url), or set EQUIPOISE_DATA to another folder"
        )


class ServerError(EquipoiseError):
    """The HTTP server cannot bind its address or did not start."""

    title = "Server not started"
    type = "server"
