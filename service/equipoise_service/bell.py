"""Wakes coroutines when something was written; what it was they read in the database."""

import asyncio


class Bell:
    """Rung from any thread, heard in one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake everyone who waits now."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def ticket(self) -> asyncio.Event:
        """Set at the next ring. Take it before looking at the database, so that no write between the two is missed."""
        return self._rung

    def _wake(self) -> None:
        self._rung.set()
        self._rung = asyncio.Event()


async def heard(ticket: asyncio.Event, timeout_s: float) -> bool:
    """Wait for a ticket; False after ``timeout_s`` without a ring."""
    try:
        async with asyncio.timeout(timeout_s):
            await ticket.wait()
    except TimeoutError:
        return False
    return True
