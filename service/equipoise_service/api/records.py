"""Raw records, for anyone who wants to judge again, and the schemas of everything that is published."""

from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from equipoise_service.api.dependencies import TheComparison, TheService
from equipoise_service.api.etags import UNCHANGED, has_it, tag_headers
from equipoise_service.api.problems import document
from equipoise_service.interchange import RecordsDocument, records_text
from equipoise_service.schemas import schema_of
from equipoise_service.store import FINAL

router = APIRouter(tags=["records"], responses=document(422))


@router.get(
    "/comparisons/{comparison_id}/records",
    response_class=StreamingResponse,
    responses={
        200: {"model": RecordsDocument, "description": "See /schemas/records.json"},
        **UNCHANGED,
        **document(404),
    },
)
def read_records(stored: TheComparison, service: TheService, request: Request) -> Response:
    """The plan, every record so far in the order observed, and the verdict if there is one."""
    headers = {"Content-Disposition": f'inline; filename="equipoise-{stored.id}-records.json"'}
    if stored.status in FINAL:
        # Kept byte for byte, and added to only by a comparison that is resumed and then ends anew.
        ended = str(stored.finished_at).encode()
        headers |= tag_headers(stored.id.encode(), ended, stored.plan.encode(), (stored.verdict or "").encode())
        if has_it(request, headers["ETag"]):
            return Response(status_code=304, headers=headers)
    return StreamingResponse(
        records_text(stored, service.store.records), media_type="application/json", headers=headers
    )


@router.get("/schemas/{name}.json", responses=document(404))
def read_schema(name: Literal["records", "plan", "verdict", "report", "difference"]) -> dict[str, Any]:
    """JSON Schema of a published document."""
    return schema_of(name)
