"""Plain pages for people, rendered here: past comparisons, and one comparison with live progress.

``/`` and ``/comparisons/{id}/page``.
"""

import json
from typing import Annotated, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from markupsafe import Markup

from equipoise_service.api.dependencies import TheComparison, TheService
from equipoise_service.api.halves import UNITS, Half, shown
from equipoise_service.api.html import page, templates
from equipoise_service.api.listing import ListQuery, VerdictWord, list_of
from equipoise_service.api.logs import kept_logs
from equipoise_service.api.problems import document
from equipoise_service.api.running import running_of
from equipoise_service.api.views import ComparisonSummary, ComparisonView
from equipoise_service.charts import sparkline
from equipoise_service.report import Details, read_details, report_of
from equipoise_service.store import FINAL, UNJUDGED, Sort, Status

router = APIRouter(tags=["pages"], include_in_schema=False)


@router.get("/", responses=document(422))
def past_comparisons(request: Request, query: Annotated[ListQuery, Query()], service: TheService) -> Response:
    """Past comparisons with the filters, orders and cursors of ``GET /comparisons``."""
    listed = list_of(query, service)
    given = query.model_dump(mode="json", exclude_defaults=True) | {"cursor": listed.next_cursor}
    facets = service.store.comparisons.facets()
    return page(request, "list.html", page=listed, query=query, facets=facets, next_query=urlencode(given))


@router.get("/comparisons/{comparison_id}/page", responses=document(404))
def one_comparison(request: Request, stored: TheComparison, service: TheService) -> Response:
    """One comparison: its verdict, its error, or how far it has come."""
    view = ComparisonView.of(stored, None)
    live = stored.status not in FINAL
    progress = service.store.events.latest(stored.id, "progress") if live else None
    looks = service.store.events.of_kind(stored.id, "look") if live else []
    # Beside engines that are being timed, blocks are not read.
    details = Details() if live else read_details(stored.id, view.plan, service.store.records)
    return page(
        request,
        "comparison.html",
        view=view,
        report=report_of(stored, view.plan, view.verdict, service.store.records) if view.verdict is not None else None,
        details=details,
        plan=view.plan,
        logs=kept_logs(service.settings, stored.id),
        live=live,
        progress=json.loads(progress.payload) if progress else None,
        running=running_of([json.loads(look.payload) for look in looks], view.plan) if looks else None,
    )


# A coroutine, as the route for programs is: see there.
@router.post("/comparisons/{comparison_id}/page/cancel", responses=document(404, 409))
async def cancel_from_page(comparison_id: str, service: TheService) -> Response:
    """Cancel a comparison and show its page again."""
    await service.cancel(comparison_id)
    return RedirectResponse(f"/comparisons/{comparison_id}/page", 303)


def spark(item: ComparisonSummary, half: Half) -> Markup:
    """The interval of one half for a cell; nothing where that half was not measured."""
    one = shown(half, item.intervals[half]) if half in item.intervals else None
    if one is None:
        return Markup("")
    judged = item.verdict not in UNJUDGED
    return sparkline(f"{half}-{item.id}", one.effect, one.interval, one.bounds, UNITS[half][1], judged=judged)


templates.env.globals.update(
    spark=spark, sorts=get_args(Sort), statuses=[status.value for status in Status], verdicts=get_args(VerdictWord)
)
