"""``equipoise judge``: the verdict of stored records, derived again."""

import sys
from typing import Annotated

import typer

from equipoise_service.cli.exit_codes import CommandError
from equipoise_service.cli.options import Output, Url, write


def judge(
    where: Annotated[str, typer.Argument(metavar="FILE|ID", help="A downloaded records file, or a comparison's id.")],
    check: Annotated[
        bool, typer.Option("--check", help="Fail unless it is the stored verdict, byte for byte.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the canonical JSON on a terminal too, instead of tables.")
    ] = False,
    url: Url = None,
    output: Output = None,
) -> int:
    """Judge stored records again and print the verdict. No engine and no GPU is needed.

    A terminal gets tables. A pipe and a file get the verdict's canonical JSON, byte for byte as it is stored.
    """
    from equipoise_evals.judge import canonical_json
    from equipoise_evals.judge import judge as judge_records
    from equipoise_service.cli.documents import records_of

    document = records_of(where, url)
    verdict = judge_records(document.observed, document.plan)
    again = canonical_json(verdict)
    if as_json or output is not None or not sys.stdout.isatty():
        write(again, output)
    else:
        from rich.console import Console

        from equipoise_service.cli.display import show_verdict

        show_verdict(Console(), verdict, document.plan)
    if not check:
        return 0
    if document.verdict is None:
        raise CommandError("there is no stored verdict to compare with")
    if canonical_json(document.verdict) != again:
        raise CommandError("this is not the stored verdict; was it made under another lock file?")
    typer.echo("equal to the stored verdict", err=True)
    return 0
