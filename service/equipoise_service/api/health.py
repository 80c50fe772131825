"""Whether the service lives, and whether it can do its work."""

from fastapi import APIRouter, Response
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from equipoise_evals.model import Frozen
from equipoise_service.api.dependencies import TheService
from equipoise_service.errors import StorageUnavailable
from equipoise_service.service import Service

router = APIRouter(tags=["health"])


class Readiness(Frozen):
    """Each check by name: ``ok``, or what is wrong."""

    ready: bool
    checks: dict[str, str]


@router.get("/livez")
async def livez() -> dict[str, str]:
    """The process answers."""
    return {"status": "alive"}


@router.get("/readyz", responses={503: {"model": Readiness}})
def readyz(service: TheService, response: Response) -> Readiness:
    """The database can be read and the worker is at work; 503 otherwise."""
    checks = {
        "database": _database(service),
        "worker": "the worker has ended; see the log" if service.working.done() else "ok",
    }
    ready = set(checks.values()) == {"ok"}
    response.status_code = 200 if ready else 503
    return Readiness(ready=ready, checks=checks)


def _database(service: Service) -> str:
    try:
        with service.store.database.read() as connection:
            connection.execute(text("SELECT 1"))
    except StorageUnavailable as unavailable:
        return unavailable.detail
    except SQLAlchemyError as error:
        return f"cannot be read: {type(error).__name__}"
    return "ok"
