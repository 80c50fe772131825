"""``equipoise judge-results``: a verdict on result files of other benchmarks."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from equipoise_service.cli.exit_codes import OF_VERDICT, CommandError, ExitCode
from equipoise_service.cli.options import Output, points, share, write


def judge_results(  # noqa: PLR0917 - one parameter an option
    baseline: Annotated[list[Path], typer.Option(help="A result file of the baseline; one option a file.")],
    candidate: Annotated[list[Path], typer.Option(help="A result file of the candidate; as many runs.")],
    margin_latency: Annotated[str, typer.Option(help="Change of the times that counts: 0.5% or 0.005.")] = "0.5%",
    margin_accuracy_pp: Annotated[str, typer.Option(help="Loss of accuracy that counts, in points.")] = "1pp",
    answer_filter: Annotated[
        str | None,
        typer.Option("--filter", help="The filter of lm-evaluation-harness that counts; its first by default."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on a terminal too, instead of tables.")] = False,
    output: Output = None,
) -> int:
    """Judge at least 3 runs of each arm by sglang.bench_serving, vllm bench, AIPerf or lm-evaluation-harness.

    The verdict is marked unattested: nobody has shown what ran. It may block, and never ships.
    """
    from equipoise_evals.judge import canonical_json
    from equipoise_evals.judge.imported import ImportRefused, judge_imported
    from equipoise_service.results import ResultFileError, read_runs

    try:
        runs = [[run for file in files for run in read_runs(file, answer_filter)] for files in (baseline, candidate)]
        verdict, plan = judge_imported(
            runs[0],
            runs[1],
            margin_latency=share(margin_latency, "--margin-latency", "0.5%", least=1e-6, most=0.9),
            margin_accuracy_pp=points(margin_accuracy_pp, "--margin-accuracy-pp"),
        )
    except (ImportRefused, ResultFileError) as refused:
        raise CommandError(str(refused), ExitCode.USAGE) from refused
    if as_json or output is not None or not sys.stdout.isatty():
        write(canonical_json(verdict), output)
    else:
        from rich.console import Console

        from equipoise_service.cli.display import show_verdict

        show_verdict(Console(), verdict, plan)
    return OF_VERDICT[verdict.overall.word]
