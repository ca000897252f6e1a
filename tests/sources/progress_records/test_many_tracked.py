"""A thousand processes that write at once into one folder, half of them killed: what was on the disk before is all there."""

from pathlib import Path

import pytest
from packages.track.tests.loops import run_loop
from tests.sources.progress_records.tracked import read_rows, total

PROCESSES, STEPS = 1000, 5

THOUSAND = f"""
import signal
with loadfactor.track(job="warm"):
    pass
children = []
for place in range({PROCESSES}):
    child = os.fork()
    if child == 0:
        run = loadfactor.track(job="many").__enter__()
        for _ in range({STEPS}):
            run.step(samples=1)
        end = time.monotonic() + 60
        while not (run._recorder._file and run._recorder._file.size > 300) and time.monotonic() < end:
            time.sleep(0.05)
        if place % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        run.__exit__(None, None, None)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""


@pytest.mark.long
def test_a_thousand_processes_lose_nothing(tmp_path: Path) -> None:
    """Every step that any of them wrote is counted once, whoever was killed afterwards."""
    assert run_loop(THOUSAND, tmp_path).stderr == ""
    rows, gaps = read_rows(tmp_path)
    assert not gaps
    assert len(list(tmp_path.glob("many-*"))) == PROCESSES
    assert total(rows["progress"], "step") == PROCESSES * STEPS
