"""``equipoise webhook``: who is told of comparisons that end. Works on the data folder's database."""

from typing import Annotated

import typer

app = typer.Typer(help="Tell addresses of every comparison that ends, as Standard Webhooks.", no_args_is_help=True)


@app.command()
def add(url: Annotated[str, typer.Argument(help="An https address, or an http one on the loopback.")]) -> int:
    """Add an address and print its signing secret, once: the receiver verifies signatures with it."""
    from equipoise_service.cli.documents import own_store
    from equipoise_service.webhooks import new_secret, usable_url

    webhook = own_store().webhooks.add(usable_url(url), new_secret())
    typer.echo(f"webhook {webhook.id}; its secret is shown here and never again", err=True)
    typer.echo(webhook.secret)
    return 0


@app.command("list")
def list_webhooks() -> int:
    """List every webhook and how its newest message fares."""
    from equipoise_service.cli.documents import own_store

    store = own_store()
    for webhook in store.webhooks.every():
        last = store.webhooks.last_delivery(webhook.id)
        if last is None:
            fares = "nothing sent yet"
        elif last.delivered_at is not None:
            fares = f"delivered {last.delivered_at:%Y-%m-%d %H:%M:%S} UTC"
        else:
            when = "given up" if last.next_at is None else f"again {last.next_at:%Y-%m-%d %H:%M:%S} UTC"
            fares = f"failed {last.attempts} times ({last.last_error}), {when}" if last.attempts else "waits"
        typer.echo(f"{webhook.id}  {webhook.url}  {fares}")
    return 0


@app.command()
def remove(webhook_id: Annotated[str, typer.Argument(help="The id, as the list shows it.")]) -> int:
    """Tell an address no more."""
    from equipoise_service.cli.documents import own_store
    from equipoise_service.errors import WebhookNotFound

    if not own_store().webhooks.remove(webhook_id):
        raise WebhookNotFound(webhook_id)
    return 0
