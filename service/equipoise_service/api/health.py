"""Whether the service lives, whether it can do its work, and what it has done so far."""

import os
import shutil
from datetime import UTC, datetime

from fastapi import APIRouter, Response
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from equipoise_evals.model import Frozen
from equipoise_service.api.dependencies import TheService
from equipoise_service.errors import EquipoiseError, StorageUnavailable
from equipoise_service.machine import find_device
from equipoise_service.metrics import CONTENT_TYPE
from equipoise_service.service import Service

router = APIRouter(tags=["health"])

OK = "ok"
DISK_BYTES = 256 << 20
"""Less free space, and the records of a comparison may not fit."""
HEARTBEAT_WITHIN_S = 120.0
"""Twice a lease: nobody has taken over what its worker let go."""
TAKEN_WITHIN_S = 60.0
"""A worker that is well takes what waits at once, unless it is at work."""


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
    """The database can be read and written to, the device and its engines are there, the worker works; else 503."""
    checks = {
        "database": _database(service),
        "disk": _disk(service),
        "device": _device(service) if service.settings.worker else OK,
        "worker": _worker(service) if service.settings.worker else OK,
        "webhooks": "their sender has ended; see the log" if service.sending.done() else OK,
    }
    ready = set(checks.values()) == {OK}
    response.status_code = 200 if ready else 503
    return Readiness(ready=ready, checks=checks)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(service: TheService) -> Response:
    """Metrics in Prometheus' text format."""
    return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


def _database(service: Service) -> str:
    try:
        with service.store.database.read() as connection:
            connection.execute(text("SELECT 1"))
    except StorageUnavailable as unavailable:
        return unavailable.detail
    except SQLAlchemyError as error:
        return f"cannot be read: {type(error).__name__}"
    return OK


def _disk(service: Service) -> str:
    folder = service.settings.data
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return f"the data folder cannot be looked at: {error.strerror}"
    if free < DISK_BYTES:
        return f"{free >> 20} MiB free where the data folder is, {DISK_BYTES >> 20} needed"
    return OK if os.access(folder, os.W_OK) else "the data folder cannot be written to"


def _device(service: Service) -> str:
    machine = service.machine
    if machine.settings.executor == "ray":
        return OK  # the nodes' to have
    if machine.device == "cuda" and find_device() != "cuda":
        return "the driver shows no CUDA device"
    try:
        machine.environments()
    except EquipoiseError:
        return "there is no engine to start; `equipoise doctor` says why"  # a probe is anybody's, paths are not
    return OK


def _worker(service: Service) -> str:
    """Its task, and its pulse: that it takes what waits."""
    if service.working.done():
        return "the worker has ended; see the log"
    try:
        waiting, heartbeat = service.store.comparisons.waiting_since(), service.store.comparisons.heartbeat()
    except (StorageUnavailable, SQLAlchemyError):
        return OK  # its task lives, and the database has a check of its own
    now = datetime.now(UTC)
    if heartbeat is not None:
        silent_s = (now - heartbeat).total_seconds()
        return OK if silent_s < HEARTBEAT_WITHIN_S else f"no heartbeat for {silent_s:.0f} s"
    if waiting is None:
        return OK
    # Between two comparisons nothing is at work for a moment.
    stuck_s = min((now - waiting).total_seconds(), service.metrics.since_end_s())
    return OK if stuck_s < TAKEN_WITHIN_S else f"a comparison waits and none has been taken for {stuck_s:.0f} s"
