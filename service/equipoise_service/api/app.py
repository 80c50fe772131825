"""The application: routes over one running service. Two applications can live in one process."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from equipoise_service.api import (
    comparisons,
    differences,
    events,
    health,
    logs,
    overviews,
    pages,
    problems,
    records,
    reports,
    submitting,
)
from equipoise_service.folder import holding
from equipoise_service.machine import LauncherFactory, Machine
from equipoise_service.questions import prompts_of
from equipoise_service.resolve import resolve
from equipoise_service.service import running
from equipoise_service.settings import Settings
from equipoise_service.worker import Tools

STATIC = Path(__file__).parents[1] / "static"


def create_app(settings: Settings, launcher_factory: LauncherFactory | None = None, url: str | None = None) -> FastAPI:
    """The application of one service.

    Args:
        settings: The operator's decisions.
        launcher_factory: Makes the launcher of a comparison; the real engines of this machine if None.
        url: Where the service will be reachable, noted in the data folder for ``equipoise compare``.
    """
    machine = Machine(settings)
    tools = Tools(launcher=launcher_factory or machine.launcher, prompts=lambda plan: prompts_of(plan, machine))

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with holding(settings.data, url):
            async with running(
                settings, lambda request: resolve(request, machine), tools, resumes=url is not None
            ) as service:
                app.state.service = service
                yield

    app = FastAPI(
        title="Equipoise",
        summary="Is the changed LLM serving engine faster, and is it no less accurate?",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # both load scripts from another host
        redoc_url=None,
    )
    problems.install(app)
    for module in (comparisons, events, records, reports, differences, logs, health, pages, overviews, submitting):
        app.include_router(module.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app
