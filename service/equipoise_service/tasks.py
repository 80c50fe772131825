"""Ends of work that a cancellation must not cut short: engines are gone, or a device stays held."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def to_the_end(work: Awaitable[T]) -> T:
    """Wait until ``work`` is done, however often this task is cancelled meanwhile; that is raised afterwards.

    Raises:
        CancelledError: This task was cancelled; ``work`` is done nevertheless.
    """
    task = asyncio.ensure_future(work)
    order: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})  # which, other than awaiting the task, hands no cancellation on to it
        except asyncio.CancelledError as cancelled:
            order = cancelled
    result = task.result()
    if order is not None:
        raise order
    return result


async def cancelled(task: "asyncio.Task[object] | asyncio.Task[None]") -> None:
    """Order a task to end and wait until it has, however often this one is cancelled meanwhile.

    Raises:
        Exception: What the task ended with, other than by the order.
    """
    task.cancel()
    await to_the_end(asyncio.wait({task}))
    if not task.cancelled():
        task.result()
