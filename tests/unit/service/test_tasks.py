"""Work that a cancellation must not cut short comes to its end, however often its waiter is cancelled."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any, cast

import pytest

from equipoise_service.bell import Bell
from equipoise_service.engines.launcher import _never_lost
from equipoise_service.ids import new_id
from equipoise_service.measuring import Concluded
from equipoise_service.slots import Slots
from equipoise_service.store import Holder, Lease, NewComparison, Status, Store, Stored
from equipoise_service.tasks import cancelled, to_the_end
from equipoise_service.worker import Rules, Worker


async def cancel_often(task: "asyncio.Task[Any]", times: int) -> None:
    """Cancel a task, and again whenever it has had the time to hear of it."""
    for _ in range(times):
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_the_end_comes_before_the_cancellation(times: int) -> None:
    order: list[str] = []
    may_end = asyncio.Event()

    async def work() -> None:
        await may_end.wait()
        order.append("done")

    async def waiter() -> None:
        try:
            await to_the_end(work())
        finally:
            order.append("left")

    task = asyncio.create_task(waiter())
    await asyncio.sleep(0)
    await cancel_often(task, times)
    assert order == []
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert order == ["done", "left"]


async def test_a_cancellation_is_not_lost_where_the_work_fails() -> None:
    may_end = asyncio.Event()

    async def broken() -> None:
        await may_end.wait()
        raise ValueError("why")

    task = asyncio.create_task(to_the_end(broken()))
    await asyncio.sleep(0)
    await cancel_often(task, 2)
    may_end.set()
    with pytest.raises(asyncio.CancelledError) as order:
        await task
    assert isinstance(order.value.__cause__, ValueError)


async def test_what_work_gives_or_raises_is_handed_on() -> None:
    async def broken() -> None:
        raise ValueError("why")

    assert await to_the_end(asyncio.sleep(0, "value")) == "value"
    with pytest.raises(ValueError, match="why"):
        await to_the_end(broken())


async def test_a_cancelled_task_is_waited_for_and_only_its_own_failure_is_raised() -> None:
    ended: list[str] = []

    async def lasts(fails: bool) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("ended")
            if fails:
                raise ValueError("why")

    for fails in (False, True):
        task = asyncio.create_task(lasts(fails))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="why") if fails else contextlib.nullcontext():
            await cancelled(task)
    assert ended == ["ended", "ended"]


async def test_a_process_that_appears_after_two_cancellations_is_ended_again() -> None:
    """The first cancellation waits for the process to appear; the second must not leave it alone then."""
    appears, ends, stopped = asyncio.Event(), asyncio.Event(), []

    class Tree:
        async def stop(self) -> None:
            await ends.wait()
            stopped.append(self)

    async def spawn() -> Any:
        await appears.wait()
        return Tree()

    task = asyncio.create_task(_never_lost(spawn()))
    await asyncio.sleep(0)
    await cancel_often(task, 2)
    appears.set()
    await cancel_often(task, 2)
    ends.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(stopped) == 1


async def test_a_service_that_is_told_twice_to_end_still_ends_its_engines_once(tmp_path: Path) -> None:
    """Whoever ends the slots is cancelled again and again; what they measure hears of one order, and ends in order."""
    store = Store.open(f"sqlite:///{tmp_path / 'equipoise.db'}")
    comparison_id, begun, may_end, orders = new_id(), asyncio.Event(), asyncio.Event(), []

    class Slow:
        async def measure(self, stored: Stored, holder: Holder) -> Concluded:
            begun.set()
            try:
                return cast(Concluded, await asyncio.Event().wait())
            except asyncio.CancelledError:
                orders.append(holder)
                await may_end.wait()
                orders.append(holder)
                raise

    store.comparisons.add(NewComparison(comparison_id, "m", "{}", "0" * 64, "{}"))
    slots = Slots([Worker(store, Slow(), Bell(), Rules(Lease("here")))])
    running = asyncio.create_task(slots.run())
    await begun.wait()
    await cancel_often(running, 3)
    assert len(orders) == 1
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(orders) == 2
    stored = store.comparisons.get(comparison_id)
    assert stored is not None
    assert stored.status is Status.QUEUED  # the next service goes on with it
    store.database.close()
