"""One look at the database for all who wait for the same: fifty pages that show a comparison cost as much as one."""

import asyncio

from starlette.concurrency import run_in_threadpool

from equipoise_service.store import Store
from equipoise_service.store.events import Look


class Looks:
    """Shares looks among the listeners of one service, in its event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._under_way: dict[tuple[asyncio.Event, str, int], asyncio.Task[Look]] = {}

    async def after(self, ticket: asyncio.Event, comparison_id: str, seq: int) -> Look:
        """What follows event ``seq`` of a comparison, as of some moment after the bell gave out ``ticket``.

        A look that is under way is shared only by holders of the same ticket: one that began before a write would tell
        a holder of the next ticket nothing of it, and the ring that told of the write has passed.

        Raises:
            StorageUnavailable: The database cannot be read now.
        """
        key = ticket, comparison_id, seq
        look = self._under_way.get(key)
        if look is None:
            look = asyncio.create_task(run_in_threadpool(self._store.events.look, comparison_id, seq), name="look")
            self._under_way[key] = look
            look.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(look)  # one listener that leaves takes nothing from the others

    def _forget(self, key: tuple[asyncio.Event, str, int], done: "asyncio.Task[Look]") -> None:
        del self._under_way[key]
        if not done.cancelled():
            done.exception()  # every listener that is still there has been told
