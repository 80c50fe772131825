"""Commits that take effect although nobody hears of it: the connection breaks before the database's answer comes."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection

from equipoise_service.errors import StorageUnavailable
from equipoise_service.store.database import Database

Chosen = Callable[..., bool]


def lose_answer(patch: pytest.MonkeyPatch, of: type, method: str, chosen: Chosen = lambda *_: True) -> None:
    """Lose the answer to the commit of this method's first call whose arguments are ``chosen``."""
    inside = threading.local()  # others may write at the same time
    left = [1]
    write, original = Database.write, getattr(of, method)

    @contextlib.contextmanager
    def losing(database: Database) -> Iterator[Connection]:
        with write(database) as connection:
            yield connection
        if getattr(inside, "call", False) and left:
            left.pop()
            raise StorageUnavailable("it cannot be reached")

    def called(itself: object, *arguments: Any, **named: Any) -> Any:
        inside.call = chosen(*arguments)
        try:
            return original(itself, *arguments, **named)
        finally:
            inside.call = False

    patch.setattr(Database, "write", losing)
    patch.setattr(of, method, called)
