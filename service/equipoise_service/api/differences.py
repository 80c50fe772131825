"""Two finished comparisons beside each other."""

from fastapi import APIRouter

from equipoise_service.api.dependencies import TheService, comparison_of
from equipoise_service.api.problems import document
from equipoise_service.difference import Difference, difference_of
from equipoise_service.report import build_report

router = APIRouter(tags=["reports"], responses=document(422))


@router.get("/comparisons/{first_id}/diff/{second_id}", responses=document(404, 409))
def read_difference(first_id: str, second_id: str, service: TheService) -> Difference:
    """Exactly what differs in set-up and in result (schema at ``/schemas/difference.json``).

    409 where they cannot be compared, with every reason.
    """
    first, second = (
        build_report(comparison_of(comparison_id, service), service.store.records)
        for comparison_id in (first_id, second_id)
    )
    return difference_of(first, second)
