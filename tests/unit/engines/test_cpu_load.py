"""Foreign load on the CPU. Ticks are those of proc(5), 100 a second; expected cores are worked out by hand."""

import asyncio
import sys

import pytest

from equipoise_service.engines import cpu_load
from equipoise_service.engines.cpu_load import CpuLoad, Reading, busy_seconds, disturbance, foreign_cores

# user nice system idle iowait irq softirq steal guest guest_nice
STAT = """cpu  9999 9999 9999 9999 9999 9999 9999 9999 0 0
cpu0 100 10 50 1000 30 5 5 30 7 0
cpu1 400 0 0 1000 0 0 0 0 0 0
cpu2 700 0 0 1000 0 0 0 0 0 0
intr 12345
"""


def test_busy_time_is_that_of_the_cores_that_engines_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_load, "TICKS_PER_S", 100)
    assert busy_seconds(STAT, {0}) == 2.0  # 100 + 10 + 50 + 5 + 5 + 30
    assert busy_seconds(STAT, {0, 1}) == 6.0


@pytest.mark.parametrize(
    ("busy_s", "ours_s", "cores"), [(20.0, 10.0, 1.0), (10.0, 10.0, 0.0), (9.9, 10.0, 0.0), (14.0, 10.0, 0.4)]
)
def test_what_is_not_ours_is_foreign(busy_s: float, ours_s: float, cores: float) -> None:
    first, last = Reading(5.0, 100.0, 50.0), Reading(15.0, 100.0 + busy_s, 50.0 + ours_s)
    assert foreign_cores(first, last) == pytest.approx(cores)
    assert (disturbance(cores) is not None) == (cores > 0.5)


BURN = "import time\nwhile True: time.process_time()"


async def test_work_of_our_children_is_ours_and_would_disturb_if_it_were_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """One loop burns a core for a second, or what a busy machine leaves it of one."""
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", BURN)
    before_s = cpu_load._ours()
    await asyncio.sleep(1.0)
    assert cpu_load._ours() - before_s > 0.1
    monkeypatch.setattr(cpu_load, "_ours", lambda: 0.0)
    async with CpuLoad() as load:
        await asyncio.sleep(1.0)
    child.kill()
    await child.wait()
    cores = load.summary()["foreign_cores"]
    assert isinstance(cores, float)
    assert cores > 0.1
    assert (load.disturbance() is not None) == (cores > cpu_load.DISTURBING_CORES)
