"""Makes the database that ``test_migrations.py`` keeps of each schema version, as SQL text.

After a new migration: ``python -m tests.integration.service.stored_database``, then commit the new file. Files of
earlier versions are never made again: they are what those versions really wrote.
"""

import asyncio
import sqlite3
import tempfile
from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory

from equipoise_evals.ports import EngineFault
from equipoise_service.settings import Settings
from equipoise_service.store.database import MIGRATIONS
from tests.integration.service.conftest import running_over
from tests.integration.service.fake import Call

DATABASES = Path(__file__).with_name("databases")


def revisions() -> list[str]:
    """Every schema version, oldest first."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()][::-1]


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
