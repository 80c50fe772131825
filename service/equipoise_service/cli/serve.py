"""``equipoise serve``: the service in the foreground."""

import logging
from typing import Annotated

import typer

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    host: Annotated[str | None, typer.Option(help="Address to bind; EQUIPOISE_HOST otherwise.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind; EQUIPOISE_PORT otherwise.", min=0, max=65535)] = None,
) -> int:
    """Serve the API and the pages until interrupted; a comparison that runs then is kept as interrupted."""
    import asyncio

    from equipoise_service.server import bind, serving
    from equipoise_service.settings import Settings

    settings = Settings.from_env()
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    listening = bind(host or settings.host, settings.port if port is None else port)
    if listening.host not in LOOPBACK:
        logging.getLogger(__name__).warning(
            "%s is reachable from other machines, and asks nobody who they are", listening.url
        )
    # Said last, when it is true: whoever opens the address at once must not be refused.
    asyncio.run(serving(settings, listening, lambda: typer.echo(f"pages and API at {listening.url}", err=True)))
    return 0
