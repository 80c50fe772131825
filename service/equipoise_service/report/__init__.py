"""Reports of a stored comparison, for people, spreadsheets and programs. Nothing is judged or measured here."""

from collections.abc import Callable, Mapping

from equipoise_service.report.document import EngineFacts, Report, build_report
from equipoise_service.report.markdown import to_markdown
from equipoise_service.report.spreadsheet import to_csv

__all__ = ["FORMATS", "MEDIA_TYPES", "EngineFacts", "Report", "build_report", "to_csv", "to_json", "to_markdown"]


def to_json(report: Report) -> str:
    """The whole report; the same report gives the same bytes."""
    return report.model_dump_json(indent=2) + "\n"


FORMATS: Mapping[str, Callable[[Report], str]] = {"json": to_json, "csv": to_csv, "md": to_markdown}
"""By the ending of the report's name."""

MEDIA_TYPES: Mapping[str, str] = {"json": "application/json", "csv": "text/csv", "md": "text/markdown"}
