"""Entity tags: whoever has a finished comparison need not get it again."""

import hashlib
from typing import Any

from fastapi import Request, Response

from equipoise_service.store import FINAL, Stored

UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "Not Modified"}}
"""For the descriptions of routes."""


def tagged(request: Request, stored: Stored, body: bytes, media_type: str) -> Response:
    """A document with the tag of its bytes, or 304 where the client has them; without a tag while things change."""
    if stored.status not in FINAL:
        return Response(body, media_type=media_type)
    headers = tag_headers(body)
    if has_it(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def tag_headers(*parts: bytes) -> dict[str, str]:
    """The headers of something that is told apart by these bytes: kept by a client, asked about each time."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return {"ETag": f'"{digest.hexdigest()[:32]}"', "Cache-Control": "private, no-cache"}


def has_it(request: Request, tag: str) -> bool:
    """Whether ``If-None-Match`` names this tag (RFC 9110, section 13.1.2: weak comparison)."""
    shown = ",".join(request.headers.getlist("if-none-match"))
    return shown.strip() == "*" or tag in {part.strip().removeprefix("W/") for part in shown.split(",")}
