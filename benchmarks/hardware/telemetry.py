"""What loadfactor's agent reads while the kit works: its own sampler in a process beside, a look a line of JSON.

It needs loadfactor_agent and nvidia-ml-py, and no PyTorch: `python -m benchmarks.hardware.telemetry FILE`.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

EVERY_S = 0.5


class Telemetry:
    """The process that samples, and what it has written so far."""

    def __init__(self, python: str, path: Path) -> None:
        self._path = path
        self.problem = ""
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.hardware.telemetry", str(path)], stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def wait_for_looks(self, number: int, within_s: float) -> bool:
        """Until it has looked so often; False where it has ended or takes longer."""
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s and self._process.poll() is None:
            if len(self.read()) >= number:
                return True
            time.sleep(0.1)
        return False

    def read(self) -> list[dict[str, Any]]:
        """Every look so far: `at_ms`, and `series` of labels and values."""
        if not self._path.exists():
            return []
        text = self._path.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def values(self, at_ms: list[int], gpu: int = 0, inside: bool = True) -> list[dict[str, float]]:
        """The values of one GPU in the looks of a window; `inside`: without the first, which describes what came before too."""
        looks = [look for look in self.read() if at_ms[0] <= look["at_ms"] <= at_ms[1]]
        if inside and len(looks) > 2:
            looks = looks[1:]
        return [found for look in looks if (found := values_of(look, gpu))]

    def end(self) -> None:
        """Stop; `problem` is what it wrote to stderr."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self.problem = (self._process.communicate(timeout=10)[1] or b"").decode(errors="replace").strip()
        except (subprocess.TimeoutExpired, ValueError):
            self._process.kill()
            self._process.wait()


def values_of(look: dict[str, Any], gpu: int) -> dict[str, float]:
    """The values of one whole GPU in a look."""
    for labels, values in look["series"]:
        if labels.get("gpu") == str(gpu) and "GPU_I_ID" not in labels and len(values) > 1:
            return dict(values)
    return {}


def sample(path: Path) -> None:
    """Look until stdin is closed. Ends with one line where there is no driver."""
    import select

    from loadfactor_agent.notices import AgentError, Notices
    from loadfactor_agent.sampler import Sampler

    try:
        sampler = Sampler(Notices(), "this-node")
    except AgentError as error:
        sys.exit(str(error))
    with path.open("a") as file:
        while True:
            began_s = time.monotonic()
            readings = sampler.sample()
            series = [[dict(one.labels.pairs), one.values] for one in readings]
            file.write(json.dumps({"at_ms": int(time.time() * 1000), "series": series}) + "\n")
            file.flush()
            rest_s = max(0.0, began_s + EVERY_S - time.monotonic())
            if select.select([sys.stdin], [], [], rest_s)[0]:
                return


if __name__ == "__main__":
    sample(Path(sys.argv[1]))
