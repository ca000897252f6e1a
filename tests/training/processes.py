"""Training scripts as processes of the environment that `make training` makes: started, waited for, killed."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".training-env" / "bin" / "python"
LOOPS = Path(__file__).parent / "loops"
KNOWN = ("PATH", "HOME", "LD_LIBRARY_PATH")
LONGEST_S = 600.0
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node")


class TrainingProcess:
    """One process; `folder` takes what it counts, its log, and under `progress` what the tracker writes."""

    def __init__(self, folder: Path, name: str, *arguments: object) -> None:
        environment = {name: os.environ[name] for name in KNOWN if name in os.environ}
        environment |= {"LOADFACTOR_PROGRESS": str(folder / "progress"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as said:
            self._process = subprocess.Popen(
                [PYTHON, *map(str, arguments)], env=environment, cwd=folder, stdout=said, stderr=said
            )

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def finish(self) -> None:
        """Wait until it has ended well; the tracker had nothing to say."""
        try:
            status = self._process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            self.kill()
            status = None
        log = self._log.read_text()
        assert status == 0, log[-3000:]
        assert "loadfactor:" not in log


def train(folder: Path, script: str, *arguments: object, ranks: int = 0) -> None:
    """Run a script to its end, under torchrun where it has `ranks`."""
    starter = (*TORCHRUN, ranks) if ranks else ()
    TrainingProcess(folder, "train", *starter, LOOPS / script, folder, *arguments).finish()


def wait_until(processes: Sequence[TrainingProcess], folder: Path, is_reached: Callable[[], bool]) -> None:
    """Until something is so, while all of them work."""
    end = time.monotonic() + LONGEST_S
    while not is_reached():
        logs = "".join(path.read_text()[-1500:] for path in folder.glob("*.log"))
        assert not any(process.is_over for process in processes), logs
        assert time.monotonic() < end, logs
        time.sleep(0.05)
