"""Several workers of one service, one comparison each at a time: its slots. One on this machine, more on a cluster."""

import asyncio
from collections.abc import Sequence

from equipoise_service.tasks import to_the_end
from equipoise_service.worker import Worker


class Slots:
    """The workers of one service."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = tuple(workers)

    def recover(self) -> None:
        """What each worker's own earlier life left behind; call it before they run."""
        for worker in self._workers:
            worker.recover()

    async def run(self) -> None:
        """Work until cancelled; the end of one worker ends all: a service with half its slots is not well."""
        lives = [asyncio.ensure_future(worker.run()) for worker in self._workers]
        try:
            await asyncio.wait(lives, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for life in lives:
                life.cancel()
            await to_the_end(asyncio.wait(lives))
        for life in lives:
            if not life.cancelled():
                life.result()

    def cancel(self, comparison_id: str) -> None:
        """Cancel a comparison, by the worker that is at work on it; any of them if none is. Raises as ``Worker``."""
        at_work = (worker for worker in self._workers if worker.works_on(comparison_id))
        next(at_work, self._workers[0]).cancel(comparison_id)
