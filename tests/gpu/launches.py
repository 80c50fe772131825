"""How far launches differed in the stored A/A runs of a folder: what the records give a machine's history.

python -m tests.gpu.launches docs/evidence/h200 > docs/evidence/h200-launches.md
"""

import argparse
import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import stdev
from typing import NamedTuple

from equipoise_evals.model import ArmSpec, LatencyContrast, LaunchRecord, TreatmentInactive
from equipoise_service.interchange import RecordsDocument

HEAD = """# Launches of equal arms on H200s

Every declared A/A comparison below `h200/`: what its launch pairs' log-ratios of busy time differ by (SD, in percent),
and whether its verdict is a false `faster` or `slower`. Runs marked *traced* timed the first pair after its engines
were traced, which is done no more. Made by `python -m tests.gpu.launches docs/evidence/h200`.
"""
COLUMNS = (
    "record",
    "began",
    "model",
    "layout",
    "pairs",
    "SD at batch 16",
    "SD at batch 1",
    "latency",
    "first pair",
    "host",
)


class Run(NamedTuple):
    """One stored A/A run, and whether a trace came before its first blocks."""

    name: str
    document: RecordsDocument
    traced_first: bool

    @property
    def word(self) -> str:
        """The word on latency."""
        verdict = self.document.verdict
        return "none" if verdict is None or verdict.latency is None else verdict.latency.word

    @property
    def is_false(self) -> bool:
        """Whether it tells equal arms apart."""
        return self.word in {"faster", "slower"}


def runs(folder: Path) -> list[Run]:
    """The declared A/A runs of at least two launch pairs, without an injected delay, by when they began."""
    found = []
    for path in sorted(folder.glob("*.records.json.xz")):
        document = RecordsDocument.model_validate_json(lzma.decompress(path.read_bytes()))
        verdict = document.verdict
        if verdict is None or not document.plan.declared_aa or verdict.latency is None:
            continue
        delayed = any("EQUIPOISE_TEST_DELAY_US" in arm.environment for arm in arms(document))
        if isinstance(verdict.overall, TreatmentInactive) or delayed or verdict.latency.evidence.busy.pairs < 2:
            continue
        kinds = [record.kind for record in document.observed.records if record.kind in {"treatment", "block"}]
        found.append(Run(path.name.removesuffix(".records.json.xz"), document, kinds[0] == "treatment"))
    return sorted(found, key=lambda run: began(run.document))


def arms(document: RecordsDocument) -> tuple[ArmSpec, ArmSpec]:
    """Both arms of the plan."""
    return (document.plan.arms.baseline, document.plan.arms.candidate)


def began(document: RecordsDocument) -> str:
    """When the first engine was started."""
    return min(launch.started_at for launch in document.observed.of(LaunchRecord))


def host(document: RecordsDocument) -> str:
    """The digest of the host's name and its driver; hosts made of one image share a name."""
    machine = document.observed.of(LaunchRecord)[0].server_info.get("machine")
    return f"{machine.get('host')}, {machine.get('driver')}" if isinstance(machine, dict) else "not recorded"


def contrasts(document: RecordsDocument) -> Iterable[LatencyContrast]:
    """Busy time at every batch size."""
    latency = document.verdict.latency if document.verdict else None
    if latency is None:
        return ()
    return [latency.evidence.busy, *(one for one in latency.evidence.secondary if one.metric == "busy")]


def launch_sd(document: RecordsDocument, batch: int) -> str:
    """SD of the log-ratios at a batch size, of the units that decide, in percent; a dash where it was not timed."""
    logs = [one.unit_logs for one in contrasts(document) if one.batch == batch]
    return f"{100 * stdev(logs[0]):.2f} %" if logs else "-"


def table(found: Sequence[Run]) -> str:
    """The page, as Markdown."""
    rows = [
        (
            f"`{run.name}`",
            began(run.document)[:16].replace("T", " "),
            Path(run.document.plan.model.path).name,
            run.document.plan.layout,
            str(run.document.observed.of(LaunchRecord)[-1].pair),
            launch_sd(run.document, 16),
            launch_sd(run.document, 1),
            run.word,
            "traced" if run.traced_first else "clean",
            host(run.document),
        )
        for run in found
    ]
    lines = ["| " + " | ".join(row) + " |" for row in (COLUMNS, ("---",) * len(COLUMNS), *rows)]
    false = sum(run.is_false for run in found)
    return "\n".join([HEAD, *lines, "", f"{len(found)} comparisons, {false} of them with a false verdict."])


def main() -> None:
    """Print the page of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    print(table(runs(parser.parse_args().folder)))


if __name__ == "__main__":
    main()
