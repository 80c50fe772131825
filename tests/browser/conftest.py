"""Debian's Chromium over a service with prepared comparisons; every test sees that nothing left the host.

Screenshots go to ``test-output/browser``.
"""

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.base import AXE_FILE_PATH
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, sync_playwright

from equipoise_evals.model import Plan
from equipoise_evals.ports import Launcher, Recorder
from equipoise_service.server import bind, running_server
from equipoise_service.settings import Settings
from equipoise_service.store import Store, StoredError
from tests.integration.service.fake import Call, FakeLauncher
from tests.support import records as make
from tests.support import stored as keep
from tests.support.worlds import attested, declared_aa, every_word, observed, parted_passes

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "test-output" / "browser"
HOSTILE = "<img src=x onerror=alert(1)>"
REFUSED = "Failed to load resource: the server responded with a status of 4"
"""Expected of the page itself, which then says what is wrong; of nothing that it loads."""
EXPECTED = (
    "Failed to load resource: net::ERR_INTERNET_DISCONNECTED",  # a test that takes the network away
    "not redrawn: ",
)
GRAVE = {"serious", "critical"}
"""Impacts of axe's findings that no page may have."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is marked, wherever it is run from."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker("browser")


def chromium_path() -> str | None:
    """Debian's Chromium, or the one that TEST_CHROMIUM names."""
    return os.environ.get("TEST_CHROMIUM") or shutil.which("chromium")


def chromium_arguments() -> list[str]:
    """Chromium's sandbox needs a user that is not root."""
    return ["--no-sandbox"] if os.geteuid() == 0 else []


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = chromium_path()
    if path is None:
        missing = "Chromium is missing: `make browser` says how to get Debian's, TEST_CHROMIUM names another"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=chromium_arguments())
        yield browser
        browser.close()


class Site(NamedTuple):
    """A running service, its store, and the ids of prepared comparisons by what they show.

    ``paused`` holds the engines of submitted comparisons up before their decode blocks of a pair above the first.
    """

    url: str
    store: Store
    ids: dict[str, str]
    paused: threading.Event

    def page_of(self, name: str) -> str:
        """The address of a prepared comparison's page."""
        return f"{self.url}/comparisons/{self.ids[name]}/page"


def prepared(store: Store) -> dict[str, str]:
    """A comparison of every verdict's word, of both ends without one, and one full of markup."""
    ids = {word: keep.finish(store, *world).id for word, world in every_word().items()}
    plan = make.plan(model=make.plan().model.model_copy(update={"name": HOSTILE, "revision": HOSTILE}))
    hostile = observed(plan, effect=0.03, passes=parted_passes(f"{HOSTILE}<script>alert(2)</script> "))
    ids["hostile"] = keep.finish(store, *hostile).id
    ids["aa"] = keep.finish(store, *declared_aa()).id
    ids["upgraded"] = keep.finish(store, *attested(every_word()["ship"], "0.5.23")).id
    ids["failed"] = keep.add(store, make.plan())
    store.comparisons.claim(keep.LEASE)
    error = StoredError(arm="B", stage="start", reason=f"the engine said {HOSTILE}", log_tail=HOSTILE)
    store.comparisons.fail(ids["failed"], error)
    ids["cancelled"] = keep.add(store, make.plan())
    store.comparisons.cancel(ids["cancelled"], "cancelled on request")
    return ids


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    settings = Settings(data=folder / "data", cache=folder / "cache", device="simulated")
    store = Store.open(settings.url_of_database)
    ids = prepared(store)
    listening = bind("127.0.0.1", 0)
    paused, ready, stop = threading.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def hold(call: Call) -> None:
        while paused.is_set() and call.method == "decode" and call.pair > 1:
            await asyncio.sleep(0.02)

    def launcher(comparison_id: str, plan: Plan, recorder: Recorder) -> Launcher:
        del comparison_id, plan
        return FakeLauncher(recorder, hold)

    async def serve() -> None:
        async with running_server(settings, listening, None, launcher):
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="site")
    thread.start()
    assert ready.wait(30)
    yield Site(listening.url, store, ids, paused)
    paused.clear()
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)
    loop.close()
    store.database.close()


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    context = chromium.new_context(viewport={"width": 1100, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(20_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that asked for nothing beyond this host, ran no alert and whose console stayed empty."""
    page = context.new_page()
    hosts: set[str] = set()
    said: list[str] = []

    def on_request(request: Request) -> None:
        hosts.add(urlsplit(request.url).hostname or "")

    def on_console(message: ConsoleMessage) -> None:
        refused = message.text.startswith(REFUSED) and message.location["url"] == page.url
        if not refused and not message.text.startswith(EXPECTED):
            said.append(f"{message.text} {message.location['url']}")

    def on_dialog(dialog: Dialog) -> None:
        said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("request", on_request)
    page.on("console", on_console)
    page.on("dialog", on_dialog)
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    assert hosts <= {"127.0.0.1", ""}
    assert said == []


Look = Callable[[Page, str], None]


@pytest.fixture(scope="session")
def look() -> Look:
    """Takes a picture of a page and asks axe about it."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    axe = AXE_FILE_PATH.read_text()

    def look(page: Page, name: str) -> None:
        page.screenshot(path=SHOTS / f"{name}.png", full_page=True)
        # Through the debugger, which the page's content security policy does not bind.
        page.evaluate(axe)
        found = page.evaluate("() => axe.run({resultTypes: ['violations']})")["violations"]
        grave = [
            f"{one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]}" for one in found if one["impact"] in GRAVE
        ]
        assert grave == []

    return look
