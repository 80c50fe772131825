"""Reports of a finished comparison, one address each, which stays valid."""

from typing import Literal

from fastapi import APIRouter, Response

from equipoise_service.api.dependencies import TheComparison, TheService
from equipoise_service.api.problems import document
from equipoise_service.report import MEDIA_TYPES, report_text
from equipoise_service.report.rendering import content_policy

router = APIRouter(tags=["reports"], responses=document(422))


@router.get("/comparisons/{comparison_id}/report.{ending}", response_class=Response, responses=document(404, 409))
def read_report(stored: TheComparison, service: TheService, ending: Literal["json", "csv", "md", "html"]) -> Response:
    """The report as JSON (schema at ``/schemas/report.json``), CSV, Markdown, or HTML in one file."""
    headers = {"Content-Security-Policy": content_policy()} if ending == "html" else None
    return Response(report_text(ending, stored, service.store.records), media_type=MEDIA_TYPES[ending], headers=headers)
