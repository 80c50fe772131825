"""Makes the database that ``test_migrations.py`` keeps of each schema version, as SQL text.

After a new migration: ``python -m tests.integration.service.stored_database``, then commit the new file. Files of
earlier versions are never made again: they are what those versions really wrote.
"""

import asyncio
import contextlib
import os
import sqlite3
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory

from equipoise_evals.ports import EngineFault
from equipoise_service.settings import Settings
from equipoise_service.store.database import MIGRATIONS, migrate, open_database
from tests.integration.service.conftest import running_over
from tests.integration.service.fake import Call
from tests.support import postgres

DATABASES = Path(__file__).with_name("databases")


def revisions() -> list[str]:
    """Every schema version, oldest first."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()][::-1]


def restore(revision: str, path: Path) -> list[dict[str, Any]]:
    """Make a database of an earlier version where ``path`` says, and return its comparisons.

    On PostgreSQL the rows of the same SQL text are put into the tables of that version, by its own migrations.
    """
    with contextlib.closing(sqlite3.connect(":memory:" if postgres.VARIABLE in os.environ else path)) as connection:
        connection.executescript((DATABASES / f"{revision}.sql").read_text())
        connection.row_factory = sqlite3.Row
        if postgres.VARIABLE in os.environ:
            database = open_database(postgres.database_for(path, migrated=False), migrated=False)
            migrate(database, revision)
            with database.write() as target:
                _copy(connection, target)
            database.close()
        return [dict(row) for row in connection.execute("SELECT * FROM comparisons")]


def _copy(source: sqlite3.Connection, target: sa.Connection) -> None:
    reflected = sa.MetaData()
    reflected.reflect(target)
    for table in reflected.sorted_tables:
        rows = [dict(row) for row in source.execute(f"SELECT * FROM {table.name}")]  # noqa: S608 - our own table
        for row in rows if table.name != "alembic_version" else ():
            for column in table.columns:
                if isinstance(column.type, sa.DateTime) and row[column.name] is not None:
                    row[column.name] = datetime.fromisoformat(row[column.name]).replace(tzinfo=UTC)
            target.execute(sa.insert(table), row)


async def fill(settings: Settings) -> None:
    """One comparison in each status that a service can leave behind when it has ended."""

    async def die(call: Call) -> None:
        if call.method == "decode" and call.role == "B":
            raise EngineFault("B", "decode", "the engine was killed by SIGKILL", "last words")

    async with running_over(settings) as running:
        await running.ended(await running.submit(model="succeeded", pairs_max=2))
    async with running_over(settings, die) as running:
        await running.ended(await running.submit(model="failed"))
    reached = asyncio.Event()

    async def wait(call: Call) -> None:
        reached.set()
        await asyncio.Event().wait()

    async with running_over(settings, wait, private=True) as running:
        await running.submit(model="interrupted")
        await reached.wait()
        cancelled = await running.submit(model="cancelled")
        await running.client.post(f"/comparisons/{cancelled}/cancel")
        await running.submit({"Idempotency-Key": "kept"}, model="queued")


def write(path: Path) -> None:
    """Write the newest version's database as SQL."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data=Path(folder, "data"), cache=Path(folder, "cache"), device="simulated")
        asyncio.run(fill(settings))
        with sqlite3.connect(settings.data / "equipoise.db") as connection:
            path.write_text("\n".join(connection.iterdump()) + "\n")
        connection.close()


if __name__ == "__main__":
    write(DATABASES / f"{revisions()[-1]}.sql")
