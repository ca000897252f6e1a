"""`loadfactor record`: a command, its exit code, and the page of what its GPUs did."""

import json
import sys
from pathlib import Path

import pytest
from packages.agent.tests.fake_driver import FakeDriver, needs_compiler

pytestmark = needs_compiler

MAIN = ("-c", "from loadfactor.interfaces.cli import main; main()", "record")
WORK = """
import os, sys, time
with open(os.environ["FAKE_NVML_STATE"], "a") as state:
    state.write(f"1 pid {os.getpid()}\\n")
time.sleep(float(sys.argv[1]))
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    """Three GPUs, of which the command will use the second."""
    driver = FakeDriver(tmp_path)
    driver.set(count=3)
    driver.set(1, util=90, sm=40, tensor=0, dram=10, used_mib=8156)
    (tmp_path / "work.py").write_text(WORK)
    return driver


@pytest.mark.long
def test_page_says_what_the_command_cost(driver: FakeDriver, tmp_path: Path) -> None:
    """The readings are of the GPU it used alone, from beginning to end, at the price given; its exit code is ours."""
    options = ("--json", "--store", str(tmp_path / "books"), "--price-per-gpu-hour", "3.6")
    done = driver.run(*MAIN, *options, "--", sys.executable, str(tmp_path / "work.py"), "7", "3", timeout_s=200)
    assert done.returncode == 3, done.stderr
    page = json.loads(done.stdout)
    assert page["gpus"] == ["GPU-00000001-0000-4000-8000-000000000000"]
    assert page["exit_code"] == 3
    assert page["seconds"] >= 7
    values = {reading["metric"]: reading["value"] for reading in page["readings"]}
    assert values["gpu_util"] == pytest.approx(0.9)
    assert values["sm_activity"] == pytest.approx(0.4)
    assert values["mem_utilization_peak"] == pytest.approx(0.1, abs=0.01)
    assert 6 / 3600 < values["allocated_gpu_hours"] < page["seconds"] / 3600 + 0.001
    assert values["cost"] == pytest.approx(3.6 * values["allocated_gpu_hours"])
    said = " ".join(page["stood_out"])
    assert "Tensor cores did nothing" in said
    assert "2 of the 3 GPUs here were not used" in said


@pytest.mark.long
def test_command_without_gpus_leaves_the_books_alone(driver: FakeDriver, tmp_path: Path) -> None:
    """A command that uses no GPU is run all the same, and the page says so."""
    driver.set(util=0)
    driver.set(1, util=0)
    done = driver.run(*MAIN, "--store", str(tmp_path / "books"), "--", sys.executable, "-c", "print('hello')")
    assert done.returncode == 0, done.stderr
    assert "hello" in done.stdout
    assert "used none of the 3 GPUs here" in " ".join(done.stdout.split())


@pytest.mark.long
def test_command_that_is_not_there_is_one_line(driver: FakeDriver, tmp_path: Path) -> None:
    """A mistyped command is the user's mistake."""
    done = driver.run(*MAIN, "--store", str(tmp_path / "books"), "--", "no-such-command")
    assert done.returncode == 2
    assert "cannot run no-such-command: No such file or directory" in done.stderr
