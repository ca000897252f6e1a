"""How fast does a year of Slurm's jobs come in? Text of `sacct -P` with a step a job, some requeues and CPU jobs.

The floor is parsing the same file with pyarrow.csv. `sacct_jobs_per_s` is decoding alone, from the file to rows, in jobs (not
lines) a second of processor time; `sacct_peak_mib` is the memory of a process of its own. `sacct_booked_…` is the whole import, the
ledger of every GPU-hour with it, in a process of its own: of a few days of such a year, since each takes what the others take.
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
from loadfactor.base.units import BYTES_PER_MIB, S_PER_DAY, S_PER_MIN
from loadfactor.books.books import Books
from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.sources.slurm import SOURCE

NAME = "sacct"
ROUNDS = 3
"""The least counts: the first takes memory from the system, which can be most of so short a floor."""
FIELDS = (
    *("JobID", "JobIDRaw", "User", "Account", "Partition", "State", "Submit", "Eligible", "Start", "End", "ElapsedRaw"),
    *("AllocTRES", "ReqTRES", "NodeList", "Restarts", "JobName"),
)
OPTIONS = ReadOptions(timezone=UTC)
JOBS, DAYS = 2_000_000, 365
BOOKED_DAYS = 10
_MEASURE = "import sys; from pathlib import Path; from benchmarks.sacct import measure_peak; print(measure_peak(Path(sys.argv[1])))"
_BOOK = (
    "import sys; from pathlib import Path; from benchmarks.sacct import book; print(*book(*map(Path, sys.argv[1:])))"
)


def run(quick: bool) -> dict[str, float]:
    """Decoding: jobs a second, over the floor, and peak memory. Jobs a second and peak memory of all of an import."""
    jobs, days = (100_000, 1) if quick else (JOBS, BOOKED_DAYS)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "sacct.txt"
        write_sacct(text, jobs)
        (peak,) = _run(_MEASURE, text)
        decoding = min(_cpu_s(lambda: decode(text)) for _ in range(ROUNDS))
        parsing = pacsv.ParseOptions(delimiter="|", quote_char=False)
        floor = min(_cpu_s(lambda: pacsv.read_csv(text, parse_options=parsing)) for _ in range(ROUNDS))
        size = text.stat().st_size
        booked = JOBS * days // DAYS
        write_sacct(text, booked, days)
        booking, booked_peak = _run(_BOOK, text, Path(folder) / "store")
    return {
        "sacct_jobs": float(jobs),
        "sacct_file_mib": size / BYTES_PER_MIB,
        "sacct_jobs_per_s": jobs / decoding,
        "sacct_decode_over_floor": decoding / floor,
        "sacct_peak_mib": peak,
        "sacct_booked_jobs": float(booked),
        "sacct_booked_days": float(days),
        "sacct_booked_jobs_per_s": booked / booking,
        "sacct_booked_peak_mib": booked_peak,
    }


def write_sacct(path: Path, jobs: int, days: int = DAYS) -> None:
    """A text of so many jobs in so many days, of 200 users on 500 nodes: a third without GPUs, one in twenty requeued once."""
    draw = np.random.default_rng(1)
    start = datetime(2026, 1, 1)  # noqa: DTZ001 - the tool writes local times
    minutes = np.sort(draw.integers(0, days * S_PER_DAY // S_PER_MIN, jobs)).tolist()
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


def book(text: Path, store: Path) -> tuple[float, float]:
    """Seconds of processor time and MiB of memory at most of a whole import, in a process that does nothing else."""
    seconds = _cpu_s(lambda: Books(store).add(SOURCE.name, [text], OPTIONS))
    return seconds, find_peak_bytes() / BYTES_PER_MIB


def _run(program: str, *arguments: Path) -> list[float]:
    """The numbers that a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], check=True, capture_output=True, text=True
    )
    return [float(said) for said in done.stdout.split()]


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
