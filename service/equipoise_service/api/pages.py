"""Plain pages for people, rendered here: past comparisons, and one comparison with live progress.

``/`` and ``/comparisons/{id}/page``.
"""

import json
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from equipoise_evals.model import ROLE_NAMES
from equipoise_service.api.comparisons import ListQuery
from equipoise_service.api.dependencies import TheComparison, TheService
from equipoise_service.api.html import page, templates
from equipoise_service.api.problems import document
from equipoise_service.api.views import ComparisonList, ComparisonView, verdict_of
from equipoise_service.errors import InvalidCursor
from equipoise_service.ids import is_id
from equipoise_service.report import build_report
from equipoise_service.report.markdown import interval_text
from equipoise_service.report.markdown_outputs import PAIRS, PARTED, PASSES, pair_cells, parted_cells, pass_cells
from equipoise_service.report.tables import CLOCKS, contrasts, pdl_sentence, treatment_counts, word_of
from equipoise_service.store import FINAL, ListFilter, Status

router = APIRouter(tags=["pages"], include_in_schema=False)
templates.env.globals.update(
    contrasts=contrasts,
    interval_text=interval_text,
    clocks=CLOCKS,
    role_names=ROLE_NAMES,
    pdl_sentence=pdl_sentence,
    treatment_counts=treatment_counts,
    word_of=word_of,
    passes_header=PASSES,
    pass_cells=pass_cells,
    pairs_header=PAIRS,
    pair_cells=pair_cells,
    parted_header=PARTED,
    parted_cells=parted_cells,
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
    progress = service.store.events.latest(stored.id, "progress")
    report = build_report(stored, service.store.records) if stored.verdict is not None else None
    view = ComparisonView.of(stored, None)
    return page(
        request,
        "comparison.html",
        view=view,
        verdict=verdict_of(stored),
        warnings=report.warnings if report else (),
        outputs=report.outputs if report else None,
        live=stored.status not in FINAL,
        progress=json.loads(progress.payload) if progress else None,
    )
