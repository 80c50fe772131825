"""What routes are given: the running service, and the comparison that a path names.

What reads no database is a coroutine, for which FastAPI needs no thread: each hop costs a request two switches.
"""

from typing import Annotated

from fastapi import Depends, Request

from equipoise_service.errors import ComparisonNotFound
from equipoise_service.service import Service
from equipoise_service.store import Stored


def service_of(request: Request) -> Service:
    """The service that the application runs."""
    service = request.app.state.service
    assert isinstance(service, Service)  # noqa: S101 - set by the lifespan, before any route can be called
    return service


async def _service_of(request: Request) -> Service:
    return service_of(request)


TheService = Annotated[Service, Depends(_service_of)]


def comparison_of(comparison_id: str, service: TheService) -> Stored:
    """The comparison with the id of the path; raises ``ComparisonNotFound``."""
    stored = service.store.comparisons.get(comparison_id)
    if stored is None:
        raise ComparisonNotFound(comparison_id)
    return stored


async def submitter_of(request: Request) -> str:
    """Who asks: the id of the token that was shown, or '' where none is asked for."""
    return str(getattr(request.state, "submitter", ""))


TheSubmitter = Annotated[str, Depends(submitter_of)]
TheComparison = Annotated[Stored, Depends(comparison_of)]
