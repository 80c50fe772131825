"""The form that submits a comparison: first its plan and what it would cost, then the order."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from equipoise_service.api.comparisons import accept
from equipoise_service.api.dependencies import TheService, TheSubmitter
from equipoise_service.api.html import page
from equipoise_service.api.problems import field_errors
from equipoise_service.errors import FieldError, Refusal
from equipoise_service.estimate import estimate
from equipoise_service.requests import CompareRequest

router = APIRouter(tags=["pages"], include_in_schema=False)

LISTS = ("parts", "batch_sizes")
ARMS = ("baseline", "candidate")


@router.get("/new")
def empty_form(request: Request) -> Response:
    """The form with DESIGN's defaults."""
    return page(request, "new.html", form=_shown(CompareRequest(model="embedded")), errors=(), plan=None, expected=None)


@router.post("/new")
async def plan_or_submit(request: Request, service: TheService, submitter: TheSubmitter) -> Response:
    """Show the plan of the form, or submit it: ``do`` says which."""
    sent = parse_qsl((await request.body()).decode(errors="replace"), keep_blank_values=True)
    fields = fields_of(sent)
    form = {name: value for name, value in sent if name not in LISTS} | {
        name: ", ".join(map(str, fields.get(name, ()))) for name in LISTS
    }
    try:
        body = CompareRequest.model_validate(fields)
        if ("do", "submit") in sent:
            stored = await run_in_threadpool(accept, service, body, submitter=submitter)
            return RedirectResponse(f"/comparisons/{stored.id}/page", 303)
        plan = await run_in_threadpool(service.resolve, body)
    except ValidationError as invalid:
        return _refused(request, form, field_errors(invalid.errors()), 422)
    except Refusal as refused:
        return _refused(
            request, form, refused.fields or [FieldError("", refused.detail)], refused.status, refused.headers
        )
    expected = await run_in_threadpool(estimate, plan, service.machine.device, service.store)
    return page(request, "new.html", form=form, errors=(), plan=plan, expected=expected)


def fields_of(sent: list[tuple[str, str]]) -> dict[str, Any]:
    """The fields of a request; what was left empty is left out, so that the request's default holds.

    Numbers stay texts: the request reads them, and says what is wrong with them.
    """
    fields: dict[str, Any] = {}
    for name, text in sent:
        value = text.strip()
        if not value or name == "do":
            continue
        if name in ARMS:
            fields[name] = {"scratch": value}
        elif name == "batch_sizes":
            fields[name] = [size.strip() for size in value.split(",") if size.strip()]
        elif name == "parts":
            fields.setdefault(name, []).append(value)
        else:
            fields[name] = value
    return fields


def _refused(
    request: Request, form: Mapping[str, str], errors: object, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    return page(request, "new.html", status, headers, form=form, errors=errors, plan=None, expected=None)


def _shown(request: CompareRequest) -> dict[str, str]:
    """A request as the form shows it."""
    values = request.model_dump(exclude_none=True)
    return {
        name: ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
        for name, value in values.items()
    }
