"""Reports of a finished comparison, one address each, which stays valid."""

from typing import Literal

from fastapi import APIRouter, Request, Response

from equipoise_service.api.dependencies import TheComparison, TheService
from equipoise_service.api.etags import UNCHANGED, tagged
from equipoise_service.api.problems import document
from equipoise_service.report import MEDIA_TYPES, report_text
from equipoise_service.report.rendering import content_policy

router = APIRouter(tags=["reports"], responses=document(422))


@router.get(
    "/comparisons/{comparison_id}/report.{ending}",
    response_class=Response,
    responses={**UNCHANGED, **document(404, 409)},
)
def read_report(
    stored: TheComparison, service: TheService, request: Request, ending: Literal["json", "csv", "md", "html"]
) -> Response:
    """The report as JSON (schema at ``/schemas/report.json``), CSV, Markdown, or HTML in one file."""
    text = report_text(ending, stored, service.store.records)
    response = tagged(request, stored, text.encode(), MEDIA_TYPES[ending])
    if ending == "html":
        response.headers["Content-Security-Policy"] = content_policy()
    return response
