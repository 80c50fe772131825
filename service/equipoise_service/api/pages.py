"""Plain pages for people, rendered here: past comparisons, and one comparison with live progress.

``/`` and ``/comparisons/{id}/page``.
"""

import json
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from equipoise_service.api.comparisons import ListQuery
from equipoise_service.api.dependencies import TheComparison, TheService
from equipoise_service.api.html import page, templates
from equipoise_service.api.problems import document
from equipoise_service.api.views import ComparisonList, ComparisonView
from equipoise_service.errors import InvalidCursor
from equipoise_service.ids import is_id
from equipoise_service.report import Details, build_report, read_details
from equipoise_service.store import FINAL, ListFilter, Status

router = APIRouter(tags=["pages"], include_in_schema=False)
templates.env.globals.update(
    statuses=list(Status),
    verdicts=["ship", "neutral", "block", "inconclusive", "treatment_inactive", "invalid"],
)


@router.get("/", responses=document(422))
def past_comparisons(request: Request, query: Annotated[ListQuery, Query()], service: TheService) -> Response:
    """Past comparisons, newest first, with the filters and cursors of ``GET /comparisons``."""
    if query.cursor is not None and not is_id(query.cursor):
        raise InvalidCursor(query.cursor)
    chosen = ListFilter(query.model, query.verdict, query.status)
    listed = ComparisonList.of(service.store.comparisons.page(chosen, query.limit, query.cursor))
    return page(request, "list.html", page=listed, query=query)


@router.get("/comparisons/{comparison_id}/page", responses=document(404))
def one_comparison(request: Request, stored: TheComparison, service: TheService) -> Response:
    """One comparison: its verdict, its error, or how far it has come."""
    view = ComparisonView.of(stored, None)
    live = stored.status not in FINAL
    progress = service.store.events.latest(stored.id, "progress") if live else None
    # Beside engines that are being timed, blocks are not read.
    details = Details() if live else read_details(stored.id, view.plan, service.store.records)
    return page(
        request,
        "comparison.html",
        view=view,
        report=build_report(stored, service.store.records) if stored.verdict is not None else None,
        details=details,
        plan=view.plan,
        live=live,
        progress=json.loads(progress.payload) if progress else None,
    )
