"""``equipoise token``: who may use a service that asks. Works on the data folder's database, service running or not."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise_service.access.scopes import Scope
from equipoise_service.cli.exit_codes import CommandError, ExitCode

if TYPE_CHECKING:
    from equipoise_service.settings import Settings
    from equipoise_service.store import Token

app = typer.Typer(help="Make, list and revoke the tokens of a service that asks for them.", no_args_is_help=True)


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Whose it is or what it is for, for the list.")],
    scope: Annotated[Scope, typer.Option(help="What it allows; each scope allows what the one before does.")],
    expires_days: Annotated[
        int | None, typer.Option(min=1, max=3650, help="Valid so long; for ever if not given.")
    ] = None,
) -> int:
    """Make a token and print it, once: what is kept cannot be turned back into it."""
    from equipoise_service.access.names import LONGEST_NAME, usable_name
    from equipoise_service.cli.documents import own_store

    if not usable_name(name):
        raise CommandError(f"a name has 1 to {LONGEST_NAME} characters and no control characters", ExitCode.USAGE)
    expires_at = None if expires_days is None else datetime.now(UTC) + timedelta(days=expires_days)
    token, text = own_store().tokens.add(name, scope, expires_at)
    typer.echo(f"token {token.id} of scope {token.scope}; it is shown here and never again", err=True)
    typer.echo(text)
    return 0


@app.command("list")
def list_tokens() -> int:
    """List every token by id, name and scope, and whether it is valid."""
    from equipoise_service.cli.documents import own_store

    now = datetime.now(UTC)
    for token in own_store().tokens.every():
        typer.echo(f"{token.id}  {token.scope:6}  {_state(token, now):28}  {token.name}")
    return 0


@app.command()
def revoke(token_id: Annotated[str, typer.Argument(help="The id, as the list shows it.")]) -> int:
    """Make a token invalid from now on, in a running service too."""
    from equipoise_service.cli.documents import own_store
    from equipoise_service.errors import TokenNotFound

    if not own_store().tokens.revoke(token_id):
        raise TokenNotFound(token_id)
    return 0


def require_any_token(settings: "Settings") -> None:
    """Raise ``NoTokens`` if the database knows no valid token."""
    from equipoise_service.errors import NoTokens
    from equipoise_service.folder import prepare
    from equipoise_service.store import Store

    prepare(settings.data)
    store = Store.open(settings.url_of_database)
    try:
        if not store.tokens.any_valid():
            raise NoTokens(settings.host)
    finally:
        store.database.close()


def _state(token: "Token", now: datetime) -> str:
    if token.revoked_at is not None:
        return f"revoked {token.revoked_at:%Y-%m-%d}"
    if token.expires_at is None:
        return "valid"
    return f"{'valid until' if token.valid_at(now) else 'expired'} {token.expires_at:%Y-%m-%d %H:%M}"
