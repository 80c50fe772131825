"""The numbers as CSV, one a line, for spreadsheets and plotting."""

import csv
import io

from equipoise_service.report.document import Report
from equipoise_service.report.tables import Row, rows

CONTEXT = ("comparison_id", "model", "verdict")


def to_csv(report: Report) -> str:
    """One line a number; comparison, model and verdict are repeated so that files can be put together."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")  # RFC 4180
    writer.writerow([*CONTEXT, *Row._fields])
    context = [report.comparison_id, plain(report.plan.model.name), report.verdict.overall.word]
    for row in rows(report.verdict):
        writer.writerow([*context, *(plain(cell) if isinstance(cell, str) else cell for cell in row)])
    return out.getvalue()


def plain(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
