"""What ``equipoise compare`` does: find or start a service, submit, watch, and say how it ended."""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import typer
from rich.console import Console

from equipoise_evals.model import Plan, Verdict
from equipoise_service.access.secrets import new_token
from equipoise_service.cli.client import ApiClient
from equipoise_service.cli.display import LiveProgress, show_verdict
from equipoise_service.cli.exit_codes import OF_VERDICT, CommandError
from equipoise_service.estimate import Estimate
from equipoise_service.folder import holder_of
from equipoise_service.report.spending import Spending
from equipoise_service.server import bind, running_server
from equipoise_service.settings import Settings, shown_token
from equipoise_service.tasks import to_the_end

T = TypeVar("T")


class Reach(NamedTuple):
    """A service's address, and the token to show there."""

    url: str
    token: str | None


async def compare_and_show(body: dict[str, Any], url: str | None, as_json: bool) -> int:
    """Submit, watch, show how it ended, and return the exit code."""
    console = Console(stderr=True)
    return _shown(await compared(body, url, console), url, as_json, console)


async def resume_and_show(comparison_id: str, url: str | None, as_json: bool) -> int:
    """Resume, watch, show how it ended, and return the exit code."""
    console = Console(stderr=True)
    _end_by_sigterm()
    async with _service(url, console) as service, ApiClient(*service) as client:
        after = await _answered(client, client.resume(comparison_id), lambda _: comparison_id, console)
        await _watch(client, comparison_id, console, after)
        view = await _ended_view(client, comparison_id, console)
    return _shown(view, url, as_json, console)


def _shown(view: dict[str, Any], url: str | None, as_json: bool, console: Console) -> int:
    code = _ended(view, as_json)
    for hint in (_page(view["id"], url), f"{_command('report')} {view['id']} prints all of it"):
        console.print(hint, highlight=False, style="dim", soft_wrap=True)
    return code


async def show_cost(body: dict[str, Any], url: str | None, as_json: bool) -> int:
    """Say what a comparison would cost, without starting it."""
    async with _service(url, Console(stderr=True)) as service, ApiClient(*service) as client:
        dry = await client.dry_run(body)
    if as_json:
        typer.echo(json.dumps(dry, indent=2, sort_keys=True))
        return 0
    found = Estimate.model_validate(dry["estimate"])
    basis = {
        "history": "the newest run of the same plan",
        "profile": "typical figures, good to a factor of two or three",
    }
    typer.echo(
        f"{found.pairs_least} to {found.pairs_most} launch pairs, {found.gpu_minutes_least:g} to "
        f"{found.gpu_minutes_most:g} minutes of the device, by {basis[found.basis]}; nothing was started"
    )
    return 0


def _page(comparison_id: str, url: str | None) -> str:
    """Where a browser finds the comparison; a private service has gone by now."""
    holder = None if url else holder_of(Settings.from_env().data)
    address = url or (holder.url if holder else None)
    if address is None:
        return f"{_command('serve')} shows its page in a browser"
    return f"{address.rstrip('/')}/comparisons/{comparison_id}/page is its page"


def _command(name: str) -> str:
    """A command of ours over the same data folder, as it can be typed here."""
    program = Path(sys.executable).with_name("equipoise")
    typed = "equipoise" if shutil.which("equipoise") or not program.exists() else os.path.relpath(program)
    where = f"EQUIPOISE_DATA={shlex.quote(os.environ['EQUIPOISE_DATA'])} " if "EQUIPOISE_DATA" in os.environ else ""
    return f"{where}{typed} {name}"


async def compared(body: dict[str, Any], url: str | None, console: Console) -> dict[str, Any]:
    """Submit a comparison, watch it to its end, and return it as the service shows it."""
    _end_by_sigterm()
    async with _service(url, console) as service, ApiClient(*service) as client:
        comparison_id = await _answered(client, client.submit(body), str, console)
        console.print(f"comparison {comparison_id}", highlight=False)
        await _watch(client, comparison_id, console)
        return await _ended_view(client, comparison_id, console)


async def _answered(client: ApiClient, order: Coroutine[Any, Any, T], id_of: Callable[[T], str], console: Console) -> T:
    """The answer to an order that queues a comparison; an interruption cancels what was queued meanwhile."""

    async def revoked() -> None:
        await asyncio.wait({answering})
        if answering.exception() is None:
            with contextlib.suppress(CommandError):  # it has ended already
                await client.cancel(id_of(answering.result()))

    answering = asyncio.create_task(order)
    try:
        return await asyncio.shield(answering)
    except asyncio.CancelledError:
        console.print("interrupted; waiting for the service's answer, so that nothing is left queued")
        await to_the_end(revoked())
        raise


def _end_by_sigterm() -> None:
    """SIGTERM, as a pipeline sends it, ends what is at work as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - we are in a coroutine
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def _ended_view(client: ApiClient, comparison_id: str, console: Console) -> dict[str, Any]:
    """A comparison that has ended; if it has a verdict, say where its time went."""
    view = await client.comparison(comparison_id)
    if view["verdict"] is not None:
        spending = json.loads(await client.text(f"/comparisons/{comparison_id}/report.json"))["spending"]
        if sentence := Spending.model_validate(spending).sentence:
            console.print(f"time: {sentence}", highlight=False, style="dim")
    return view


async def fetched(comparison_id: str, url: str | None) -> dict[str, Any]:
    """A comparison that exists, as the service shows it."""
    async with _service(url, Console(stderr=True)) as service, ApiClient(*service) as client:
        return await client.comparison(comparison_id)


@contextlib.asynccontextmanager
async def _service(url: str | None, console: Console) -> AsyncIterator[Reach]:
    """The service to use: the given one, the running one, or a private one for as long as this lasts."""
    settings = Settings.from_env()
    if url is not None:
        yield Reach(url, shown_token(settings))
        return
    holder = holder_of(settings.data)
    if holder is not None and holder.url is not None:
        console.print(f"using the service that runs at {holder.url}", highlight=False)
        yield Reach(holder.url, shown_token(settings))
        return
    listening = bind("127.0.0.1", 0)
    own = new_token()  # so that nobody else on this machine can use a service that is private
    async with running_server(settings, listening, url=None, pass_sha256=own.sha256):
        yield Reach(listening.url, own.text)


async def _watch(client: ApiClient, comparison_id: str, console: Console, after: int = 0) -> None:
    """Show events until the comparison has ended; an interruption cancels it and waits for its engines' end."""
    with LiveProgress(console) as progress:
        try:
            async for event in client.events(comparison_id, after):
                progress.show(event)
        except asyncio.CancelledError:
            console.print("cancelling; waiting for the engines to end")
            await client.cancel(comparison_id)
            async for _ in client.events(comparison_id, after):
                pass
            raise


def _ended(view: dict[str, Any], as_json: bool) -> int:
    """Print how a comparison ended and return the exit code."""
    if as_json:
        typer.echo(json.dumps(view, indent=2, sort_keys=True))
    if view["verdict"] is None:
        raise CommandError(error_text(view))
    verdict = Verdict.model_validate(view["verdict"])
    if not as_json:
        show_verdict(Console(), verdict, Plan.model_validate(view["plan"]))
    return OF_VERDICT[verdict.overall.word]


def error_text(view: dict[str, Any]) -> str:
    """Why there is no verdict: arm, stage, reason and the end of the engine's log."""
    error = view["error"]
    if error is None:
        return f"comparison {view['id']} is {view['status']} and has no verdict yet: wait for its end"
    arm = f"arm {error['arm']}, " if error["arm"] else ""
    tail = f"\n--- the engine's log ends with ---\n{error['log_tail']}" if error["log_tail"] else ""
    return f"comparison {view['id']} is {view['status']}: {arm}stage {error['stage']}: {error['reason']}{tail}"
