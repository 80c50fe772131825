"""One database, opened by its URL and brought to the newest schema.

SQLite has one writer at a time, over all processes. PostgreSQL has one in each process, and writes of several processes
meet at the comparison that they are about: whatever adds to one or moves it locks its row first.
"""

import logging
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
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry

from equipoise_service.errors import StorageUnavailable

log = logging.getLogger(__name__)

BUSY_TIMEOUT_S = 2.0
"""How long a statement waits for another process's lock, and a writer for the other writers of this one. The worker
writes in the event loop, so this is also how long a locked database can hold everything else up."""
CONNECTIONS = 24
"""To a SQLite file, kept open, since to open one costs more than to read a list; as many again may be opened for a
moment, so that none of the forty threads of the web server waits for one."""
MIGRATION_S = 600
"""How long a process waits on PostgreSQL for another one that migrates the database."""
MIGRATION_LOCK = 0x6571_7569_706F_6973
"""An advisory lock's number, "equipois" in ASCII: whoever else uses the same PostgreSQL database has another."""
READ_ONLY = "25006"
"""PostgreSQL's code for a write that a standby refuses."""
MIGRATIONS = Path(__file__).parent / "migrations"


class Database:
    """Connections for reading and for writing; every write is one transaction, and one at a time in this process."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    @property
    def shared(self) -> bool:
        """Whether services on other machines may work with it too, whose writes nobody here is told of."""
        return self.engine.dialect.name != "sqlite"

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after every commit of this process, in the thread that wrote."""
        self._listeners.append(listener)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection whose statements all see the same state of the database.

        Raises:
            StorageUnavailable: The database cannot be read now.
        """
        with _available(), self.engine.connect() as plain:
            yield plain.execution_options(isolation_level="REPEATABLE READ") if self.shared else plain

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A connection for one transaction; commits on leaving, rolls back on an error.

        On SQLite it has the write lock from its first statement.

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
        raise StorageUnavailable(_words(error)) from error
    except DBAPIError as error:
        # A connection that broke, or a server that became another one's standby, is not a defect of ours.
        if error.connection_invalidated or getattr(error.orig, "sqlstate", None) == READ_ONLY:
            raise StorageUnavailable(_words(error)) from error
        raise
    except PoolTimeout as error:
        raise StorageUnavailable("all connections to it are busy") from error


def _words(error: DBAPIError) -> str:
    """The driver's own: "database is locked", "database or disk is full", "canceling statement due to lock timeout"."""
    if not isinstance(error.orig, sqlite3.Error) and getattr(error.orig, "sqlstate", None) is None:
        # Nothing that a server said. The driver names host and user, which are the operator's to know.
        log.warning("the database cannot be reached: %s", " ".join(str(error.orig).split()))
        return "it cannot be reached"
    return str(error.orig).splitlines()[0]


def open_database(url: str, *, migrated: bool = True) -> Database:
    """Open the database, creating its folder and migrating it to the newest schema.

    Args:
        url: SQLAlchemy URL. A SQLite file gets WAL, foreign keys and a busy timeout, PostgreSQL the same timeout.
        migrated: False leaves the schema as it is, for who only looks.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    if parsed.get_backend_name() == "sqlite":
        engine = create_engine(parsed, pool_size=CONNECTIONS, max_overflow=CONNECTIONS)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        from equipoise_service.store.postgresql import engine_of  # noqa: PLC0415 - its driver is an extra

        engine = engine_of(parsed, BUSY_TIMEOUT_S)
    database = Database(engine)
    if migrated:
        migrate(database)
    return database


def migrate(database: Database, revision: str = "head") -> None:
    """Bring the schema to ``revision``; a database that is already there is left alone."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    with database.write() as connection:
        if database.shared:  # of services that start together, one migrates and the others find it done
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{MIGRATION_S}s'")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
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
