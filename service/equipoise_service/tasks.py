"""Ends of work that a cancellation must not cut short: engines are gone, or a device stays held."""

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")
log = logging.getLogger(__name__)


async def to_the_end(work: Awaitable[T]) -> T:
    """Wait until ``work`` is done, however often this task is cancelled meanwhile; that is raised afterwards.

    Raises:
        CancelledError: This task was cancelled; ``work`` is done nevertheless, and what it failed with is the cause.
    """
    task = asyncio.ensure_future(work)
    order: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})  # which, other than awaiting the task, hands no cancellation on to it
        except asyncio.CancelledError as cancelled:
            order = cancelled
    if order is not None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            log.error("failed while this was cancelled", exc_info=failure)
        raise order from failure
    return task.result()


async def all_of(works: Iterable[Awaitable[T]]) -> list[T]:
    """Wait until each has ended, however many of them fail, and return what they gave.

    Raises:
        Exception: What the first of them failed with, once none is at work any more.
    """
    given: list[T] = []
    for end in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(end, BaseException):
            raise end
        given.append(end)
    return given


async def cancelled(task: "asyncio.Task[object] | asyncio.Task[None]") -> None:
    """Order a task to end and wait until it has, however often this one is cancelled meanwhile.

    Raises:
        Exception: What the task ended with, other than by the order.
    """
    task.cancel()
    await to_the_end(asyncio.wait({task}))
    if not task.cancelled():
        task.result()
