import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from equipoise_service import logs
from equipoise_service.access.secrets import new_token
from equipoise_service.logs import Format, configure

log = logging.getLogger("equipoise_service.test")


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, httpx_level = root.handlers[:], root.level, logging.getLogger("httpx").level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("httpx").setLevel(httpx_level)


def written(form: Format, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure(level, form, stream)
    return stream


async def test_a_line_names_its_comparison_in_tasks_and_threads() -> None:
    stream = written("json")

    async def work(name: str) -> None:
        logs.comparison.set(name)
        log.info("in the task")
        await asyncio.to_thread(log.warning, "in a thread of %s", name)

    await asyncio.gather(asyncio.create_task(work("one")), asyncio.create_task(work("two")))
    log.info("outside", extra={"stage": "start"})
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    found = {(line["message"], line.get("comparison")) for line in lines if line["logger"] == log.name}
    assert found == {
        ("in the task", "one"), ("in the task", "two"), ("in a thread of one", "one"), ("in a thread of two", "two"),
        ("outside", None),
    }  # fmt: skip
    last = lines[-1]
    assert (last["stage"], last["level"], last["time"][-1]) == ("start", "info", "Z")


def test_text_lines_name_it_too() -> None:
    stream = written("text")
    token = logs.comparison.set("one")
    log.error("bad")
    logs.comparison.reset(token)
    log.error("worse")
    log.warning("about it", extra={"comparison": "two"})
    first, second, third = stream.getvalue().splitlines()
    assert first.endswith("ERROR equipoise_service.test [one] bad")
    assert third.endswith("WARNING equipoise_service.test [two] about it")
    assert second.endswith("ERROR equipoise_service.test worse")


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_line_holds_a_secret(form: Format) -> None:
    stream = written(form, "debug")
    token = new_token()
    log.info("Authorization: Bearer %s", token.text)
    log.info("x", extra={"shown": token.text})
    try:
        raise ValueError(f"bad {token.text}")
    except ValueError:
        log.exception("failed")
    assert "ValueError" in stream.getvalue()
    assert token.text not in stream.getvalue()
    assert token.text.split("_", 2)[2] not in stream.getvalue()
    logging.getLogger("httpx").info("HTTP Request: POST https://example.com/hook?secret=1")
    assert "secret=1" not in stream.getvalue()
