"""The OpenAPI document: what FastAPI does not say of scopes and problems; and the committed copy.

Which scope a route needs is read off the rule that the guard goes by.

``python -m equipoise_service.api FOLDER`` writes it; a test compares, so that a change shows in a review.
"""

import json
from typing import Any

from fastapi import FastAPI

from equipoise_service.access.scopes import required_scope
from equipoise_service.api.problems import MEDIA_TYPE, PROBLEM_SCHEMA

SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of `equipoise token create`."},
    "basic": {"type": "http", "scheme": "basic", "description": "For browsers: any name, the token as the password."},
}


def install(app: FastAPI) -> None:
    """Add scopes and the media type of problems to the application's document."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        fresh = app.openapi_schema is None
        schema = describe()
        return _with_media_type(_with_scopes(schema)) if fresh else schema

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's documented way to change the document


def _with_scopes(schema: dict[str, Any]) -> dict[str, Any]:
    schema["components"]["securitySchemes"] = SCHEMES
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            scope = required_scope(method.upper(), path)
            # The empty requirement: a service on the loopback asks nobody, unless it is told to.
            operation["security"] = [] if scope is None else [{}, *({name: [scope.value]} for name in SCHEMES)]
    return schema


def _with_media_type(schema: dict[str, Any]) -> dict[str, Any]:
    # FastAPI describes every model as application/json; there is no option for another media type.
    operations = [operation for path in schema["paths"].values() for operation in path.values()]
    for response in (response for operation in operations for response in operation["responses"].values()):
        content = response.get("content", {})
        if content.get("application/json", {}).get("schema") == PROBLEM_SCHEMA:
            response["content"] = {MEDIA_TYPE: content["application/json"]}
    return schema


def text_of(document: dict[str, Any]) -> str:
    """The document as it is committed."""
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
