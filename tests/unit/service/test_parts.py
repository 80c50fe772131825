"""The small parts: bell, progress, the hold on the data folder, what becomes of an error, the socket."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from filelock import FileLock

from equipoise_evals.ports import EngineFault
from equipoise_service import errors
from equipoise_service.bell import Bell, heard
from equipoise_service.errors import DataInUse, EquipoiseError, Refusal, ServerError, UnknownModel
from equipoise_service.folder import Holder, holder_of, holding
from equipoise_service.progress import INTERVAL_S, EventProgress
from equipoise_service.server import Listening, bind, running_server
from equipoise_service.settings import Settings
from equipoise_service.store import NewComparison, Store
from equipoise_service.worker import stored_error


async def test_a_bell_is_heard_from_another_thread() -> None:
    bell = Bell()
    ticket = bell.ticket()
    thread = threading.Thread(target=bell.ring)
    thread.start()
    assert await heard(ticket, 10)
    thread.join()


async def test_a_ring_before_waiting_is_not_lost() -> None:
    bell = Bell()
    ticket = bell.ticket()
    bell.ring()
    await asyncio.sleep(0)
    assert await heard(ticket, 10)
    assert not await heard(bell.ticket(), 0.001)


def test_a_ring_after_the_end_does_nothing() -> None:
    async def make() -> Bell:
        return Bell()

    bell = asyncio.run(make())
    bell.ring()
    assert not bell.ticket().is_set()


def test_progress_is_thinned_but_never_misses_a_stages_ends(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'e.db'}")
    store.comparisons.add(NewComparison("c", "m", "{}", "0" * 64, "{}"))
    now_s = 0.0
    progress = EventProgress(store.events, "c", lambda: now_s)
    for done in range(11):
        progress("gsm8k", done, 10, "x")
    now_s += INTERVAL_S
    progress("gsm8k", 5, 10)
    progress("decode", 3, 10)
    payloads = [event.payload for event in store.events.after("c", 1)]
    assert payloads == [
        '{"stage":"gsm8k","done":0,"total":10,"detail":"x"}',
        '{"stage":"gsm8k","done":10,"total":10,"detail":"x"}',
        '{"stage":"gsm8k","done":5,"total":10,"detail":""}',
        '{"stage":"decode","done":3,"total":10,"detail":""}',
    ]
    store.database.close()


def test_who_only_asks_whose_a_folder_is_does_not_keep_a_service_from_it(tmp_path: Path) -> None:
    """As asking does, if for longer: the lock is held when the service comes, and let go of while it waits."""
    asking = FileLock(tmp_path / "service.lock", thread_local=False)
    asking.acquire()
    threading.Timer(0.1, asking.release).start()
    with holding(tmp_path, "http://x"):
        assert holder_of(tmp_path) == Holder(pid=os.getpid(), url="http://x")


def test_a_data_folder_is_held_by_one(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert holder_of(folder) is None
    with holding(folder, "http://x"):
        assert holder_of(folder) == Holder(pid=os.getpid(), url="http://x")
        with pytest.raises(DataInUse, match=f"in use by process {os.getpid()}"), holding(folder, None):
            pass
    assert holder_of(folder) is None
    with holding(folder, None):
        (folder / "service.json").write_text("half")
        with pytest.raises(DataInUse, match="another service"), holding(folder, None):
            pass


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom equipoise_service.folder import holding\n"
        "with holding(Path(sys.argv[1]), 'http://x'):\n    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert (tmp_path / "service.json").exists()
    assert holder_of(tmp_path) is None
    with holding(tmp_path, None):
        pass


def test_every_end_is_stored_with_its_reason() -> None:
    fault = stored_error(EngineFault("B", "gsm8k", "it died", "log"))
    assert (fault.arm, fault.stage, fault.reason, fault.log_tail) == ("B", "gsm8k", "it died", "log")
    refusal = stored_error(UnknownModel("no such model"))
    assert (refusal.arm, refusal.stage, refusal.reason) == (None, "prepare", "no such model")
    defect = stored_error(KeyError("x"))
    assert (defect.stage, defect.reason) == ("internal", "KeyError: 'x'")


def below(kind: type[EquipoiseError]) -> list[type[EquipoiseError]]:
    return [one for child in kind.__subclasses__() for one in (child, *below(child))]


def test_the_drawn_error_tree_is_the_real_one() -> None:
    drawn = [line for line in (errors.__doc__ or "").splitlines() if "─" in line]
    for kind in below(EquipoiseError):
        line = next(line for line in drawn if f" {kind.__name__} " in f"{line} ")
        if kind.__subclasses__():
            continue
        assert f" {kind.status}" in line, kind
    assert len(drawn) == len(below(EquipoiseError))


def test_only_refusals_reach_clients_with_a_client_status() -> None:
    for kind in below(EquipoiseError):
        if kind.status < 500:
            assert issubclass(kind, Refusal), kind
    types = [kind.type for kind in below(Refusal) if not kind.__subclasses__()]
    assert len(set(types)) == len(types) - 1  # both batch refusals are one kind of problem


def test_a_taken_port_says_so() -> None:
    first = bind("127.0.0.1", 0)
    first.socket.listen()
    with pytest.raises(ServerError, match="another program has it"):
        bind("127.0.0.1", first.port)
    first.socket.close()
    with pytest.raises(ServerError, match="cannot bind"):
        bind("203.0.113.1", 0)  # TEST-NET-3 of RFC 5737: nobody's


def test_an_address_is_written_as_a_client_needs_it() -> None:
    one = bind("127.0.0.1", 0)
    assert one.socket.proto == socket.IPPROTO_TCP  # or answers wait 40 ms each, see bind
    assert one.url == f"http://127.0.0.1:{one.port}"
    assert Listening(one.socket, "::1", 80).url == "http://[::1]:80"
    one.socket.close()


@pytest.mark.sqlite  # what is a folder is no file
async def test_a_service_that_cannot_start_says_so(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, device="simulated", database_url=f"sqlite:///{tmp_path}")
    listening = bind("127.0.0.1", 0)
    with pytest.raises(ServerError, match="did not start"):
        async with running_server(settings, listening, None):
            pass
    assert listening.socket.fileno() == -1
