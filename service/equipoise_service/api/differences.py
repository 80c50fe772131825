"""Two finished comparisons beside each other."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from equipoise_service.api.dependencies import TheService, comparison_of
from equipoise_service.api.html import page
from equipoise_service.api.problems import document
from equipoise_service.difference import Difference, difference_of
from equipoise_service.errors import NotComparable
from equipoise_service.report import build_report
from equipoise_service.service import Service

router = APIRouter(tags=["reports"], responses=document(422))


@router.get("/comparisons/{first_id}/diff/{second_id}", responses=document(404, 409))
def read_difference(first_id: str, second_id: str, service: TheService) -> Difference:
    """Exactly what differs in set-up and in result (schema at ``/schemas/difference.json``).

    409 where they cannot be compared, with every reason.
    """
    return _difference(first_id, second_id, service)


@router.get("/diff", include_in_schema=False)
def difference_page(
    request: Request,
    service: TheService,
    first: Annotated[str, Query(max_length=40)] = "",
    second: Annotated[str, Query(max_length=40)] = "",
) -> Response:
    """A page of the same, or of every reason for which there is none."""
    found: Difference | None = None
    reasons: tuple[str, ...] = ()
    if first and second:
        try:
            found = _difference(first.strip(), second.strip(), service)
        except NotComparable as refused:
            reasons = refused.reasons
    status = NotComparable.status if reasons else 200
    return page(request, "diff.html", status, first=first, second=second, found=found, reasons=reasons)


def _difference(first_id: str, second_id: str, service: Service) -> Difference:
    first, second = (
        build_report(comparison_of(comparison_id, service), service.store.records)
        for comparison_id in (first_id, second_id)
    )
    return difference_of(first, second)
