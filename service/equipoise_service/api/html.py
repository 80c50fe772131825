"""Pages: the templates, the headers that every page carries, and whether a client would rather have one.

Everything shown is escaped by the templates, which share their parts with the HTML report. Scripts and styles are files
of ours, which the content security policy enforces, and nothing is loaded from another host.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from fastapi.templating import Jinja2Templates

from equipoise_service.report.rendering import GLOBALS, TEMPLATES

templates = Jinja2Templates([Path(__file__).parent / "templates", TEMPLATES])
templates.env.trim_blocks = templates.env.lstrip_blocks = True
templates.env.globals.update(GLOBALS)

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


def page(
    request: Request,
    name: str,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: Any,  # noqa: ANN401 - whatever the template shows
) -> Response:
    """A template's page with its values."""
    return templates.TemplateResponse(request, name, values, status, HEADERS | dict(headers or {}))


def prefers_html(accept: str) -> bool:
    """Whether an ``Accept`` header ranks HTML above JSON, as browsers do; programs that take anything get JSON."""
    ranges = _qualities(accept)
    json = max(_quality(ranges, "application/problem+json"), _quality(ranges, "application/json"))
    return _quality(ranges, "text/html") > json


def _quality(ranges: Mapping[str, float], media_type: str) -> float:
    """The most specific range decides (RFC 9110, section 12.5.1); 0 where none matches."""
    kind = media_type.partition("/")[0]
    return next((ranges[wanted] for wanted in (media_type, f"{kind}/*", "*/*") if wanted in ranges), 0.0)


def _qualities(accept: str) -> dict[str, float]:
    found = {}
    for part in accept.lower().split(","):
        media_range, *parameters = (word.strip() for word in part.split(";"))
        found[media_range] = next((_number(word[2:]) for word in parameters if word.startswith("q=")), 1.0)
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
