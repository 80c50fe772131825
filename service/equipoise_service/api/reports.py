"""Reports of a finished comparison, one address each, which stays valid."""

from typing import Literal

from fastapi import APIRouter, Request, Response

from equipoise_service.api.dependencies import TheComparison, TheService
from equipoise_service.api.etags import UNCHANGED, tagged
from equipoise_service.api.problems import document
from equipoise_service.report import FORMATS, MEDIA_TYPES, build_report

router = APIRouter(tags=["reports"], responses=document(422))


@router.get(
    "/comparisons/{comparison_id}/report.{ending}",
    response_class=Response,
    responses={**UNCHANGED, **document(404, 409)},
)
def read_report(
    stored: TheComparison, service: TheService, request: Request, ending: Literal["json", "csv", "md"]
) -> Response:
    """The report as JSON (schema at ``/schemas/report.json``), CSV or Markdown."""
    report = build_report(stored, service.store.records)
    return tagged(request, stored, FORMATS[ending](report).encode(), MEDIA_TYPES[ending])
