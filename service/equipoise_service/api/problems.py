"""Errors on the wire: RFC 9457 problem documents, for every error and from one handler; as a page for who prefers HTML.

``type`` is ``/problems/<kind>``: a relative reference that names the kind and leads nowhere.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException

from equipoise_evals.model import Frozen
from equipoise_service.api.html import page, prefers_html
from equipoise_service.errors import EquipoiseError, FieldError, Refusal, RequestInvalid

MEDIA_TYPE = "application/problem+json"
PROBLEM_SCHEMA = {"$ref": "#/components/schemas/Problem"}
VARIES = {"Vary": "Accept"}

REMEDIES = {
    404: "Check the address, or start from the list of comparisons.",
    405: "This address takes another method; /openapi.json describes every route.",
}
"""What to do about errors that are not ours, by status."""


class ProblemField(Frozen):
    """One thing wrong with one field of the request."""

    pointer: str
    detail: str


class Problem(Frozen):
    """RFC 9457's problem document; ``errors`` names each faulty field."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: tuple[ProblemField, ...] = ()


class ProblemResponse(JSONResponse):
    """A JSON response with the media type of problem documents."""

    media_type = MEDIA_TYPE


def document(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's description of the problems that a route can answer with."""
    return {status: {"description": HTTPStatus(status).phrase, "model": Problem} for status in statuses}


def install(app: FastAPI) -> None:
    """Make ``answer`` the handler of every error of the application."""
    for kind in (EquipoiseError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)


class Told(NamedTuple):
    """An error as clients are told of it."""

    problem: Problem
    remedy: str
    headers: Mapping[str, str] | None = None


async def answer(request: Request, error: Exception) -> Response:
    """The problem document of any error, or a page that says the same and what to do."""
    told = _told(request.url.path, error)
    problem, headers = told.problem, {**VARIES, **(told.headers or {})}
    if not prefers_html(",".join(request.headers.getlist("accept"))):
        return ProblemResponse(problem.model_dump(mode="json"), problem.status, headers)
    comparison = None if problem.status == HTTPStatus.NOT_FOUND else request.path_params.get("comparison_id")
    return page(
        request,
        "problem.html",
        problem.status,
        headers,
        problem=problem,
        remedy=told.remedy,
        comparison=comparison,
    )


def _told(path: str, error: Exception) -> Told:
    match error:
        case RequestValidationError():
            return _named(path, RequestInvalid(field_errors(error.errors())))
        case EquipoiseError():
            return _named(path, error)
        case HTTPException():
            phrase = HTTPStatus(error.status_code).phrase
            kind = phrase.lower().replace(" ", "-")
            problem = Problem(
                type=f"/problems/{kind}", title=phrase, status=error.status_code, detail=error.detail, instance=path
            )
            return Told(problem, REMEDIES.get(error.status_code, Refusal.remedy), error.headers)
        case _:
            # What went wrong is for the log alone: an unexpected error's text may hold anything.
            text = "the service has a defect; its log has the details"
            return _named(path, EquipoiseError(text))


def _named(path: str, error: EquipoiseError) -> Told:
    problem = Problem(
        type=f"/problems/{error.type}",
        title=error.title,
        status=error.status,
        detail=error.detail,
        instance=path,
        errors=tuple(ProblemField(pointer=field.pointer, detail=field.detail) for field in error.fields),
    )
    return Told(problem, error.remedy, error.headers)


def field_errors(errors: Sequence[ErrorDetails]) -> list[FieldError]:
    """Pydantic's findings by JSON pointer. The offending value is left out: it may be no JSON at all, such as nan."""
    return [
        FieldError("" if error["type"] == "json_invalid" else _pointer(error["loc"]), _sentence(error))
        for error in errors
        if not (error["type"] == "too_short" and any(_below(error["loc"], other["loc"]) for other in errors))
    ]


def _below(field: tuple[int | str, ...], other: tuple[int | str, ...]) -> bool:
    """Whether the other place is an item of the field: a list whose items are wrong is not too short as well."""
    return len(other) > len(field) and other[: len(field)] == field


def _sentence(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown field"
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {error['ctx']['error']}, at character {error['loc'][-1]}"
    if error["loc"] == ("body",) and error["type"] == "model_attributes_type":
        return "the body must be a JSON object, sent with Content-Type: application/json"
    return error["msg"].removeprefix("Value error, ")


def _pointer(location: tuple[int | str, ...]) -> str:
    """``("body", "arms", 0)`` becomes ``/arms/0``, ``("query", "limit")`` becomes ``query/limit``."""
    escaped = [str(part).replace("~", "~0").replace("/", "~1") for part in location]
    if escaped[:1] == ["body"]:
        return "".join(f"/{part}" for part in escaped[1:])
    return "/".join(escaped)
