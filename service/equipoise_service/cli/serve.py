"""``equipoise serve``: the service in the foreground."""

from typing import Annotated

import typer


def serve(
    host: Annotated[str | None, typer.Option(help="Address to bind; EQUIPOISE_HOST otherwise.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind; EQUIPOISE_PORT otherwise.", min=0, max=65535)] = None,
) -> int:
    """Serve the API and the pages until interrupted; a comparison that runs then goes on under the next service."""
    import asyncio

    from equipoise_service.access.addresses import is_loopback
    from equipoise_service.cli.tokens import require_any_token
    from equipoise_service.logs import configure
    from equipoise_service.server import bind, serving
    from equipoise_service.settings import Settings

    settings = Settings.from_env()
    configure(settings.log_level, settings.log_format)
    settings = settings.model_copy(
        update={"host": host or settings.host, "port": settings.port if port is None else port}
    )
    if not is_loopback(settings.host):
        require_any_token(settings)
    listening = bind(settings.host, settings.port)
    # Said last, when it is true: whoever opens the address at once must not be refused.
    asyncio.run(serving(settings, listening, lambda: typer.echo(f"pages and API at {listening.url}", err=True)))
    return 0
