"""``equipoise resume``: go on with a comparison that ended without a verdict."""

import asyncio
from typing import Annotated

import typer

from equipoise_service.cli.options import Url


def resume(
    comparison_id: Annotated[str, typer.Argument(metavar="ID", help="The comparison's id.")],
    url: Url = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON instead of tables.")] = False,
) -> int:
    """Go on with a comparison that failed, was cancelled or was interrupted; exit codes are those of compare.

    What is complete is kept; no question that was answered is asked again.
    """
    from equipoise_service.cli.comparing import resume_and_show

    return asyncio.run(resume_and_show(comparison_id, url, as_json))
