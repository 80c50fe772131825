"""The application: routes over one running service. Two applications can live in one process."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from equipoise_service.access.door import Door
from equipoise_service.api import (
    comparisons,
    differences,
    events,
    health,
    logs,
    openapi,
    overviews,
    pages,
    problems,
    records,
    reports,
    submitting,
    tokens,
    webhooks,
)
from equipoise_service.api.guard import Guard, SafeHeaders
from equipoise_service.folder import holding
from equipoise_service.machine import LauncherFactory, Machine
from equipoise_service.measuring import Tools
from equipoise_service.questions import prompts_of
from equipoise_service.resolve import resolve
from equipoise_service.service import running
from equipoise_service.settings import Settings

STATIC = Path(__file__).parents[1] / "static"


def create_app(
    settings: Settings,
    launcher_factory: LauncherFactory | None = None,
    url: str | None = None,
    door: Door | None = None,
) -> FastAPI:
    """The application of one service.

    Args:
        settings: The operator's decisions.
        launcher_factory: Makes the launcher of a comparison; the real engines of this machine if None.
        url: Where the service will be reachable, noted in the data folder for ``equipoise compare``. None of a private
            one: nobody else is to find it, and a comparison that its end cuts short is ``interrupted``, not resumed.
        door: How it is entered; as a service on the settings' own address if None.
    """
    machine = Machine(settings)
    tools = Tools(launcher=launcher_factory or machine.launcher, prompts=lambda plan: prompts_of(plan, machine))

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with holding(settings.data, url):
            async with running(
                machine, lambda request: resolve(request, machine), tools, resumes=url is not None
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
        responses=problems.document(401, 403, 421, 429, 503),
    )
    openapi.install(app)
    problems.install(app)
    routed = (comparisons, events, records, reports, differences, logs, tokens, webhooks, health)
    for module in (*routed, pages, overviews, submitting):
        app.include_router(module.router)
    app.add_middleware(Guard, door=door or Door.of(settings, settings.host))
    inner_stack = app.build_middleware_stack
    # Starlette's own options end inside of what answers with 500, and that answer needs the headers too.
    app.build_middleware_stack = lambda: SafeHeaders(inner_stack())  # type: ignore[method-assign]
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app
