"""``make bench-verdict``: device seconds to a verdict, Equipoise beside fixed designs, in the same simulated worlds.

    python -m tests.support.bench_verdict

Writes ``docs/evidence/bench-verdict.md`` and puts its table into ``docs/calibration.md``, beside the method. A second
table has what the recorded runs on a GPU took. Ends with 1 if a promise is broken.
"""

import argparse
import json
import lzma
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from equipoise_evals.calibrate.designs import COST_CELLS, REFERENCE, CostCell, Tally, cost_table, tally_cell
from equipoise_evals.calibrate.run import clopper_pearson
from equipoise_evals.model import LaunchRecord, SpentRecord
from equipoise_service.interchange import RecordsDocument

ROOT = Path(__file__).resolve().parents[2]
HEADING = "## Device seconds to a verdict"
SEED = 20_261_130
NULL_RUNS, EFFECT_RUNS = 1_200, 400
BATCH = 100
PROCESSES = 2
PROMISED_SD = 0.003
"""Launch SD up to which the promises hold."""
LARGEST_SHARE = {"faster": 1 / 4.5, "equivalent": 1 / 3}
LARGEST_ERROR = 0.05
OURS = "Equipoise with A/A history"

METHOD = f"""{HEADING}

Every design gets the same simulated launch pairs and pays the same for them: an engine start takes 60 to 78 s and the
blocks of a pair 10 to 20 s, drawn evenly, what the first H200 host showed; in the records kept here (`h200/`) warm
starts take 27 to 49 s, 8 to 12 s of them once imports are done, so take the ratios rather than the seconds. Starts are
charged one after the other. `measure`, the looks and `conclude` are those of the product; fixed designs have one look,
at their end; the naive one takes the steps of one launch per arm for independent (Welch's t). The margin of
`equivalent` is 1 %. The history is fitted anew to six simulated A/A comparisons of three pairs, for hundreds of
machines; a machine pays for it once, and the last world's launches are 1.5 times less alike than its history says.
*False verdicts* are `faster` or `slower` at zero effect, `slower` or `equivalent` at an effect of -1.64 %. Means run
over all words.
"""

RECORDED = """Recorded on a GPU, latency only (`docs/evidence`). The start is that of an engine that imports for itself
(median, after the first of the comparison where there is one); 10 + 10 launches would cost ten times two of these and
the rest of a launch pair as recorded. Equipoise's engines import beside each other, which the fixed design's do not.
The start of `verdict-8b-alone-first` compiled kernels."""

Tallies = dict[str, dict[str, Tally]]


def tallied(runs: tuple[int, int] = (NULL_RUNS, EFFECT_RUNS), processes: int = PROCESSES) -> Tallies:
    """All cells; the number of processes changes nothing."""
    jobs = [
        (place, min(BATCH, wanted - begun), begun)
        for place, cell in enumerate(COST_CELLS)
        for wanted in (runs[cell.effect != 0],)
        for begun in range(0, wanted, BATCH)
    ]
    found: Tallies = {}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for (place, _, _), part in zip(jobs, pool.map(_tally, jobs), strict=True):
            of_cell = found.setdefault(COST_CELLS[place].name, {name: Tally() for name in part})
            for name, tally in part.items():
                of_cell[name] = of_cell[name].plus(tally)
    return found


def _tally(job: tuple[int, int, int]) -> dict[str, Tally]:
    place, runs, begun = job
    return tally_cell(COST_CELLS[place], runs, (SEED, place, begun))


def broken_promises(tallies: Mapping[str, Mapping[str, Tally]], cells: Sequence[CostCell] = COST_CELLS) -> list[str]:
    """Cells in which a verdict costs too much of the reference, or that err more than the product promises."""
    broken = []
    for cell in cells:
        ours, reference = tallies[cell.name][OURS], tallies[cell.name][REFERENCE]
        share = ours.mean_s / reference.mean_s
        if cell.launch_sd == cell.history_sd <= PROMISED_SD and share > LARGEST_SHARE[cell.right]:
            broken.append(f"{cell.name}: 1/{1 / share:.2f} of {REFERENCE}")
        if clopper_pearson(ours.wrong, ours.runs)[0] > LARGEST_ERROR:
            broken.append(f"{cell.name}: {ours.wrong} false verdicts in {ours.runs} runs")
    return broken


def recorded(folder: Path) -> list[str]:
    """Markdown lines: what each recorded run of launched engines took, and what 10 + 10 would at its start time.

    A start is one that imported for itself, after the comparison's first where there is one. Runs from before the
    stages of a launch pair were recorded are left out.
    """
    head = ("run", "device", "word", "launch pairs", "device seconds", "engine start, s", "10 + 10 at that start, s")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for path in sorted(folder.rglob("*.json")):
        kept = path.with_suffix(".records.json.xz")
        if not kept.exists():
            continue
        document = RecordsDocument.model_validate_json(lzma.decompress(kept.read_bytes()))
        verdict, spent = document.verdict, document.observed.of(SpentRecord)
        launches = [one for one in document.observed.of(LaunchRecord) if "spawn_to_ready" in one.stage_s]
        if verdict is None or verdict.latency is None or document.plan.accuracy is not None or not (launches and spent):
            continue
        whole = [one for one in launches if "ahead" not in one.stage_s]
        starts_s = [one.stage_s["spawn_to_ready"] for one in whole if one.pair > 1 or whole[-1].pair == 1]
        measuring_s = statistics.fmean(sum(one.stage_s.values()) - one.stage_s["launches"] for one in spent)
        start_s, spent_s = statistics.median(starts_s), verdict.cost.device_seconds
        device = json.loads(path.read_text())["gpu"].split(",")[0]
        word = f"{verdict.latency.word} ({verdict.overall.word})"
        fixed_s = 10 * (2 * start_s + measuring_s)
        numbers = (f"{verdict.cost.launch_pairs}", f"{spent_s:.0f}", f"{start_s:.0f}", f"{fixed_s:.0f}")
        lines.append(f"| {' | '.join((path.stem, device, word, *numbers))} |")
    return lines


def section(tallies: Tallies, seconds: float, gpu: Sequence[str] = ()) -> str:
    """What both files hold: the method, how it was made, the tables."""
    runs = sum(next(iter(of_cell.values())).runs for of_cell in tallies.values())
    how = f"Made by `make bench-verdict`, seed {SEED}: {runs:,} simulated comparisons in {seconds:.0f} s."
    tables = ["\n".join(cost_table(tallies))]
    if gpu:
        tables.append(f"{RECORDED}\n\n" + "\n".join(gpu))
    return "\n".join([METHOD, how, "", "\n\n".join(tables), ""])


def beside_the_method(page: str, text: str) -> str:
    """The calibration's page with this section at its end, in place of the one that it had."""
    before = page.partition(f"\n{HEADING}\n")[0].rstrip("\n")
    return f"{before}\n\n{text}"


def main() -> int:
    """Run all cells and write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--kept", action="store_true", help="run nothing; put the kept table beside the method again")
    arguments = parser.parse_args()
    kept, calibration = arguments.docs / "evidence" / "bench-verdict.md", arguments.docs / "calibration.md"
    if arguments.kept:
        calibration.write_text(beside_the_method(calibration.read_text(), f"#{kept.read_text()}"))
        return 0
    began_s = time.monotonic()
    tallies = tallied()
    gpu = recorded(arguments.docs / "evidence")
    text = section(tallies, time.monotonic() - began_s, gpu)
    kept.write_text(text.removeprefix("#"))
    calibration.write_text(beside_the_method(calibration.read_text(), text))
    print(text)
    broken = broken_promises(tallies)
    for promise in broken:
        print(f"broken: {promise}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
