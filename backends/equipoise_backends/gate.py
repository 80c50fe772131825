"""The start gate: a scheduler that has imported everything waits before it allocates, until a file is there.

Two engines that start on one GPU at the same moment corrupt SGLang's memory profiling, while most of a start is
imports. So the second engine imports beside the first, and waits here until the first has its memory; where engines
run one after the other, until it has ended. What is logged here are warnings: SGLang sets up its logging later, and
until then Python shows nothing less.
"""

import logging
import time
from pathlib import Path

logger = logging.getLogger(__name__)

LIMIT_S = 86_400.0
"""The first engine may be asked a thousand questions meanwhile. A service that dies takes who waits along."""
POLL_S = 0.05
SAID_EVERY_S = 10.0
"""A log that grows says that a start goes on."""


class GateError(Exception):
    """The gate never opened."""


def wait(gate: Path, limit_s: float = LIMIT_S) -> float:
    """Return the seconds waited until ``gate`` exists.

    Raises:
        GateError: It did not appear within ``limit_s``.
    """
    began_s = time.monotonic()
    said_s = began_s
    logger.warning("equipoise: at the start gate")
    while not gate.exists():
        now_s = time.monotonic()
        if now_s - began_s > limit_s:
            raise GateError(f"EQUIPOISE_START_GATE={str(gate)!r} did not appear within {limit_s:g} s")
        if now_s - said_s > SAID_EVERY_S:
            logger.warning("equipoise: still at the start gate after %.0f s", now_s - began_s)
            said_s = now_s
        time.sleep(POLL_S)
    waited_s = time.monotonic() - began_s
    logger.warning("equipoise: through the start gate after %.2f s", waited_s)
    return waited_s
