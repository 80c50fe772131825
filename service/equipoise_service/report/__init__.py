"""Reports of a stored comparison, for people, spreadsheets and programs. Nothing is judged or measured here."""

from collections.abc import Callable, Mapping

from equipoise_service.report.details import Details, read_details
from equipoise_service.report.document import EngineFacts, Report, build_report, report_of
from equipoise_service.report.markdown import to_markdown
from equipoise_service.report.rendering import to_html
from equipoise_service.report.spreadsheet import to_csv
from equipoise_service.store import RecordParts, Stored

__all__ = [
    "FORMATS",
    "MEDIA_TYPES",
    "Details",
    "EngineFacts",
    "Report",
    "build_report",
    "read_details",
    "report_of",
    "report_text",
    "to_csv",
    "to_html",
    "to_json",
    "to_markdown",
]


def to_json(report: Report) -> str:
    """The whole report; the same report gives the same bytes."""
    return report.model_dump_json(indent=2) + "\n"


FORMATS: Mapping[str, Callable[[Report], str]] = {"json": to_json, "csv": to_csv, "md": to_markdown}
"""Formats that need the report alone, by the ending of its name."""

MEDIA_TYPES: Mapping[str, str] = {
    "json": "application/json", "csv": "text/csv", "md": "text/markdown", "html": "text/html",
}  # fmt: skip


def report_text(ending: str, stored: Stored, parts: RecordParts) -> str:
    """The report of a comparison in the format with this ending.

    Raises:
        NotFinished: It has no verdict.
    """
    report = build_report(stored, parts)
    if ending == "html":
        return to_html(report, read_details(stored.id, report.plan, parts))
    return FORMATS[ending](report)
