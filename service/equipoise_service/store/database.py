"""One database, opened by its URL and brought to the newest schema: readers in parallel, one writer at a time."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import alembic.command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry

from equipoise_service.errors import StorageUnavailable

BUSY_TIMEOUT_S = 2.0
"""How long a statement waits for another process's lock, and a writer for the other writers of this one. The worker
writes in the event loop, so this is also how long a locked database can hold everything else up."""
MIGRATIONS = Path(__file__).parent / "migrations"


class Database:
    """Connections for reading and for writing; every write is one transaction, and one at a time in this process."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after every commit of this process, in the thread that wrote."""
        self._listeners.append(listener)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection whose statements all see the same state of the database.

        Raises:
            StorageUnavailable: The database cannot be read now.
        """
        with _available(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A connection that has the write lock from its first statement; commits on leaving, rolls back on an error.

        Raises:
            StorageUnavailable: The database is locked, full or cannot be reached; nothing was written.
        """
        with _available(), self._alone(), self.engine.connect() as plain:
            connection = plain.execution_options(equipoise_writes=True)
            with connection.begin():
                yield connection
        for listener in self._listeners:
            listener()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._writer.acquire(timeout=BUSY_TIMEOUT_S):
            raise StorageUnavailable("other writes of this service wait for it")
        try:
            yield
        finally:
            self._writer.release()

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


@contextmanager
def _available() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        # The driver's own words: "database is locked", "database or disk is full", "disk I/O error", ...
        raise StorageUnavailable(str(error.orig)) from error
    except PoolTimeout as error:
        raise StorageUnavailable("all connections to it are busy") from error


def open_database(url: str, *, migrated: bool = True) -> Database:
    """Open the database, creating its folder and migrating it to the newest schema.

    Args:
        url: SQLAlchemy URL. A SQLite file gets WAL, foreign keys and a busy timeout.
        migrated: False leaves the schema as it is, for who only looks.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(parsed)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    database = Database(engine)
    if migrated:
        migrate(database)
    return database


def migrate(database: Database, revision: str = "head") -> None:
    """Bring the schema to ``revision``; a database that is already there is left alone."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    with database.write() as connection:
        config.attributes["connection"] = connection
        alembic.command.upgrade(config, revision)


def _prepare_sqlite(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
    del entry
    # The driver's own idea of when a transaction begins is switched off; _begin_sqlite says it.
    assert isinstance(connection, sqlite3.Connection)  # noqa: S101 - tells mypy which driver the listener is for
    connection.isolation_level = None
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",  # what was acknowledged survives a power cut, too
        "foreign_keys=ON",
        f"busy_timeout={round(BUSY_TIMEOUT_S * 1000)}",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # IMMEDIATE: a transaction that reads first and writes later would fail as "locked" without waiting.
    writes = connection.get_execution_options().get("equipoise_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
