"""What ``equipoise prune`` does: choose, say what would go, and if told to remove it and say what that freed."""

import functools
import shutil
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import typer
from sqlalchemy.engine import make_url

from equipoise_service.cli.documents import local_store
from equipoise_service.errors import DataInUse
from equipoise_service.folder import holding
from equipoise_service.retention import Rule, chosen, size_text
from equipoise_service.settings import Settings
from equipoise_service.store import Store
from equipoise_service.store.keeping import Kept, ended, remove, shrink


def prune_by(rule: Rule, *, apply: bool) -> int:
    """List, or remove, what goes by this rule in this machine's database."""
    settings = Settings.from_env()
    store = local_store()
    logs = settings.engine_logs
    kept = [one._replace(size=one.size + bytes_below(logs / one.id)) for one in ended(store.database)]
    going = chosen(kept, rule, datetime.now(UTC))
    for one in going:
        word = one.verdict or f"({one.status})"
        typer.echo(f"{one.id}  {one.ended_at:%Y-%m-%d %H:%M}  {word:18}  {size_text(one.size):>9}  {one.model}")
    total = size_text(sum(one.size for one in going))
    if not apply:
        typer.echo(
            f"{len(going)} of {len(kept)} ended comparisons, {total}; nothing was removed, --apply does", err=True
        )
        return 0
    removed = _removed(store, going, logs)
    skipped = len(going) - len(removed)
    rest = f"; {skipped} were queued again meanwhile and stay" if skipped else ""
    size = size_text(sum(one.size for one in removed))
    typer.echo(f"removed {len(removed)} of {len(kept)} ended comparisons, {size}{rest}", err=True)
    store.database.close()
    typer.echo(_given_back(settings), err=True)
    return 0


def _removed(store: Store, going: Sequence[Kept], logs: Path) -> list[Kept]:
    return [one for one in going if remove(store.database, one.id, functools.partial(_remove_folder, logs / one.id))]


def _remove_folder(folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)


def _given_back(settings: Settings) -> str:
    """Shrink the database's file if no service works with it, and say by how much."""
    parsed = make_url(settings.url_of_database)
    if parsed.get_backend_name() != "sqlite":
        return "the database keeps the space for what comes; its own tools give it back"
    file = Path(str(parsed.database))
    before = bytes_of(file)
    try:
        with holding(settings.data, url=None):
            shrink(file)
    except (DataInUse, sqlite3.OperationalError):
        return (
            f"a service works with {file}, which stays at {size_text(before)} and uses the space again; run this once "
            "more after it has ended to give it back to the disk"
        )
    after = bytes_of(file)
    freed = size_text(max(0, before - after))
    return f"{file}: {size_text(before)} before, {size_text(after)} now, {freed} given back to the disk"


def bytes_of(database: Path) -> int:
    """Bytes of a SQLite file and its write-ahead log."""
    return sum(path.stat().st_size for path in (database, Path(f"{database}-wal")) if path.exists())


def bytes_below(folder: Path) -> int:
    """Bytes of all files below a folder; 0 where there is none."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
