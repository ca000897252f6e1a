"""What tracking costs a training loop: a step beside an empty loop, the same while the server is dead, and the import."""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

NAME = "track"
_SRC = Path(__file__).parents[1] / "src"
_LOOP = """
import json, time
import loadfactor

def measure(steps, run):
    began = time.perf_counter()
    for step in range(steps):
        pass
    empty = time.perf_counter() - began
    began = time.perf_counter()
    for step in range(steps):
        run.step(step=step, samples=32, tokens=4096)
    return (time.perf_counter() - began - empty) / steps * 1e6

with loadfactor.track(job="bench") as run:
    time.sleep(0.3)
    costs = sorted(measure(STEPS, run) for _ in range(7))
print(json.dumps([costs[3], run.dropped]))
"""
_DEAD = "http://127.0.0.1:9"
"""Nobody listens on the port `discard`."""


def run(quick: bool) -> dict[str, float]:
    """`track_step_us`, `track_step_us_server_dead` and `track_import_ms`, each more than without tracking; medians of 7."""
    steps = 5_000 if quick else 50_000
    with tempfile.TemporaryDirectory() as folder:
        alone, _ = _run_loop(steps, folder)
        dead, _ = _run_loop(steps, folder, LOADFACTOR_URL=_DEAD)
    return {"track_step_us": alone, "track_step_us_server_dead": dead, "track_import_ms": _measure_import()}


def _run_loop(steps: int, folder: str, **variables: str) -> tuple[float, int]:
    environment = {**os.environ, "PYTHONPATH": str(_SRC), "LOADFACTOR_PROGRESS": folder, **variables}
    command = [sys.executable, "-c", _LOOP.replace("STEPS", str(steps))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    cost_us, dropped = json.loads(done.stdout)
    return cost_us, dropped


def _measure_import() -> float:
    """Milliseconds of processor time that a process with `loadfactor.track` takes more than an empty one."""
    environment = {**os.environ, "PYTHONPATH": str(_SRC)}

    def measure(code: str) -> float:
        costs = []
        for _ in range(11):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], env=environment, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return sorted(costs)[5] * 1e3

    return measure("import loadfactor; loadfactor.track") - measure("pass")
