"""What connections to PostgreSQL are given before they are used; needs the extra ``postgres``."""

from psycopg import Connection
from psycopg.types.string import StrDumper
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.pool import ConnectionPoolEntry

CONNECT_S = 5


class Text(StrDumper):
    """Text as SQLite takes it: PostgreSQL has no NUL, so one that comes in a request or an engine's words is replaced.

    JSON, and so everything that a verdict rests on, has none: there it is written as an escape.
    """

    def dump(self, obj: str) -> bytes:
        """Encode it."""
        return obj.replace("\0", "\N{REPLACEMENT CHARACTER}").encode()


def engine_of(url: URL, lock_timeout_s: float) -> Engine:
    """An engine whose connections are looked at before use, and whose statements wait for no lock for longer.

    Statements are not prepared on the server: another service may migrate the tables, or a pooler stand between.
    """
    settled = {"connect_timeout": CONNECT_S, "prepare_threshold": None, "application_name": "equipoise"}
    engine = create_engine(url, connect_args=settled, pool_pre_ping=True)

    def prepare(connection: Connection, entry: ConnectionPoolEntry) -> None:
        del entry
        connection.adapters.register_dumper(str, Text)
        cursor = connection.cursor()
        cursor.execute(f"SET lock_timeout = {round(lock_timeout_s * 1000)}")
        cursor.execute("SET timezone = 'UTC'")
        cursor.close()
        connection.commit()

    event.listen(engine, "connect", prepare)
    return engine
