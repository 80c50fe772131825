"""Engine logs, as long as they are kept in the data folder of the service that ran the engines."""

import re
from pathlib import Path
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Response
from fastapi import Path as FromPath
from fastapi.responses import FileResponse

from equipoise_service.api.dependencies import TheComparison, TheService
from equipoise_service.api.problems import document
from equipoise_service.errors import LogNotKept
from equipoise_service.settings import Settings

router = APIRouter(tags=["records"], responses=document(422))

LAUNCH = r"^pair-\d{3,6}-[AB]-\d{1,3}-[0-9a-f]{8}$"
LOG = "engine.log"


class KeptLog(NamedTuple):
    """The log of one start of an engine, by the name of its folder."""

    launch: str
    bytes: int


@router.get("/comparisons/{comparison_id}/logs/{launch}", response_class=FileResponse, responses=document(404))
def read_log(stored: TheComparison, service: TheService, launch: Annotated[str, FromPath(pattern=LAUNCH)]) -> Response:
    """What one engine wrote, from its start to its end; pages list which are kept."""
    file = _folder(service.settings, stored.id) / launch / LOG
    if not file.is_file():
        raise LogNotKept(stored.id, launch)
    return FileResponse(file, media_type="text/plain; charset=utf-8")


def kept_logs(settings: Settings, comparison_id: str) -> list[KeptLog]:
    """Logs that are still there, in the order of their names: by pair, then by arm."""
    files = sorted(_folder(settings, comparison_id).glob(f"pair-*/{LOG}"))
    return [KeptLog(file.parent.name, file.stat().st_size) for file in files if re.match(LAUNCH, file.parent.name)]


def _folder(settings: Settings, comparison_id: str) -> Path:
    return settings.engine_logs / comparison_id
