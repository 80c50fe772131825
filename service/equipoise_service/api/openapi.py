"""The OpenAPI document: which scope each route needs, from the rule that the guard goes by; and the committed copy.

``python -m equipoise_service.api FOLDER`` writes it; a test compares, so that a change shows in a review.
"""

import json
from typing import Any

from fastapi import FastAPI

from equipoise_service.access.scopes import required_scope

SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of `equipoise token create`."},
    "basic": {"type": "http", "scheme": "basic", "description": "For browsers: any name, the token as the password."},
}


def install(app: FastAPI) -> None:
    """Add the scopes to the application's document."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        fresh = app.openapi_schema is None
        schema = describe()
        return _with_scopes(schema) if fresh else schema

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's documented way to change the document


def _with_scopes(schema: dict[str, Any]) -> dict[str, Any]:
    schema["components"]["securitySchemes"] = SCHEMES
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            scope = required_scope(method.upper(), path)
            # The empty requirement: a service on the loopback asks nobody, unless it is told to.
            operation["security"] = [] if scope is None else [{}, *({name: [scope.value]} for name in SCHEMES)]
    return schema


def text_of(document: dict[str, Any]) -> str:
    """The document as it is committed."""
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
