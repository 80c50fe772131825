"""Engines that import while others start, and wait at the plugin's gate until it is their turn to take a device.

Most of a start is imports, which need no device. They come all together, beside a start that has to import as well:
beside decode blocks they would disturb what is measured. What an engine waits for is a file; until then it holds no
device memory, and its seconds count from its turn on.
"""

import asyncio
import time
from collections.abc import Iterator
from itertools import islice

from equipoise_evals.decode.schedule import launches
from equipoise_evals.model import Plan, Role
from equipoise_service.engines import logs
from equipoise_service.engines.engine import SGLangEngine

POLL_S = 0.2
IMPORTED = ("equipoise: at the start gate", "Init torch distributed begin")
"""Lines that come once a scheduler has imported everything: the plugin's, or SGLang's own where the plugin refused."""


def following(plan: Plan, pair: int, order: tuple[Role, ...], most: int) -> Iterator[tuple[int, Role]]:
    """Engines that import beside the launch of ``order`` in ``pair``: the rest of the pair, and ``most`` of later ones.

    Later pairs are those up to the next look, since nothing between two looks ends a comparison that goes well.
    """
    groups = launches(plan, pair)
    for group in groups[groups.index(order) + 1 if order in groups else len(groups) :]:
        yield from ((pair, role) for role in group)
    last = next((look for look in plan.looks if look >= pair), plan.pairs_max)
    later = (each for number in range(pair + 1, last + 1) for each in _engines(plan, number))
    yield from islice(later, most)


def _engines(plan: Plan, pair: int) -> Iterator[tuple[int, Role]]:
    yield from ((pair, role) for group in launches(plan, pair) for role in group)


class Ahead:
    """The engines that wait, in the order in which their turns come."""

    def __init__(self) -> None:
        self._waiting: list[SGLangEngine] = []

    def wait(self, engine: SGLangEngine) -> None:
        """Keep ``engine``, which was just spawned with a gate that is closed."""
        self._waiting.append(engine)

    async def imported(self, limit_s: float) -> None:
        """Wait until all have imported everything or ended, ``limit_s`` at most."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            importing = [engine for engine in self._waiting if not _has_imported(engine)]
            if not importing:
                return
            await asyncio.wait({importing[0].tree.exit}, timeout=POLL_S)

    def called(self, pair: int, role: Role) -> SGLangEngine | None:
        """The engine that waits as this role of this pair, if there is one: its time counts from now on."""
        for engine in self._waiting:
            if (engine.launch.pair, engine.role) == (pair, role):
                self._waiting.remove(engine)
                engine.launch.ahead_s = time.monotonic() - engine.tree.started_s
                return engine
        return None

    def dismissed(self) -> list[SGLangEngine]:
        """Those that will not be called; whoever asks ends them."""
        waiting, self._waiting = self._waiting, []
        return waiting


def _has_imported(engine: SGLangEngine) -> bool:
    return engine.tree.exit.done() or any(logs.mentions(engine.tree.log, line) for line in IMPORTED)
