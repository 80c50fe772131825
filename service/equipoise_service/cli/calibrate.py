"""``equipoise calibrate``: how often the production judge errs, in simulated worlds whose truth is known."""

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from equipoise_service.cli.options import Output, write

if TYPE_CHECKING:
    from equipoise_evals.calibrate.run import Cell, CellResult, Counted

BATCH = 250
"""Runs that one process does at a time; each batch has its own seed, so the number of processes changes nothing."""

Job = tuple["Cell", int, tuple[int, ...]]


def calibrate(  # noqa: PLR0917 - one parameter an option
    grid: Annotated[Literal["full", "ci"], typer.Option(help="All cells, or the small grid of CI.")] = "full",
    runs: Annotated[int, typer.Option(min=1, help="Runs of each latency cell that asks for errors.")] = 10_000,
    effect_runs: Annotated[int, typer.Option(min=1, help="Runs of each other cell.")] = 2_000,
    processes: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    seed: Annotated[int, typer.Option(help="Root of every simulated world.")] = 20_261_129,
    output: Output = None,
) -> int:
    """Drive the production judge through simulated comparisons and print a table of its errors; 1 if a limit breaks."""
    from equipoise_evals.calibrate.grid import ACCURACY_CELLS, LATENCY_CELLS, LatencyCell
    from equipoise_evals.calibrate.run import result
    from equipoise_evals.calibrate.table import page

    started = time.monotonic()
    every: tuple[Cell, ...] = (*LATENCY_CELLS, *ACCURACY_CELLS)
    cells = [cell for cell in every if grid == "full" or cell.ci]
    wanted = [runs if isinstance(cell, LatencyCell) and cell.question != "power" else effect_runs for cell in cells]
    jobs: list[tuple[int, Job]] = [
        (place, (cell, min(BATCH, count - begun), (seed, place, begun)))
        for place, (cell, count) in enumerate(zip(cells, wanted, strict=True))
        for begun in range(0, count, BATCH)
    ]
    counted: dict[int, Counted] = {}
    for done, (place, batch) in enumerate(_counts(jobs, processes), start=1):
        counted[place] = counted[place].plus(batch) if place in counted else batch
        print(f"\r{done} of {len(jobs)} batches", end="", file=sys.stderr)  # noqa: T201 - progress for who waits
    results = [result(cell, counted[place]) for place, cell in enumerate(cells)]
    seconds = time.monotonic() - started
    print(f", {seconds:.0f} s", file=sys.stderr)  # noqa: T201
    write(page(results, _how(grid, sum(wanted), processes, seed, seconds)), output)
    return _report_broken(results)


def _how(grid: str, runs: int, processes: int, seed: int, seconds: float) -> str:
    return (
        f"Made by `equipoise calibrate --grid {grid} --seed {seed}`: {runs:,} simulated comparisons in {seconds:.0f} s "
        f"on {processes} processes."
    )


def _counts(jobs: list[tuple[int, Job]], processes: int) -> Iterator[tuple[int, "Counted"]]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from zip((place for place, _ in jobs), pool.map(_count, (job for _, job in jobs)), strict=True)


def _count(job: Job) -> "Counted":
    from equipoise_evals.calibrate.run import count_cell

    cell, runs, seed = job
    return count_cell(cell, runs, seed)


def _report_broken(results: "list[CellResult]") -> int:
    broken = [r for r in results if r.holds is False or not r.coverage_holds]
    for r in broken:
        what = "coverage" if not r.coverage_holds else f"{r.rate:.2%} ({r.low:.2%} to {r.high:.2%})"
        print(f"limit broken: {r.cell.name}: {what}", file=sys.stderr)  # noqa: T201
    return 1 if broken else 0
