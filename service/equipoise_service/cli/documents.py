"""Finding comparisons and their documents: in a file, at a service, or in this machine's database."""

import asyncio
import lzma
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy.engine import make_url

from equipoise_service.api.views import ComparisonList
from equipoise_service.cli.client import ApiClient
from equipoise_service.cli.exit_codes import CommandError, ExitCode
from equipoise_service.cli.options import read
from equipoise_service.difference import Difference, difference_of
from equipoise_service.errors import ComparisonNotFound
from equipoise_service.folder import prepare
from equipoise_service.ids import is_id
from equipoise_service.interchange import RecordsDocument, records_text
from equipoise_service.report import build_report, report_text
from equipoise_service.settings import Settings, shown_token
from equipoise_service.store import ListFilter, Store, Stored

RECORDS = "records"


def records_of(where: str, url: str | None) -> RecordsDocument:
    """The records of a comparison: of a file if there is one of this name, else by id. ``.xz`` files are unpacked."""
    file = Path(where)
    if file.exists():
        return _records_in(file)
    if not is_id(where):
        raise CommandError(
            f"{where!r} is neither a file nor the id of a comparison; `equipoise report` lists comparisons",
            ExitCode.USAGE,
        )
    if url is not None:
        return RecordsDocument.model_validate_json(_fetch(url, f"/comparisons/{where}/records"))
    store, stored = local(where)
    return RecordsDocument.model_validate_json("".join(records_text(stored, store.records)))


def _records_in(file: Path) -> RecordsDocument:
    content = read(file)
    try:
        return RecordsDocument.model_validate_json(lzma.decompress(content) if file.suffix == ".xz" else content)
    except (ValidationError, lzma.LZMAError, EOFError) as wrong:
        first = wrong.errors()[0] if isinstance(wrong, ValidationError) else None
        why = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}" if first else str(wrong)
        raise CommandError(
            f"{file} does not hold records as `equipoise report ID --format records` writes them: {why}", ExitCode.USAGE
        ) from wrong


def latest(url: str | None, limit: int) -> ComparisonList:
    """The newest comparisons of a service, or of this machine's database; none where there is no database yet."""
    if url is not None:
        return ComparisonList.model_validate_json(_fetch(url, f"/comparisons?limit={limit}"))
    settings = Settings.from_env()
    if _missing_file(settings) is not None:
        return ComparisonList(items=(), next_cursor=None)
    return ComparisonList.of(Store.open(settings.url_of_database).comparisons.page(ListFilter(), limit))


def report_of(comparison_id: str, ending: str, url: str | None) -> str:
    """The report of a comparison, by id; ``records`` is its raw records, which need no verdict."""
    if url is not None:
        name = RECORDS if ending == RECORDS else f"report.{ending}"
        return _fetch(url, f"/comparisons/{comparison_id}/{name}")
    store, stored = local(comparison_id)
    if ending == RECORDS:
        return "".join(records_text(stored, store.records))
    return report_text(ending, stored, store.records)


def difference_between(first: str, second: str, url: str | None) -> Difference:
    """What differs between two comparisons, by id."""
    if url is not None:
        return Difference.model_validate_json(_fetch(url, f"/comparisons/{first}/diff/{second}"))
    store = local_store()
    reports = [build_report(comparison_in(store, one), store.records) for one in (first, second)]
    return difference_of(*reports)


def _fetch(url: str, path: str) -> str:
    async def fetch() -> str:
        async with ApiClient(url, shown_token(Settings.from_env())) as client:
            return await client.text(path)

    return asyncio.run(fetch())


def local_store() -> Store:
    """This machine's database.

    Raises:
        CommandError: There is none yet; wrong use.
    """
    settings = Settings.from_env()
    _require_database(settings)
    return Store.open(settings.url_of_database)


def own_store() -> Store:
    """The database of the data folder, which is made where there is none."""
    settings = Settings.from_env()
    prepare(settings.data)
    return Store.open(settings.url_of_database)


def local(comparison_id: str) -> tuple[Store, Stored]:
    """A comparison in this machine's database."""
    _require_database(Settings.from_env(), f"there is no comparison {comparison_id!r}: ")
    store = local_store()
    return store, comparison_in(store, comparison_id)


def comparison_in(store: Store, comparison_id: str) -> Stored:
    """A comparison in a database that is open."""
    stored = store.comparisons.get(comparison_id)
    if stored is None:
        raise ComparisonNotFound(comparison_id)
    return stored


def sqlite_file() -> Path:
    """The file of this machine's SQLite database.

    Raises:
        CommandError: It is another database's, whose own tools make backups, or there is none yet; wrong use.
    """
    settings = Settings.from_env()
    parsed = make_url(settings.url_of_database)
    if parsed.get_backend_name() != "sqlite":
        name = parsed.get_backend_name()
        tools = " (pg_dump makes a copy while services work with it)" if name == "postgresql" else ""
        raise CommandError(f"the database is {name}'s; use that database's own tools for it{tools}", ExitCode.USAGE)
    _require_database(settings)
    return Path(str(parsed.database))


def _require_database(settings: Settings, so: str = "") -> None:
    """Raise unless there is one; ``so`` is what follows from that."""
    if (missing := _missing_file(settings)) is not None:
        raise CommandError(f"{so}there is no database at {missing} (EQUIPOISE_DATA names its folder)", ExitCode.USAGE)


def _missing_file(settings: Settings) -> Path | None:
    """The file of a SQLite database that does not exist; opening it would make an empty one."""
    parsed = make_url(settings.url_of_database)
    file = Path(str(parsed.database))
    return file if parsed.get_backend_name() == "sqlite" and not file.is_file() else None
