"""Process trees: what belongs to one, how it ends, and that it ends with its parent, even by SIGKILL."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from equipoise_service.engines.process import ProcessTree, describe_exit
from tests.fakes.launching import ROOT

# Starts a child that detaches into a session of its own, and one that ignores SIGTERM; then sleeps.
FAMILY = """
import subprocess, sys, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
print("ready", flush=True)
time.sleep(600)
"""

# What the service does, in a process that can be killed.
PARENT = """
import asyncio, sys
from pathlib import Path
from equipoise_service.engines.process import ProcessTree

async def main():
    log, family = Path(sys.argv[1]), Path(sys.argv[2])
    await ProcessTree.spawn([sys.executable, str(family)], {}, "eq-parent", log, grace_s=0.5)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def spawn(tmp_path: Path, code: str, *, grace_s: float = 0.5, launch_id: str = "eq-test") -> ProcessTree:
    return await ProcessTree.spawn([sys.executable, "-c", code], {}, launch_id, tmp_path / "log", grace_s=grace_s)


async def until_ready(log: Path) -> None:
    deadline = time.monotonic() + 120
    while not log.exists() or "ready" not in log.read_text():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def running_sleepers(mark: str) -> list[int]:
    """Pids of every process with this launch's mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("EQUIPOISE_LAUNCH_ID") == mark:
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


async def test_a_tree_holds_detached_and_stubborn_members_and_all_of_them_end(tmp_path: Path) -> None:
    tree = await spawn(tmp_path, FAMILY)
    await until_ready(tree.log)

    assert len(tree.members()) == 4  # supervisor, program, the detached and the stubborn one
    stopped = await tree.stop()

    assert stopped.leftovers == ()
    assert stopped.held_s < 5
    assert tree.members() == []
    assert running_sleepers("eq-test") == []


async def test_the_engine_runs_in_a_session_and_group_that_are_not_ours(tmp_path: Path) -> None:
    tree = await spawn(tmp_path, "print('ready', flush=True); import time; time.sleep(600)")
    await until_ready(tree.log)
    program = max(tree.members(), key=lambda process: process.pid)

    assert os.getsid(program.pid) != os.getsid(0)
    assert os.getpgid(program.pid) == program.pid
    await tree.stop()


async def test_a_member_that_overwrites_its_environment_and_loses_its_supervisor_is_still_found(
    tmp_path: Path,
) -> None:
    """SGLang's scheduler renames itself, which overwrites what /proc shows of its environment."""
    code = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], env={})\n"
        "print('ready', flush=True); time.sleep(600)"
    )
    tree = await spawn(tmp_path, code)
    await until_ready(tree.log)
    nameless = [process for process in tree.members() if "EQUIPOISE_LAUNCH_ID" not in process.environ()]
    assert len(nameless) == 1
    supervisor = next(process for process in tree.members() if "supervisor.py" in " ".join(process.cmdline()))

    supervisor.kill()
    await asyncio.wait({tree.exit})
    stopped = await tree.stop()

    assert stopped.leftovers == ()
    # Its parent is the machine's init now, which may take its time to reap it.
    assert not nameless[0].is_running() or nameless[0].status() == psutil.STATUS_ZOMBIE


async def test_exit_status_and_log_of_a_program_that_ends_by_itself(tmp_path: Path) -> None:
    tree = await spawn(tmp_path, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")

    assert await tree.exit == 3
    assert tree.exit_text == "exited with status 3"
    assert sorted(tree.log_tail().splitlines()) == ["err", "out"]
    await tree.stop()


async def test_children_of_a_program_that_ended_do_not_survive_it(tmp_path: Path) -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)"
    tree = await spawn(tmp_path, code)

    async with asyncio.timeout(60):
        await tree.exit

    assert running_sleepers("eq-test") == []
    await tree.stop()


async def test_a_pid_that_is_somebody_elses_by_now_is_let_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = await spawn(tmp_path, "pass")
    await tree.exit
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as other:
        # The kernel gave the supervisor's number to another leader of a session.
        monkeypatch.setattr(tree, "_supervisor", SimpleNamespace(pid=other.pid))
        assert tree.members() == []
        assert (await tree.stop()).leftovers == ()
        assert other.poll() is None
        other.kill()


async def test_a_log_is_cut_short_while_it_is_written_and_its_end_is_kept(tmp_path: Path) -> None:
    # A4-21: 64 KB of limit, 3 MB of lines in bursts, so that the supervisor sees it grow several times.
    code = (
        "import time\n"
        "for n in range(30):\n"
        "    print(*(f'{n} {i:090d}' for i in range(1000)), sep='\\n', flush=True)\n"
        "    time.sleep(0.1)\n"
        "time.sleep(2); print('ready', flush=True); time.sleep(600)"
    )
    tree = await ProcessTree.spawn(
        [sys.executable, "-c", code], {}, "eq-log", tmp_path / "log", grace_s=0.5, log_bytes=65_536
    )
    await until_ready(tree.log)
    await tree.stop()

    older = (tmp_path / "log.1").read_bytes()
    assert len(older) == 65_536
    assert tree.log_tail().endswith("ready")
    # Nothing was written beyond a gap: the file is as long as what is in it.
    assert b"\0" not in tree.log.read_bytes() + older


async def test_secrets_are_in_no_log_and_no_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQ_TEST_TOKEN", "of-the-service-itself")
    code = "import os; print(os.environ['MY_SECRET'], 'of-the-service-itself', 'ready', flush=True)"
    tree = await ProcessTree.spawn(
        [sys.executable, "-c", code], {"MY_SECRET": "of-the-engine"}, "eq-secret", tmp_path / "log", grace_s=0.5
    )
    await tree.exit
    assert tree.log_tail() == "[removed] [removed] ready"
    await tree.stop()
    assert tree.log.read_text() == "[removed] [removed] ready\n"
    assert tree.log.stat().st_mode & 0o077 == 0


async def test_variables_are_exactly_those_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    tree = await spawn(tmp_path, "import os; print(sorted(set(os.environ) - {'LC_CTYPE'}))")

    await tree.exit

    assert tree.log_tail() == "['EQUIPOISE_LAUNCH_ID']"
    await tree.stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_tree_ends_with_its_parent(tmp_path: Path, number: signal.Signals) -> None:
    """The service dies by ``kill -9``: nobody is left to end the engine but its supervisor."""
    log, family = tmp_path / "log", tmp_path / "family.py"
    family.write_text(FAMILY)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(log), str(family)], cwd=ROOT)
    asyncio.run(until_ready(log))
    assert len(running_sleepers("eq-parent")) == 4

    parent.send_signal(number)
    parent.wait()

    deadline = time.monotonic() + 120
    while running_sleepers("eq-parent"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (0, "exited with status 0"),
        (1, "exited with status 1"),
        (137, "was killed by SIGKILL"),
        (-9, "was killed by SIGKILL"),
        (139, "was killed by SIGSEGV"),
        (250, "exited with status 250"),
    ],
)
def test_exit_statuses_in_words(status: int, says: str) -> None:
    assert describe_exit(status) == says
