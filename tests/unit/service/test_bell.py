"""The bell: a ring is heard, a timeout is not one, and a cancellation is never lost."""

import asyncio

import pytest

from equipoise_service.bell import Bell, heard

LONG_S = 60.0


async def test_a_ring_is_heard_by_everyone_who_waits() -> None:
    bell = Bell()
    waiting = [asyncio.create_task(heard(bell.ticket(), LONG_S)) for _ in range(3)]
    await asyncio.sleep(0)
    bell.ring()
    assert await asyncio.gather(*waiting) == [True, True, True]


async def test_silence_is_not_a_ring() -> None:
    assert not await heard(Bell().ticket(), 0.01)


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_that_meets_a_ring_still_cancels(turns: int) -> None:
    """However many turns of the loop lie between the ring and the cancellation, a task that goes on is a fault."""
    went_on = False

    async def worker(ticket: asyncio.Event) -> None:
        nonlocal went_on
        await heard(ticket, LONG_S)
        await asyncio.sleep(0)  # whoever was cancelled must not pass here
        went_on = True
        await asyncio.sleep(LONG_S)

    ticket = Bell().ticket()
    task = asyncio.create_task(worker(ticket))
    await asyncio.sleep(0)
    ticket.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    before = went_on
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(120):
            await task
    assert went_on == before
