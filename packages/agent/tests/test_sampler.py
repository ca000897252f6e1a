"""Readings of a driver: all of it, some of it, or nothing."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_driver import FakeDriver, needs_compiler
from pages import read_page, values_of

pytestmark = needs_compiler

LOOK = """
import sys, time
from loadfactor_agent.page_server import write_page
from loadfactor_agent.notices import Notices
from loadfactor_agent.sampler import Sampler
sampler = Sampler(Notices(), "n1")
for command in sys.stdin:
    print(write_page(sampler.sample(float(command))), "END", sep="", flush=True)
"""


def look(driver: FakeDriver) -> str:
    """The page after two looks."""
    done = driver.run("-m", "loadfactor_agent", "--once")
    assert done.returncode == 0, done.stderr
    return done.stdout


class Watched:
    """A sampler in a process that is asked again and again."""

    def __init__(self, driver: FakeDriver) -> None:
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen([sys.executable, "-c", LOOK], env=driver.environment, text=True, **pipes)

    def look(self, within_s: float = 240.0) -> str:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{within_s}\n")
        self.process.stdin.flush()
        lines: list[str] = []
        while (line := self.process.stdout.readline()) != "END\n":
            assert line, self.process.stderr and self.process.stderr.read()
            lines.append(line)
        return "".join(lines)

    def end(self) -> str:
        self.process.kill()
        return self.process.communicate()[1]


def test_says_what_the_driver_says(tmp_path: Path) -> None:
    """Every number of the driver appears under DCGM's name and in DCGM's unit."""
    driver = FakeDriver(tmp_path)
    driver.set(1, util=97, mem_util=31, used_mib=1234, power_mw=412_500, energy_mj=987_654_321, temp=71, clock=1755)
    driver.set(1, throttle=4, tx=2048, rx=4096, sm=88.5, tensor=40.25, dram=12.5, ecc=3, replays=5, xid=31)
    found = values_of(read_page(look(driver)), 1)
    assert found == {
        "DEV_GPU_UTIL": 97, "DEV_MEM_COPY_UTIL": 31,
        "DEV_FB_USED": 1234, "DEV_FB_RESERVED": 500, "DEV_FB_TOTAL": 81559, "DEV_FB_FREE": 81559 - 500 - 1234,
        "DEV_POWER_USAGE": 412.5, "DEV_TOTAL_ENERGY_CONSUMPTION": 987_654_321,
        "DEV_GPU_TEMP": 71, "DEV_MEMORY_TEMP": 79, "DEV_SM_CLOCK": 1755, "DEV_MEM_CLOCK": 2619,
        "DEV_CLOCK_THROTTLE_REASONS": 4, "DEV_XID_ERRORS": 31, "DEV_PCIE_REPLAY_COUNTER": 5,
        "DEV_ECC_SBE_VOL_TOTAL": 3, "DEV_ECC_DBE_VOL_TOTAL": 3, "DEV_ECC_SBE_AGG_TOTAL": 3, "DEV_ECC_DBE_AGG_TOTAL": 3,
        "PROF_GR_ENGINE_ACTIVE": 0.885, "PROF_SM_ACTIVE": 0.885, "PROF_PIPE_TENSOR_ACTIVE": 0.4025,
        "PROF_DRAM_ACTIVE": 0.125, "PROF_PCIE_TX_BYTES": 2 * 1024**2, "PROF_PCIE_RX_BYTES": 4 * 1024**2,
    }  # fmt: skip


def test_old_driver_is_read_without_what_it_lacks(tmp_path: Path) -> None:
    """Functions that are not there are left out and said once, not once a GPU; everything else is read."""
    driver = FakeDriver(tmp_path, old=True)
    driver.set(old=1, count=4, tx=3, nvlink_kib=7)
    done = driver.run("-m", "loadfactor_agent", "--once")
    found = values_of(read_page(done.stdout), 3)
    assert found["DEV_GPU_UTIL"] == 53
    assert found["DEV_FB_USED"] == 40000
    assert found["PROF_PCIE_TX_BYTES"] == 3 * 1024
    assert found["PROF_NVLINK_TX_BYTES_TOTAL"] == 7 * 1024
    assert not {"DEV_FB_RESERVED", "PROF_SM_ACTIVE"} & set(found)
    said = done.stderr.splitlines()
    assert sum("gives no GPM" in line for line in said) == 1
    assert len(said) == len(set(said)) == 3, said  # GPM, reserved memory, MIG


def test_mig_instances_are_devices_of_their_own(tmp_path: Path) -> None:
    """Each GPU instance has its memory and profile; the GPU itself says no utilization then."""
    driver = FakeDriver(tmp_path)
    driver.set(0, mig=2)
    lines = read_page(look(driver))
    assert values_of(lines, 0, "1") == {
        "DEV_FB_USED": 1000, "DEV_FB_RESERVED": 500, "DEV_FB_TOTAL": 20096, "DEV_FB_FREE": 20096 - 1500,
        "PROF_GR_ENGINE_ACTIVE": 0.1, "PROF_SM_ACTIVE": 0.1, "PROF_PIPE_TENSOR_ACTIVE": 0.1225,
        "PROF_DRAM_ACTIVE": 0.3, "PROF_PCIE_TX_BYTES": 1000 * 1024, "PROF_PCIE_RX_BYTES": 2000 * 1024,
    }  # fmt: skip
    assert values_of(lines, 0, "2")["PROF_SM_ACTIVE"] == 0.2
    assert {labels["GPU_I_PROFILE"] for _, labels, _ in lines if labels.get("GPU_I_ID")} == {"2g.20gb"}
    whole = values_of(lines, 0)
    assert "DEV_POWER_USAGE" in whole
    assert not {"DEV_GPU_UTIL", "PROF_SM_ACTIVE"} & set(whole)
    assert "PROF_SM_ACTIVE" in values_of(lines, 1)


def test_narrow_counters_go_on_when_they_wrap(tmp_path: Path) -> None:
    """A total of 32 bits that begins again at 0 goes on; one that was set back begins anew."""
    driver = FakeDriver(tmp_path)
    watched = Watched(driver)
    seen = []
    for replays in (4_294_967_290, 4, 10, 2):
        driver.set(replays=replays)
        seen.append(values_of(read_page(watched.look()), 0)["DEV_PCIE_REPLAY_COUNTER"])
    watched.end()
    assert seen == [4_294_967_290, 4_294_967_300, 4_294_967_306, 2]


def test_others_go_on_beside_a_lost_gpu(tmp_path: Path) -> None:
    """A GPU that fell off the bus is left out and said once, with its XID; the others are read."""
    driver = FakeDriver(tmp_path)
    watched = Watched(driver)
    watched.look()
    driver.set(0, lost=1, xid=79)
    pages = [read_page(watched.look()) for _ in range(3)]
    assert values_of(pages[0], 0) == {"DEV_XID_ERRORS": 79}
    assert all(values_of(page, 1)["DEV_GPU_UTIL"] == 51 for page in pages)
    said = [line for line in watched.end().splitlines() if "lost" in line]
    assert said == [
        "loadfactor agent: GPU 0 (GPU-00000000-0000-4000-8000-000000000000) is lost: GPU is lost; the others go on"
    ]


def test_others_go_on_beside_a_gpu_that_hangs(tmp_path: Path) -> None:
    """A GPU whose driver does not come back is waited for so long and no longer; when it answers it is read again."""
    driver = FakeDriver(tmp_path)
    watched = Watched(driver)
    watched.look()
    driver.set(0, hang=1)
    for _ in range(2):
        page = read_page(watched.look(0.3))
        assert "DEV_GPU_UTIL" not in values_of(page, 0)
        assert values_of(page, 1)["DEV_GPU_UTIL"] == 51
    driver.set(0, hang=0)
    assert "DEV_GPU_UTIL" in values_of(read_page(watched.look()), 0)
    said = watched.end()
    assert said.count("does not answer; the others go on") == said.count("answers again") == 1


def test_driver_that_hangs_from_the_beginning_is_one_line(tmp_path: Path) -> None:
    """A driver that does not even open is given up after a while, and said."""
    driver = FakeDriver(tmp_path)
    driver.set(hang_init=1)
    impatient = (
        "import loadfactor_agent.sampler as s; s.OPEN_WITHIN_S = 0.5;"
        "from loadfactor_agent.main import main; main(['--once'])"
    )
    done = driver.run("-c", impatient)
    assert done.returncode == 2
    assert done.stderr == "loadfactor agent: the NVIDIA driver does not answer within 0.5 s; see dmesg\n"


def test_no_driver_is_one_line(tmp_path: Path) -> None:
    """Without a driver the agent ends with 2 and one line."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "loadfactor_agent", "--once"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        pytest.skip("this machine has a driver")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no NVIDIA driver to ask" in done.stderr
