"""Finding a comparison's documents: in a file, at a service, or in this machine's database."""

import asyncio
import lzma
from pathlib import Path

from sqlalchemy.engine import make_url

from equipoise_service.cli.client import ApiClient
from equipoise_service.cli.exit_codes import CommandError, ExitCode
from equipoise_service.errors import ComparisonNotFound
from equipoise_service.interchange import RecordsDocument, records_text
from equipoise_service.report import FORMATS, build_report
from equipoise_service.settings import Settings
from equipoise_service.store import Store, Stored

RECORDS = "records"


def records_of(where: str, url: str | None) -> RecordsDocument:
    """The records of a comparison: of a file if there is one of this name, else by id. ``.xz`` files are unpacked."""
    file = Path(where)
    if file.is_file():
        content = file.read_bytes()
        return RecordsDocument.model_validate_json(lzma.decompress(content) if file.suffix == ".xz" else content)
    if url is not None:
        return RecordsDocument.model_validate_json(_fetch(url, f"/comparisons/{where}/records"))
    store, stored = _local(where)
    return RecordsDocument.model_validate_json("".join(records_text(stored, store.records)))


def report_of(comparison_id: str, ending: str, url: str | None) -> str:
    """The report of a comparison, by id; ``records`` is its raw records, which need no verdict."""
    if url is not None:
        name = RECORDS if ending == RECORDS else f"report.{ending}"
        return _fetch(url, f"/comparisons/{comparison_id}/{name}")
    store, stored = _local(comparison_id)
    if ending == RECORDS:
        return "".join(records_text(stored, store.records))
    return FORMATS[ending](build_report(stored, store.records))


def _fetch(url: str, path: str) -> str:
    async def fetch() -> str:
        async with ApiClient(url.rstrip("/")) as client:
            return await client.text(path)

    return asyncio.run(fetch())


def _local(comparison_id: str) -> tuple[Store, Stored]:
    settings = Settings.from_env()
    parsed = make_url(settings.url_of_database)
    if parsed.get_backend_name() == "sqlite" and not Path(str(parsed.database)).is_file():
        raise CommandError(
            f"{comparison_id!r} is no file, and there is no database at {parsed.database}", ExitCode.USAGE
        )
    store = Store.open(settings.url_of_database)
    stored = store.comparisons.get(comparison_id)
    if stored is None:
        raise ComparisonNotFound(comparison_id)
    return store, stored
