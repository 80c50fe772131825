"""For every test: the tokens that it makes are noted, and after the run nothing that was written may hold one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from equipoise_service.access.secrets import NewToken, new_token

CHUNK_BYTES = 1 << 22


@pytest.fixture(scope="session", autouse=True)
def no_token_is_written_down(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Search the output folder of this process's tests: databases, logs, records, reports, whatever there is."""
    made: list[str] = []

    def noted() -> NewToken:
        token = new_token()
        made.append(token.text)
        return token

    with pytest.MonkeyPatch.context() as patch:
        for module in ("equipoise_service.store.tokens", "equipoise_service.cli.comparing"):
            patch.setattr(f"{module}.new_token", noted)
        yield
    found = holding_any(tmp_path_factory.getbasetemp(), made)
    assert found == [], "these files hold a token's secret"


def holding_any(folder: Path, tokens: list[str]) -> list[Path]:
    """Files below a folder that hold the secret part of any of these tokens."""
    secrets = [token.split("_", 2)[2].encode() for token in tokens]
    if not secrets:
        return []
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and _holds(path, secrets)]


def _holds(path: Path, secrets: list[bytes]) -> bool:
    kept = b""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            window = kept + chunk
            if any(secret in window for secret in secrets):
                return True
            kept = chunk[-max(map(len, secrets)) :]
    return False
