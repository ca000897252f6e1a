"""From the driver to the books: what the agent reads is what `loadfactor up` answers, over kills and while it is away."""

import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType

import httpx
import pytest
from packages.agent.tests.fake_driver import FakeDriver, needs_compiler
from packages.agent.tests.pages import read_page, values_of
from tests.live.up_process import UpProcess, free_port


class AgentProcess:
    """The agent with a spool of its own; it may be killed and started again."""

    def __init__(self, driver: FakeDriver, folder: Path, *options: str) -> None:
        self._driver, self._options = driver, (*options, "--spool", str(folder / "spool"))
        self.spool, self.log = folder / "spool", folder / "agent.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "AgentProcess":
        """Start it."""
        with self.log.open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "loadfactor_agent", *self._options],
                env={**self._driver.environment, "NODE_NAME": "node-7"},
                stdout=said,
                stderr=said,
            )
        return self

    def kill(self) -> None:
        """kill -9."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=240)

    def __enter__(self) -> "AgentProcess":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process and self.process.poll() is None:
            self.kill()


pytestmark = needs_compiler
GPUS = [f"GPU-{gpu:08x}-0000-4000-8000-000000000000" for gpu in (0, 1)]


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    """Two GPUs that always say the same, held by this process."""
    driver = FakeDriver(tmp_path)
    driver.set(0, util=80, used_mib=8156, sm=62.5, tensor=25, dram=12.5, pid=os.getpid())
    driver.set(1, util=0, used_mib=0, sm=0, tensor=0, dram=0)
    return driver


def wait_for(what: Callable[[], bool], longest_s: float = 240.0) -> None:
    """Until it is so."""
    end = time.monotonic() + longest_s
    while not what():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.2)


def list_ancestors() -> list[int]:
    """This process, its parent, and so on."""
    pids = [os.getpid()]
    while pids[-1] > 1:
        stat = Path(f"/proc/{pids[-1]}/stat").read_text()
        pids.append(int(stat.rpartition(")")[2].split()[1]))
    return pids


def has_sample_of(up: UpProcess, newest_s: float) -> bool:
    """Whether the server has a sample of the agent that is not older."""
    seen = {s["name"]: s["last_sample"] for s in up.ask("/health")["sources"]}.get("dcgm:loadfactor-agent")
    return seen is not None and datetime.fromisoformat(seen).timestamp() >= newest_s


@pytest.mark.long
def test_readings_are_what_the_driver_said(driver: FakeDriver, tmp_path: Path) -> None:
    """Utilization, memory, power and holder in the books equal those of the driver; the node is there as well."""
    began_s = time.time()
    with (
        UpProcess(tmp_path / "books") as up,
        AgentProcess(driver, tmp_path, "--server", up.url, "--every", "1s") as agent,
    ):
        wait_for(lambda: has_sample_of(up, began_s + 12))
        assert agent.stop() == 0
        up.wait_until_booked()
        assert up.readings("gpu_util", by="device")[GPUS[0]] == pytest.approx(0.8)
        assert up.readings("observed_gpu_hours", by="node").keys() == {"node-7"}
        assert up.readings("sm_activity", by="device")[GPUS[0]] == pytest.approx(0.625)
        assert up.readings("tensor_activity", by="device")[GPUS[0]] == pytest.approx(0.25)
        jobs = [job for job in up.readings("allocated_gpu_hours", by="job") if job]
        user = pwd.getpwuid(os.getuid()).pw_name
        assert len(jobs) == 1
        assert jobs[0].startswith(f"{user} ")
        assert (
            int(jobs[0].split()[-1]) in list_ancestors()
        )  # whatever command started these tests: make, a shell's child, an editor
        assert user in up.readings("allocated_gpu_hours", by="user")


@pytest.mark.long
def test_nothing_is_lost_while_the_server_is_away_and_the_agent_is_killed(driver: FakeDriver, tmp_path: Path) -> None:
    """Readings while nobody listened, by an agent that was killed twice, are in the books when the server is back."""
    up = UpProcess(tmp_path / "books")
    agent = AgentProcess(driver, tmp_path, "--server", up.url, "--every", "1s")
    began_s = time.time()
    for _ in range(2):
        kept = sum(path.stat().st_size for path in agent.spool.glob("*.spool"))
        agent.start()
        wait_for(lambda kept=kept: sum(path.stat().st_size for path in agent.spool.glob("*.spool")) > kept + 2000)
        time.sleep(5.5)
        agent.kill()
    ended_s = time.time()
    with up, agent:
        wait_for(lambda: has_sample_of(up, ended_s + 1))
        assert agent.stop() == 0
        up.wait_until_booked()
        hours = up.readings("observed_gpu_hours", by="device")
        assert set(hours) == set(GPUS)
        seconds = [h * 3600 for h in hours.values() if h]
        # starting takes a while each time, and at most the last 5 s before a kill were not kept yet
        assert all(10 < s <= time.time() - began_s for s in seconds), seconds
    assert "wait in the spool" in agent.log.read_text()


def test_server_samples_its_own_gpus(driver: FakeDriver, tmp_path: Path) -> None:
    """On a machine with a driver, `up` without any configuration fills the books by itself."""
    began_s = time.time()
    with UpProcess(tmp_path / "books", environment=driver.environment) as up:
        wait_for(lambda: has_sample_of(up, began_s + 11))
        up.wait_until_booked()
        assert set(up.readings("observed_gpu_hours", by="device")) == set(GPUS)
        assert up.readings("gpu_util", by="device")[GPUS[0]] == pytest.approx(0.8)


def test_page_is_there_for_prometheus(driver: FakeDriver, tmp_path: Path) -> None:
    """With --listen the same numbers are on a page."""
    port = free_port()
    with AgentProcess(driver, tmp_path, "--listen", f"127.0.0.1:{port}", "--every", "1s") as agent:

        def find() -> dict[str, float]:
            try:
                return values_of(read_page(httpx.get(f"http://127.0.0.1:{port}/metrics").text), 0)
            except httpx.HTTPError:
                return {}

        wait_for(lambda: find().get("PROF_SM_ACTIVE") == 0.625)
        assert httpx.get(f"http://127.0.0.1:{port}/").status_code == 404
        assert agent.stop() == 0
