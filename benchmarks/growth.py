"""Does cost grow as the fleet does? Import, booking, report, savings and alerts of 100, 400 and 1,600 GPUs for two days, and of 400
GPUs with 1,000, 7,000 and 50,000 jobs: processor seconds of each, printed.

`growth_gpus_…` is what the largest fleet costs over the one before it, over how many times as many GPUs it has: 1 is linear.
`growth_jobs_…` is what the most jobs cost over the fewest, over how many times as many they are: what follows the samples stays
far below 1. The simulation is not counted.

`growth_large_booking` is what a sample costs to book of 10,240 GPUs over what one of 1,024 does, for a day each in a process of its
own; `large_booking_gib` is the largest memory of the former.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from loadfactor import simulator as simulated
from loadfactor.books.books import Books
from loadfactor.books.rebuild import refresh
from loadfactor.insight.alerts.judge import replay
from loadfactor.insight.alerts.rules import RULES
from loadfactor.simulator.scenario import Scenario
from loadfactor.sources.base import ReadOptions, Rows, Source
from loadfactor.store.importing import import_files

NAME = "growth"
GPUS: Final = (100, 400, 1600)
JOBS: Final = (1_000, 7_000, 50_000)
OF_JOBS: Final = 400
"""GPUs on which these jobs run."""
DAYS, STEP_S = 2, 60
KIB_PER_GIB: Final = 1 << 20
LARGE: Final = (1024, 10_240)
"""Fleets of which a day at 30 s is booked."""
PROGRAM: Final = "from loadfactor.interfaces.cli import main; main()"
COMMANDS: Final = ("report", "savings")
"""They start anew each time, which the smaller fleets feel more."""


def run(quick: bool) -> dict[str, float]:
    """All figures; `quick` leaves out the largest fleet and the most jobs."""
    fleets = GPUS[:-1] if quick else GPUS
    jobs = JOBS[:-1] if quick else JOBS
    by_gpus = _print("GPUs", {n: simulated.bench(n, DAYS, STEP_S) for n in fleets})
    by_jobs = _print("jobs", {n: replace(simulated.bench(OF_JOBS, DAYS, STEP_S), jobs=n) for n in jobs})
    found = {f"growth_gpus_{what}": of[fleets[-1]] / of[fleets[-2]] for what, of in by_gpus.items()}
    found = {name: times * fleets[-2] / fleets[-1] for name, times in found.items()}
    more = jobs[-1] / jobs[0]
    if not quick:
        found |= _book_large()
    return found | {f"growth_jobs_{what}": of[jobs[-1]] / of[jobs[0]] / more for what, of in by_jobs.items()}


def _book_large() -> dict[str, float]:
    """What booking a day costs a sample of a large fleet over one of a small one, and its memory."""
    per_sample, gib = [], 0.0
    for gpus in LARGE:
        with tempfile.TemporaryDirectory() as folder:
            books = Books(Path(folder) / "books")
            batches = simulated.make_tables(simulated.simulate(simulated.bench(gpus, 1, 30)))
            rows = (Rows(batch.table, batch.data, "simulated") for batch in batches)
            source = Source("simulated", lambda _paths: (), lambda _paths, _options, rows=rows: rows)
            with books.store.write() as writer:
                import_files(writer, source, (), ReadOptions(), _quiet)
            samples = sum(file.rows for file in books.store.manifest.of("samples"))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-c", PROGRAM, "compact", "--store", str(books.store.folder)],
                check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            gib = max(gib, after.ru_maxrss / KIB_PER_GIB)
            per_sample.append(cpu_s / samples)
            print(f"  {gpus:,} GPUs, {samples:,} samples: {cpu_s:.1f} CPU s, at most {gib:.2f} GiB", flush=True)
    return {"growth_large_booking": per_sample[1] / per_sample[0], "large_booking_gib": gib}


def _print(what: str, scenarios: Mapping[int, Scenario]) -> dict[str, dict[int, float]]:
    """What each costs, by what was done and by size, and a table of it; the smallest once before, which compiles."""
    _measure(next(iter(scenarios.values())))
    costs = {size: _measure(scenario) for size, scenario in scenarios.items()}
    found = {name: {size: of[name] for size, of in costs.items()} for name in next(iter(costs.values()))}
    print(f"  {what:10s}" + "".join(f"{size:>10,}" for size in scenarios))
    for name, of in found.items():
        print(f"  {name:10s}" + "".join(f"{cpu_s:8.2f} s" for cpu_s in of.values()), flush=True)
    return found


def _measure(scenario: Scenario) -> dict[str, float]:
    """Processor seconds by what is done."""
    rows = [Rows(batch.table, batch.data, "simulated") for batch in simulated.make_tables(simulated.simulate(scenario))]
    source = Source("simulated", lambda _paths: (), lambda _paths, _options: iter(rows))
    with tempfile.TemporaryDirectory() as folder:
        books = Books(Path(folder) / "books")
        marks = [_spent()]
        with books.store.write() as writer:
            import_files(writer, source, (), ReadOptions(), _quiet)
        marks.append(_spent())
        with books.store.write() as writer:
            refresh(writer, _quiet)
        marks.append(_spent())
        for command in COMMANDS:
            words = ["-c", PROGRAM, command, "--store", str(books.store.folder)]
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
            marks.append(_spent())
        replay(books, RULES)
        marks.append(_spent())
    spent = (after - before for before, after in pairwise(marks))
    return dict(zip(("import", "booking", *COMMANDS, "alerts"), spent, strict=True))


def _spent() -> float:
    """Processor seconds so far, of this process and of those that it ran."""
    of = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + of.ru_utime + of.ru_stime


def _quiet(_what: str, _share: float) -> None:
    """Shows no progress."""
