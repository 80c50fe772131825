"""``equipoise compare``: submit a comparison, watch it, and end with the exit code of its verdict."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from equipoise_service.cli.exit_codes import CommandError, ExitCode
from equipoise_service.cli.options import Url, points, read, share


def compare(  # noqa: PLR0913, PLR0917 - one parameter an option, one option a field of the request
    model: Annotated[str | None, typer.Argument(help="Hub id, folder, or `embedded` (the default).")] = None,
    model_option: Annotated[str | None, typer.Option("--model", help="The same as MODEL.")] = None,
    url: Url = None,
    preset: Annotated[str | None, typer.Option(help="Pair of arms to start from.")] = None,
    baseline: Annotated[str | None, typer.Option(metavar="JSON", help="Changes to the baseline arm.")] = None,
    candidate: Annotated[str | None, typer.Option(metavar="JSON", help="Changes to the candidate arm.")] = None,
    declared_aa: Annotated[bool | None, typer.Option("--declared-aa", help="Both arms are meant to be equal.")] = None,
    parts: Annotated[str | None, typer.Option(help="latency, accuracy, or both with a comma.")] = None,
    batch_sizes: Annotated[str | None, typer.Option(help="Batch sizes to time, with commas.")] = None,
    primary_batch: Annotated[int | None, typer.Option(help="The batch size that decides.")] = None,
    pairs_max: Annotated[int | None, typer.Option(help="At most so many launch pairs.")] = None,
    questions: Annotated[int | None, typer.Option(help="Size of the sample; all questions if not given.")] = None,
    shots: Annotated[int | None, typer.Option(help="Worked examples before each question.")] = None,
    prompting: Annotated[
        str | None, typer.Option(help="completion (the default), or chat by the model's own template.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="Questions in flight.")] = None,
    margin_accuracy_pp: Annotated[
        str | None, typer.Option(help="Loss of accuracy that counts, in points: 1 or 1pp (the default).")
    ] = None,
    margin_latency: Annotated[
        str | None, typer.Option(help="Change of the times that counts: 0.5% (the default) or 0.005.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides sample, order and prompts.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Longest answer, in tokens.")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="Context at which a block starts.")] = None,
    steps_per_block: Annotated[int | None, typer.Option(help="Decode steps, or prefills, of one block.")] = None,
    quads: Annotated[int | None, typer.Option(help="ABBA quads per batch size and launch pair.")] = None,
    stress: Annotated[
        bool | None, typer.Option("--stress", help="Put each engine under stress before every pass but the first.")
    ] = None,
    layout: Annotated[
        str | None, typer.Option(help="co_resident, alternating or crossover; by memory if not given.")
    ] = None,
    gpu_type: Annotated[str | None, typer.Option(help="Kind of GPU in a Ray cluster, as H200.")] = None,
    request: Annotated[Path | None, typer.Option(help="A file with the whole request as JSON; options win.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON instead of tables.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would cost; nothing starts.")] = False,
) -> int:
    """Compare two arms and say whether to ship: 0 ship or neutral, 1 block, 2 not decided, 3 error, 64 usage.

    Uses the service at --url, else the one that runs in the data folder, else a private one for this comparison.
    """
    given = dict(locals())
    for name in ("url", "request", "as_json", "model_option", "dry_run"):
        del given[name]
    if model is not None and model_option is not None:
        raise CommandError("the model is named twice", ExitCode.USAGE)
    given["model"] = model or model_option
    if margin_latency is not None:
        given["margin_latency"] = share(margin_latency, "--margin-latency", "0.5%", least=1e-6, most=0.9)
    if margin_accuracy_pp is not None:
        given["margin_accuracy_pp"] = points(margin_accuracy_pp, "--margin-accuracy-pp")
    body = body_of(given, request)
    from equipoise_service.cli.comparing import compare_and_show, show_cost

    if dry_run:
        return asyncio.run(show_cost(body, url, as_json))
    return asyncio.run(compare_and_show(body, url, as_json))


def body_of(options: dict[str, Any], request: Path | None) -> dict[str, Any]:
    """The request: the file's fields, then the options that were given."""
    body = {} if request is None else _object(read(request), str(request))
    body = {"model": "embedded"} | body | {name: value for name, value in options.items() if value is not None}
    for name in ("baseline", "candidate"):
        if isinstance(body.get(name), str):
            body[name] = _object(body[name], f"--{name}")
    if isinstance(body.get("parts"), str):
        body["parts"] = body["parts"].split(",")
    if isinstance(body.get("batch_sizes"), str):
        body["batch_sizes"] = body["batch_sizes"].split(",")
    return body


def _object(text: str | bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as broken:
        raise CommandError(f"{where} is not JSON: {broken}", ExitCode.USAGE) from broken
    if not isinstance(value, dict):
        raise CommandError(f"{where} must be a JSON object", ExitCode.USAGE)
    return value
