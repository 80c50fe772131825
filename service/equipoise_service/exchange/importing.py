"""Imports: comparisons out of an export, with their ids; all of an export, or nothing of it."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from equipoise_evals.judge import canonical_json, judge
from equipoise_evals.model import Verdict
from equipoise_service.exchange.archive import COMPARISONS, ExportRefused, opened_export
from equipoise_service.exchange.contents import EVENTS, FACTS, LOGS, ONE_EVENT, RECORDS, Facts, facts_of
from equipoise_service.ids import is_id
from equipoise_service.interchange import RecordsDocument, RecordTexts, texts_of
from equipoise_service.requests import CompareRequest
from equipoise_service.store import FINAL, Event, Store, Stored
from equipoise_service.store.arrival import Arriving, insert_arriving


class Imported(NamedTuple):
    """Ids that an import brought, and those that were there already, unchanged."""

    new: tuple[str, ...]
    known: tuple[str, ...]


def import_export(source: Path, store: Store, engines: Path, *, check: bool = False) -> Imported:
    """Store every comparison of an export that is not there yet, with its records, events and logs.

    Args:
        source: A folder or an archive.
        store: The database.
        engines: Folder of engine logs; a comparison's go into a folder below it.
        check: Also refuse verdicts that this version does not derive from the records, byte for byte.

    Raises:
        ExportRefused: A digest differs, a file is not what an export holds, or there is another comparison of the same
            id here; nothing was imported.
    """
    with opened_export(source) as (root, manifest):
        arriving = [_read(root / COMPARISONS / name, check=check) for name in manifest.comparisons]
        new = [one for one in arriving if not _is_here(one, store)]
        with _copied_logs(root, new, engines) as copies, store.database.write() as connection:
            for one in new:
                insert_arriving(connection, one)
            for copy in copies:
                copy.rename(engines / copy.name)
    ids = {one.stored.id for one in new}
    return Imported(tuple(sorted(ids)), tuple(one.stored.id for one in arriving if one.stored.id not in ids))


@contextmanager
def _copied_logs(root: Path, new: Iterable[Arriving], engines: Path) -> Iterator[list[Path]]:
    """Whole copies of the logs that are not there yet, beside their places; copying holds up no write of a service."""
    ids = [one.stored.id for one in new]
    missing = [one for one in ids if (root / COMPARISONS / one / LOGS).is_dir() and not (engines / one).exists()]
    if not missing:
        yield []
        return
    engines.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".import-", dir=engines) as work:
        for one in missing:
            shutil.copytree(root / COMPARISONS / one / LOGS, Path(work, one))
        yield [Path(work, one) for one in missing]


def _read(folder: Path, *, check: bool) -> Arriving:
    try:
        facts = Facts.model_validate_json((folder / FACTS).read_bytes())
        text = (folder / RECORDS).read_text(encoding="utf-8")
        texts = texts_of(text)
        document = RecordsDocument.model_validate_json(text)
        CompareRequest.model_validate_json(facts.request)
        with (folder / EVENTS).open(encoding="utf-8") as lines:
            events = [Event(**ONE_EVENT.validate_json(line).model_dump()) for line in lines]
    except (OSError, ValueError) as wrong:  # pydantic's and json's errors are ValueErrors
        raise ExportRefused(f"{folder.name}: {_sentence(wrong)}") from wrong
    fault = _fault(folder.name, facts, texts, document)
    if check and fault is None:
        fault = _underived(document)
    if fault is not None:
        raise ExportRefused(f"{folder.name}: {fault}")
    return Arriving(_stored(facts, texts, document.verdict), texts.records, events)


def _fault(name: str, facts: Facts, texts: RecordTexts, document: RecordsDocument) -> str | None:
    """What makes the files no ended comparison of this name, if anything does."""
    if not (is_id(name) and name == facts.id == texts.comparison_id):
        return f"it calls itself {facts.id}, and its records those of {texts.comparison_id}"
    if facts.status not in FINAL:
        return f"it is {facts.status}, and only what has ended is exported"
    if (document.verdict is None) == (facts.status == "succeeded"):
        return f"it is {facts.status} and has {'no' if document.verdict is None else 'a'} verdict"
    return None


def _underived(document: RecordsDocument) -> str | None:
    if document.verdict is None:
        return None
    derived = canonical_json(judge(document.observed, document.plan)) == canonical_json(document.verdict)
    return None if derived else "its verdict does not follow from its records under this version"


def _stored(facts: Facts, texts: RecordTexts, verdict: Verdict | None) -> Stored:
    return Stored(
        **{name: getattr(facts, name) for name in Facts.model_fields},
        plan=texts.plan,
        verdict=texts.verdict,
        verdict_word=None if verdict is None else verdict.overall.word,
        claim=0,  # no worker of this database has ever begun it
        heartbeat_at=None,
        deadline_at=None,
        cancel_requested_at=None,
    )


def _is_here(arriving: Arriving, store: Store) -> bool:
    """Whether the same comparison is here already.

    Raises:
        ExportRefused: One of this id is here, and it is another.
    """
    here = store.comparisons.get(arriving.stored.id)
    if here is None:
        return False
    theirs = _digest([facts_of(arriving.stored).text(), *_parts(arriving)])
    ours = _digest([facts_of(here).text(), here.plan, here.verdict or "", *_payloads(store, here.id)])
    if theirs != ours:
        raise ExportRefused(f"{here.id} is here already, and it differs from the one in the export")
    return True


def _parts(arriving: Arriving) -> Iterable[str]:
    yield arriving.stored.plan
    yield arriving.stored.verdict or ""
    yield from (text for _, text in arriving.records)


def _payloads(store: Store, comparison_id: str) -> Iterable[str]:
    return (part.payload for part in store.records.parts(comparison_id))


def _digest(texts: Iterable[str]) -> bytes:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode())
        digest.update(b"\0")
    return digest.digest()


def _sentence(wrong: Exception) -> str:
    if isinstance(wrong, ValidationError):
        first = wrong.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'a file'}: {first['msg']}"
    return str(wrong)
