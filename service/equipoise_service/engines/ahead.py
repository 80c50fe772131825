"""An engine that imports while another one of its launch pair runs alone, and waits at the plugin's gate for its turn.

Where engines run one after the other, most of a start is imports, which need no device. What the engine waits for is a
file; until then it holds no device memory, and its seconds count only from its turn on.
"""

import asyncio
import time

from equipoise_evals.model import Role
from equipoise_service.engines import logs
from equipoise_service.engines.engine import SGLangEngine

POLL_S = 0.2
IMPORTED = ("equipoise: at the start gate", "Init torch distributed begin")
"""Lines that come once a scheduler has imported everything: the plugin's, or SGLang's own where the plugin refused."""


class Ahead:
    """The engine that waits, if any; at most one."""

    def __init__(self) -> None:
        self._engine: SGLangEngine | None = None

    def wait(self, engine: SGLangEngine) -> None:
        """Keep ``engine``, which was just spawned with a gate that is closed."""
        self._engine = engine

    async def imported(self, limit_s: float) -> None:
        """Wait until it has imported everything or ended, ``limit_s`` at most: imports beside blocks disturb them."""
        deadline = time.monotonic() + limit_s
        while (engine := self._engine) and not engine.tree.exit.done() and time.monotonic() < deadline:
            if any(logs.mentions(engine.tree.log, line) for line in IMPORTED):
                return
            await asyncio.wait({engine.tree.exit}, timeout=POLL_S)

    def called(self, pair: int, role: Role) -> SGLangEngine | None:
        """Open the gate of the engine that waits as this role of this pair, whose time counts from now; or None."""
        engine = self._engine
        if engine is None or (engine.launch.pair, engine.role) != (pair, role):
            return None
        self._engine = None
        _to_its_turn(engine)
        engine.launch.start.files.gate.touch()
        return engine

    def dismissed(self) -> SGLangEngine | None:
        """The engine that waits and will not be called; whoever asks ends it."""
        engine, self._engine = self._engine, None
        if engine is not None:
            _to_its_turn(engine)
        return engine


def _to_its_turn(engine: SGLangEngine) -> None:
    engine.launch.ahead_s = time.monotonic() - engine.tree.started_s
