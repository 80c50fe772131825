"""Commits that take effect although nobody hears of it: the connection breaks before the database's answer comes."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection

from equipoise_service.errors import StorageUnavailable
from equipoise_service.store.database import Database

Chosen = Callable[..., bool]


def lose_answer(patch: pytest.MonkeyPatch, of: type, method: str, chosen: Chosen = lambda *_: True) -> None:
    """Lose the answer to the commit of this method's first call whose arguments are ``chosen``."""
    state = {"inside": False, "lost": False}
    write, original = Database.write, getattr(of, method)

    @contextlib.contextmanager
    def losing(database: Database) -> Iterator[Connection]:
        with write(database) as connection:
            yield connection
        if state["inside"] and not state["lost"]:
            state["lost"] = True
            raise StorageUnavailable("it cannot be reached")

    def called(itself: object, *arguments: Any, **named: Any) -> Any:
        state["inside"] = chosen(*arguments)
        try:
            return original(itself, *arguments, **named)
        finally:
            state["inside"] = False

    patch.setattr(Database, "write", losing)
    patch.setattr(of, method, called)
