"""How fast does a year of Slurm's jobs come in? Text of `sacct -P` with a step a job, some requeues and CPU jobs.

The floor is parsing the same file with pyarrow.csv. `sacct_jobs_per_s` is decoding alone, from the file to rows, in jobs (not
lines) a second of processor time; `sacct_peak_mib` is the memory of a process of its own.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow.csv as pacsv

from benchmarks.memory import find_peak_bytes
from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.sources.slurm import SOURCE
from loadfactor.units import BYTES_PER_MIB

NAME = "sacct"
FIELDS = (
    *("JobID", "JobIDRaw", "User", "Account", "Partition", "State", "Submit", "Eligible", "Start", "End", "ElapsedRaw"),
    *("AllocTRES", "ReqTRES", "NodeList", "Restarts", "JobName"),
)
OPTIONS = ReadOptions(timezone=UTC)
_MEASURE = "import sys; from pathlib import Path; from benchmarks.sacct import measure_peak; print(measure_peak(Path(sys.argv[1])))"


def run(quick: bool) -> dict[str, float]:
    """Decoding: jobs a second, over the floor, and peak memory."""
    jobs = 100_000 if quick else 2_000_000
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "sacct.txt"
        write_sacct(text, jobs)
        peak = subprocess.run([sys.executable, "-c", _MEASURE, str(text)], check=True, capture_output=True, text=True)
        decoding = _cpu_s(lambda: decode(text))
        floor = _cpu_s(lambda: pacsv.read_csv(text, parse_options=pacsv.ParseOptions(delimiter="|", quote_char=False)))
        size = text.stat().st_size
    return {
        "sacct_jobs": float(jobs),
        "sacct_file_mib": size / BYTES_PER_MIB,
        "sacct_jobs_per_s": jobs / decoding,
        "sacct_decode_over_floor": decoding / floor,
        "sacct_peak_mib": float(peak.stdout),
    }


def write_sacct(path: Path, jobs: int) -> None:
    """A text of so many jobs of 200 users on 500 nodes: a third without GPUs, one in twenty requeued once."""
    draw = np.random.default_rng(1)
    start = datetime(2026, 1, 1)  # noqa: DTZ001 - the tool writes local times
    minutes = np.sort(draw.integers(0, 365 * 24 * 60, jobs)).tolist()
    gpus, users, nodes = (draw.integers(0, most, jobs).tolist() for most in (12, 200, 500))
    with path.open("w", encoding="utf-8") as file:
        file.write("|".join(FIELDS) + "\n")
        for number in range(jobs):
            at = start + timedelta(minutes=minutes[number])
            count = max(0, gpus[number] - 3)
            tres = (
                f"billing={count},cpu=8,gres/gpu:h100={count},gres/gpu={count},mem={16 + number % 64}G,node=1"
                if count
                else "cpu=8,node=1"
            )
            for attempt in range(2 if number % 20 == 0 else 1):
                begin, end = at + timedelta(minutes=7), at + timedelta(minutes=67 + gpus[number])
                times = "|".join(f"{t:%Y-%m-%dT%H:%M:%S}" for t in (at, at, begin, end))
                state = "REQUEUED" if number % 20 == 0 and not attempt else "COMPLETED"
                rest = f"{state}|{times}|{3600 + 60 * gpus[number]}|{tres}|{tres}|n{nodes[number]}|{attempt}"
                file.write(f"{number}|{number}|u{users[number]}|a{users[number] % 17}|gpu|{rest}|run-{number}\n")
                file.write(f"{number}.batch|{number}.batch||a1||{rest}|batch\n")
                at = end + timedelta(minutes=3)


def decode(text: Path) -> int:
    """The rows that a text becomes, counted."""
    return sum(item.data.num_rows for item in SOURCE.read((text,), OPTIONS) if isinstance(item, Rows))


def measure_peak(text: Path) -> float:
    """MiB of memory that a process takes at most which does nothing else."""
    decode(text)
    return find_peak_bytes() / BYTES_PER_MIB


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
