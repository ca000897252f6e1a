"""Measures the GPUs of this machine: `python -m benchmarks.hardware DIR [--minutes N]` leaves JSON in a folder.

It wants PyTorch; the agent's readings want nvidia-ml-py and loadfactor_agent besides, in this Python or another (--agent-python).
Each part is written when it is done, so what is there counts, whatever ends the rest.
"""

import argparse
import gzip
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.hardware.nvml import Smi, watch_readings
from benchmarks.hardware.ranks import run_ranks
from benchmarks.hardware.rates import measure_rates
from benchmarks.hardware.scale import choose_scale
from benchmarks.hardware.serving import serve
from benchmarks.hardware.telemetry import Telemetry
from benchmarks.hardware.training import train_cases

PARTS = ("nvml", "rates", "serving", "training", "ranks")
KEPT_FOR_RANKS_S = 40.0


def main() -> None:
    """Measure, part by part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hardware", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=15.0, help="About how long. [default: 15]")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"Some of {', '.join(PARTS)}.")
    parser.add_argument(
        "--agent-python", default=sys.executable, help="A Python with loadfactor_agent and nvidia-ml-py."
    )
    given = parser.parse_args()
    begin_s = time.monotonic()
    end_s = begin_s + 60 * given.minutes
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    scale = choose_scale(device, given.minutes)
    raw = folder / "telemetry.jsonl"
    raw.unlink(missing_ok=True)
    telemetry = Telemetry(given.agent_python, raw)
    is_watched = telemetry.wait_for_looks(2, within_s=30)
    write(folder, "machine", describe_machine(device, given.minutes))
    todo: dict[str, Callable[[], Any]] = {
        "nvml": lambda: watch_readings(device, scale, telemetry if is_watched else None, folder),
        "rates": lambda: measure_rates(device, scale),
        "serving": lambda: serve(scale, device, lambda: time.monotonic() < end_s),
        "training": lambda: train_cases(
            scale,
            device,
            folder,
            lambda: time.monotonic() < end_s - (KEPT_FOR_RANKS_S if device.type == "cuda" else 0.0),
            lambda rows: write(folder, "training", rows),
        ),
        "ranks": lambda: run_ranks(device, folder, given.minutes),
    }
    for part in given.parts.split(","):
        started_s = time.monotonic()
        try:
            found = todo[part]()
        except Exception as error:  # the other parts go on
            found = {"error": f"{type(error).__name__}: {str(error)[:1000]}"}
        if found is not None:
            write(folder, part, found)
        if device.type == "cuda":
            torch.cuda.empty_cache()
        print(f"{part}: {time.monotonic() - started_s:.0f} s, {time.monotonic() - begin_s:.0f} s so far", flush=True)
    telemetry.end()
    if telemetry.problem:
        print(f"agent: {telemetry.problem[-500:]}", file=sys.stderr)
    write(folder, "agent", {"is_watched": is_watched, "notices": telemetry.problem.splitlines()})
    if raw.exists():
        with raw.open("rb") as source, gzip.open(folder / "telemetry.jsonl.gz", "wb") as target:
            shutil.copyfileobj(source, target)
        raw.unlink()
    print(
        f"measured into {folder}; where loadfactor is installed, `python -m benchmarks.hardware.compare {folder}` compares"
    )


def describe_machine(device: torch.device, minutes: float) -> dict[str, Any]:
    """What was measured, with what, and when."""
    is_gpu = device.type == "cuda"
    return {
        "measured_on": datetime.now(UTC).date().isoformat(),
        "device": torch.cuda.get_device_name(0) if is_gpu else f"CPU: {platform.processor() or platform.machine()}",
        "devices": torch.cuda.device_count() if is_gpu else 0,
        "is_gpu": is_gpu,
        "properties": str(torch.cuda.get_device_properties(0)) if is_gpu else "",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
        "minutes": minutes,
        "smi": Smi().read(),
    }


def write(folder: Path, name: str, found: Any) -> None:
    """NAME.json."""
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
