"""Kills a worker, by SIGKILL of its process, between two statements of a comparison, and lets another one go on.

``python -m tests.support.fault_points FOLDER first`` kills where each statement is executed first, ``last`` where those
of the experiment are executed last; each fault point becomes one line of JSON. The statements are those that a run
really executes, seen by a line tracer: the code under test knows nothing of fault points. Each run is a fork of one
process that has everything imported, since a service takes seconds to start. Engines are fakes; what becomes of real
processes when their service dies is tested elsewhere.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple, cast

from equipoise_evals import experiment
from equipoise_evals.gsm8k import measure, passes
from equipoise_service import measuring as measuring_module
from equipoise_service import worker as worker_module
from equipoise_service.bell import Bell
from equipoise_service.machine import Machine
from equipoise_service.measuring import Measuring, Tools
from equipoise_service.questions import prompts_of
from equipoise_service.requests import CompareRequest
from equipoise_service.resolve import resolve
from equipoise_service.settings import Settings
from equipoise_service.store import FINAL, Lease, NewComparison, Store, Stored, records, transitions
from equipoise_service.worker import Rules, Worker
from tests.integration.service.fake import FakeLauncher

ID = "01900000-0000-7000-8000-000000000000"
EXPERIMENT = tuple(str(module.__file__) for module in (experiment, measure, passes))
TRACED = (*EXPERIMENT, *(str(module.__file__) for module in (worker_module, measuring_module, records, transitions)))
REQUEST = {
    "model": "m", "questions": 3, "shots": 0, "concurrency": 1, "pairs_max": 2, "quads": 1, "steps_per_block": 16,
    "batch_sizes": [1], "primary_batch": 1,
}  # fmt: skip
ENDS_WITHIN_S = 60
UNFINISHED = 9
EVERY = 3
"""Of the worker's and the store's statements one in so many is a fault point; the whole takes a minute or two."""

When = Literal["first", "last"]


class Point(NamedTuple):
    """A statement that a run executes: the ``step``-th of all, at this line of this file."""

    step: int
    file: str
    line: int


class Tracer:
    """Counts the statements that are executed in the traced files, and calls ``act`` before each."""

    def __init__(self, act: Callable[[int, str, int], None]) -> None:
        self._act = act
        self._steps = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        """The global trace function."""
        if frame.f_code.co_filename not in TRACED:
            return None
        return self._line

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self._steps += 1
            self._act(self._steps, frame.f_code.co_filename, frame.f_lineno)
        return self._line


def work(settings: Settings, trace: Tracer | None) -> None:
    """What a service's worker does, until the comparison has ended."""

    async def until_ended() -> None:
        machine = Machine(settings)
        store = Store.open(settings.url_of_database)
        bell = Bell()
        store.database.listen(bell.ring)

        tools = Tools(
            launcher=lambda comparison_id, plan, recorder: FakeLauncher(recorder),
            prompts=lambda plan: prompts_of(plan, machine),
        )
        measuring = Measuring(store, tools, job_s=3_600.0, stall_s=3_600.0)
        worker = Worker(store, measuring, bell, Rules(Lease("here")))
        worker.recover()
        sys.settrace(trace)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(ENDS_WITHIN_S):
            while not ended(store):
                await asyncio.sleep(0.005)
        sys.settrace(None)
        running.cancel()
        await asyncio.wait({running})
        store.database.close()

    asyncio.run(until_ended())


def ended(store: Store) -> bool:
    """Whether the comparison has a final status."""
    stored = store.comparisons.get(ID)
    return stored is not None and stored.status in FINAL


def forked(run: Callable[[], None]) -> int:
    """Run in a fork of this process; its exit status, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - a fork must never return into the caller's code
            print(f"fault point: {error!r}", file=sys.stderr, flush=True)
            os._exit(UNFINISHED)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def settings_of(folder: Path) -> Settings:
    """Settings of a service in this folder."""
    return Settings(data=folder, cache=folder / "cache", device="simulated", gsm8k="shipped")


def queue_one(folder: Path) -> None:
    """A database with one queued comparison."""
    settings = settings_of(folder)
    request = CompareRequest.model_validate(REQUEST)
    plan = resolve(request, Machine(settings))
    store = Store.open(settings.url_of_database)
    new = NewComparison(ID, "m", request.model_dump_json(), request.sha256, plan.model_dump_json())
    store.comparisons.add(new)
    store.database.close()


def points_of(template: Path, folder: Path, when: When) -> list[Point]:
    """Every statement of the experiment where it is executed first, and some of what surrounds it; or where last."""
    copied(template, folder)
    log = folder / "points"

    def note(step: int, file: str, line: int) -> None:
        with log.open("a") as points:
            points.write(json.dumps([step, file, line]) + "\n")

    assert forked(lambda: work(settings_of(folder), Tracer(note))) == 0
    seen = [Point(*json.loads(line)) for line in log.read_text().splitlines()]
    first = {(point.file, point.line): point for point in reversed(seen)}
    if when == "last":
        last = {(point.file, point.line): point for point in seen if point.file in EXPERIMENT}
        return sorted({*last.values()} - {*first.values()})
    of_experiment = [point for point in first.values() if point.file in EXPERIMENT]
    others = sorted(point for point in first.values() if point.file not in EXPERIMENT)
    return sorted({*of_experiment, *others[::EVERY]})


def copied(template: Path, folder: Path) -> None:
    """A data folder like the template."""
    folder.mkdir(parents=True)
    shutil.copy(template / "equipoise.db", folder / "equipoise.db")


def state(folder: Path) -> tuple[Stored, list[str]]:
    """The comparison and the kinds of its records."""
    store = Store.open(settings_of(folder).url_of_database)
    stored = store.comparisons.get(ID)
    assert stored is not None
    kinds = [part.kind for part in store.records.parts(ID)]
    store.database.close()
    return stored, kinds


def killed_at(point: Point, template: Path, folder: Path) -> dict[str, object]:
    """Kill a run there, let another worker go on, and tell what became of it."""
    copied(template, folder)

    def kill(step: int, file: str, line: int) -> None:
        if step == point.step:
            os.kill(os.getpid(), signal.SIGKILL)

    died = forked(lambda: work(settings_of(folder), Tracer(kill)))
    between, kinds_between = state(folder)
    went_on = forked(lambda: work(settings_of(folder), None))
    stored, kinds = state(folder)
    shutil.rmtree(folder)
    return {
        "place": f"{Path(point.file).name}:{point.line}",
        "died": died,
        "between": between.status,
        "went_on": went_on,
        "status": stored.status,
        "verdict": stored.verdict,
        "kept": kinds[: len([kind for kind in kinds_between if kind != "answer"])]
        == [kind for kind in kinds_between if kind != "answer"],
        "questions": kinds.count("questions"),
        "passes": kinds.count("pass"),
    }


def main(folder: Path, when: When) -> None:
    """Print the undisturbed verdict, then what became of each fault point."""
    template = folder / "template"
    queue_one(template)
    points = points_of(template, folder / "undisturbed", when)
    undisturbed, _ = state(folder / "undisturbed")
    print(json.dumps({"verdict": undisturbed.verdict, "points": len(points)}), flush=True)
    for number, point in enumerate(points):
        print(json.dumps(killed_at(point, template, folder / f"point-{number}")), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), cast("When", sys.argv[2]))
