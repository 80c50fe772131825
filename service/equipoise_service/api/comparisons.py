"""Submitting, listing, reading, cancelling and resuming comparisons."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from equipoise_evals.model import Frozen
from equipoise_service.api.dependencies import TheComparison, TheService, TheSubmitter, comparison_of
from equipoise_service.api.etags import UNCHANGED, tagged
from equipoise_service.api.listing import ListQuery, list_of
from equipoise_service.api.problems import document
from equipoise_service.api.views import ComparisonList, ComparisonView, ProgressView
from equipoise_service.errors import (
    EmptyIdempotencyKey,
    FieldError,
    IdempotencyConflict,
    NotResumable,
    QueueFull,
    RequestInvalid,
)
from equipoise_service.estimate import DryRun, estimate
from equipoise_service.ids import new_id
from equipoise_service.requests import CompareRequest
from equipoise_service.service import Service
from equipoise_service.store import FINAL, InvalidTransition, NewComparison, Stored

router = APIRouter(tags=["comparisons"], responses=document(422))
LONGEST_KEY = 255


class SubmitQuery(Frozen):
    """The query of a submission."""

    reuse: bool = Field(default=False, description="Take a comparison of the same request that has not ended.")
    dry_run: bool = Field(default=False, description="Only plan, and say what it would cost.")


@router.post(
    "/compare",
    status_code=202,
    response_model=ComparisonView,
    responses={
        200: {"model": DryRun, "description": "With dry_run: nothing was queued"},
        **document(400, 408, 409, 413, 503),
    },
)
def submit(
    body: CompareRequest,
    service: TheService,
    response: Response,
    query: Annotated[SubmitQuery, Query()],
    *,
    submitter: TheSubmitter,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> ComparisonView | Response:
    """Accept a comparison, or say why it cannot be run, before any engine starts.

    With an ``Idempotency-Key``, the same body sent again gets the comparison that it got the first time. With
    ``reuse``, a request that is queued or running already, whoever sent it, gets that comparison; no key may be sent
    with it, since that comparison keeps the key that it came with. With ``dry_run`` the answer is the plan and its
    estimated device time, and nothing is queued.
    """
    if query.dry_run:
        plan = service.resolve(body)
        dry = DryRun(plan=plan, estimate=estimate(plan, service.machine.device, service.store))
        return JSONResponse(dry.model_dump(mode="json"))
    if idempotency_key is not None and not 1 <= len(idempotency_key) <= LONGEST_KEY:
        raise EmptyIdempotencyKey
    if idempotency_key is not None and query.reuse:
        raise RequestInvalid(
            [FieldError("query/reuse", "cannot be combined with an Idempotency-Key; send one of them")]
        )
    stored = _seen_before(service, body, idempotency_key)
    stored = stored or accept(service, body, idempotency_key, reuse=query.reuse, submitter=submitter)
    response.headers["Location"] = f"/comparisons/{stored.id}"
    return _view(service, stored)


@router.get("/comparisons", response_model=ComparisonList)
def list_comparisons(query: Annotated[ListQuery, Query()], service: TheService) -> Response:
    """Comparisons in pages, newest first unless asked otherwise."""
    # Written by the model itself: FastAPI would check and copy every value of it once more.
    return Response(list_of(query, service).model_dump_json(), media_type="application/json")


@router.get("/comparisons/{comparison_id}", response_model=ComparisonView, responses={**UNCHANGED, **document(404)})
def read_comparison(stored: TheComparison, service: TheService, request: Request) -> Response:
    """One comparison: request, plan, progress, and verdict or error. Once it has ended it has an ``ETag``."""
    body = _view(service, stored).model_dump_json().encode()
    return tagged(request, stored, body, "application/json")


# A coroutine: it must run in the event loop of the worker, so that a queued comparison cannot start in between.
@router.post("/comparisons/{comparison_id}/cancel", status_code=202, responses=document(404, 408, 409, 413))
async def cancel(comparison_id: str, service: TheService) -> ComparisonView:
    """Cancel a comparison. One that runs is ``cancelled`` as soon as its engines are gone; its records are kept."""
    await service.cancel(comparison_id)
    return _view(service, comparison_of(comparison_id, service))


@router.post("/comparisons/{comparison_id}/resume", status_code=202, responses=document(404, 408, 409, 413))
async def resume(comparison_id: str, service: TheService) -> ComparisonView:
    """Queue a comparison again that ended without a verdict.

    Complete launch pairs are kept. The pair that was cut short is launched and timed again; questions that it had
    answered are not asked again. Refused where an engine failed its attestation or its guard: its answers are suspect.
    """
    stored = comparison_of(comparison_id, service)
    if stored.error is not None and stored.error.stage == "attest":
        raise NotResumable(stored.id, stored.status, stored.error.reason)
    try:
        with service.accepting:
            require_place(service)
            service.store.comparisons.resume(stored.id)
    except InvalidTransition as refused:
        raise NotResumable(stored.id, refused.current) from refused
    return _view(service, comparison_of(stored.id, service))


def _seen_before(service: Service, body: CompareRequest, key: str | None) -> Stored | None:
    stored = service.store.comparisons.by_key(key) if key is not None else None
    return None if stored is None else _same_body(stored, body, str(key))


def accept(
    service: Service, body: CompareRequest, key: str | None = None, *, reuse: bool = False, submitter: str = ""
) -> Stored:
    """Queue a comparison, or raise the ``Refusal`` that says why it cannot be run.

    With ``reuse``, one of the same request that has not ended is taken instead; of two that come at once, one is
    queued.
    """
    twins = service.store.comparisons.unfinished_twin
    if reuse and (twin := twins(body.sha256)) is not None:
        return twin  # before anything is resolved: a model might be fetched for it
    plan = service.resolve(body)
    new = NewComparison(
        id=new_id(),
        model=body.model,
        request=body.model_dump_json(),
        request_sha256=body.sha256,
        plan=plan.model_dump_json(),
        idempotency_key=key,
        priority=body.priority,
        submitter=submitter,
    )
    with service.accepting:
        if reuse and (twin := twins(body.sha256)) is not None:
            return twin  # also where the queue is full
        require_place(service)
        stored, added = service.store.comparisons.add(new, reuse=reuse)
    return stored if added else _same_body(stored, body, str(key))


def require_place(service: Service) -> None:
    """Raise ``QueueFull`` unless one more comparison may wait. Hold ``service.accepting`` until it does."""
    if service.store.comparisons.queued() >= service.settings.queue_max:
        raise QueueFull(service.settings.queue_max)


def _same_body(stored: Stored, body: CompareRequest, key: str) -> Stored:
    if stored.request_sha256 != body.sha256:
        raise IdempotencyConflict(key, stored.id)
    return stored


def _view(service: Service, stored: Stored) -> ComparisonView:
    event = None if stored.status in FINAL else service.store.events.latest(stored.id, "progress")
    progress = None if event is None else ProgressView.model_validate_json(event.payload)
    return ComparisonView.of(stored, progress)
