"""PostgreSQL for tests: a private cluster that lasts as long as one command, and a database of its own for each path.

``python -m tests.support.postgres COMMAND…`` starts the cluster, runs the command with ``TEST_POSTGRES_URL`` set, and
ends with its exit code; with 1 where the command made no database, since then nothing ran over PostgreSQL. The cluster
lies in a temporary folder and listens on a free port of 127.0.0.1 only.
"""

import hashlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy.engine import URL, make_url

from equipoise_service.server import bind
from equipoise_service.store.database import open_database

VARIABLE = "TEST_POSTGRES_URL"
"""Not EQUIPOISE_…: settings refuse names with that prefix which are none of theirs."""
OWNER = "postgres"
"""Whom the server runs as where a test is root's: initdb and postgres refuse root. Debian's package makes this user."""
ADMIN_DATABASE = "postgres"
TEMPLATE = "template_head"
OURS = "t" + 24 * "[0-9a-f]"
"""Names of tests' databases, as a pattern of SIMILAR TO."""
START_S = 60
# Nothing here has to survive the machine; commits otherwise wait for the disk.
OPTIONS = {
    "fsync": "off", "full_page_writes": "off", "max_connections": "200", "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
}  # fmt: skip


class NoServer(Exception):
    """There is no PostgreSQL on this machine, or it did not start."""


def programs() -> Path:
    """The folder of initdb and postgres, the newest version's; Debian puts them beside no other program."""
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    if not folders:
        raise NoServer("PostgreSQL is missing; get it with: sudo apt-get install postgresql")
    return folders[-1]


@contextmanager
def cluster() -> Iterator[str]:
    """A server for the context; yields the URL of its administrator."""
    root = os.geteuid() == 0
    user = pwd.getpwnam(OWNER) if root else pwd.getpwuid(os.geteuid())
    as_owner = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"] if root else []
    with tempfile.TemporaryDirectory(prefix="equipoise-postgres-", ignore_cleanup_errors=True) as folder:
        home, password = Path(folder), secrets.token_urlsafe(16)
        (home / "password").write_text(password)
        for path in (home, home / "password"):
            os.chown(path, user.pw_uid, user.pw_gid)
        made = subprocess.run(
            [*as_owner, programs() / "initdb", "--pgdata", home / "data", "--username=equipoise", "--no-sync",
             "--auth=scram-sha-256", f"--pwfile={home / 'password'}", "--encoding=UTF8", "--locale=C.UTF-8",
             "--locale-provider=icu", "--icu-locale=en-US"],
            cwd=home, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode != 0:
            raise NoServer(made.stderr)
        with bind("127.0.0.1", 0).socket as free:
            port = free.getsockname()[1]
        options = [option for name, value in OPTIONS.items() for option in ("-c", f"{name}={value}")]
        with (home / "log").open("wb") as log:
            server = subprocess.Popen(
                [*as_owner, programs() / "postgres", "-D", home / "data", "-p", str(port), *options],
                cwd=home, stdout=log, stderr=log,
            )  # fmt: skip
        url = URL.create("postgresql+psycopg", "equipoise", password, "127.0.0.1", port, ADMIN_DATABASE)
        try:
            _answering(url, server, home / "log")
            yield url.render_as_string(hide_password=False)
        finally:
            server.send_signal(signal.SIGINT)  # ends sessions and the server, in good order
            server.wait(START_S)


def _answering(url: URL, server: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        with suppress(psycopg.OperationalError), _administrator(url):
            return
        time.sleep(0.05)
    raise NoServer(log.read_text())


def _administrator(url: URL) -> "psycopg.Connection[tuple[object, ...]]":
    plain = url.set(drivername="postgresql", database=ADMIN_DATABASE)
    return psycopg.connect(plain.render_as_string(hide_password=False), autocommit=True)


def database_for(path: Path | str, *, migrated: bool = True) -> str:
    """The URL of the database that stands for the SQLite file of this path; it is made when first asked for.

    ``migrated`` makes it with the newest tables, which spares every test the migrations; otherwise it is empty.
    """
    server = make_url(os.environ[VARIABLE])
    name = f"t{hashlib.sha256(str(Path(path).absolute()).encode()).hexdigest()[:24]}"
    with (
        _administrator(server) as connection,
        suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation),
    ):
        template = sql.Identifier(TEMPLATE if migrated else "template1")
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), template))
    return server.set(database=name).render_as_string(hide_password=False)


def variables_for(data: Path) -> dict[str, str]:
    """What a process over this data folder is told; nothing where tests run on SQLite."""
    return {"EQUIPOISE_DATABASE_URL": database_for(data / "equipoise.db")} if VARIABLE in os.environ else {}


def drop(url: str) -> None:
    """Remove a database, whoever is still connected."""
    parsed = make_url(url)
    with _administrator(parsed) as connection:
        connection.execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(parsed.database or ""))
        )


def _make_template(server: URL) -> None:
    with _administrator(server) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
    open_database(server.set(database=TEMPLATE).render_as_string(hide_password=False)).close()


def _made(server: URL) -> int:
    """How many databases of tests are there; few tests remove theirs."""
    with _administrator(server) as connection:
        found = connection.execute("SELECT count(*) FROM pg_database WHERE datname SIMILAR TO %s", [OURS]).fetchone()
    return int(str(found[0])) if found else 0


def main(command: Sequence[str]) -> int:
    """Run a command beside a server of its own."""
    try:
        with cluster() as url:
            _make_template(make_url(url))
            code = subprocess.run(command, env={**os.environ, VARIABLE: url}, check=False).returncode
            made = _made(make_url(url))
            print(f"databases made on PostgreSQL: {made}", flush=True)
            return code if made else code or 1
    except NoServer as missing:
        print(missing, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
