"""How long does a person wait for an answer? `loadfactor show` over bare DuckDB, and a whole report, on a simulated fleet.

`show_over_duckdb` is processor time of `loadfactor show utilization --by team`, from start to end, over that of a Python process
that adds the same up with DuckDB alone, from the same ledger files. `report_s` is the wall time of `loadfactor report`, text, of
1,024 GPUs × 8 days, and `…_cpu_s_1024x8` the processor time of that, of `diagnose` and of `savings`. Each is the best of some
rounds, in processes of their own, after one that fills the caches: compiled SQL, and Python's bytecode, which an installed package
has.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loadfactor import simulator as simulated
from loadfactor.books.books import Books
from loadfactor.books.rebuild import refresh
from loadfactor.sources.base import ReadOptions, Rows, Source
from loadfactor.store.importing import import_files

NAME = "questions"
ROUNDS = 3
OF_A_FLEET = ("report", "diagnose", "savings")
BARE = """
import duckdb
print(duckdb.connect().execute(
    "SELECT team, sum(if(state IN ('idle', 'busy'), sm_active_s, 0)) / sum(if(state IN ('idle', 'busy'), gpu_s, 0))"
    " FROM read_parquet({files!r}) GROUP BY team ORDER BY team"
).fetchall())
"""


def run(quick: bool) -> dict[str, float]:
    """All figures; `quick` takes two days instead of eight, a sample a minute, and no report: `commands` has that of the demo."""
    with tempfile.TemporaryDirectory() as folder:
        books = make_books(Path(folder) / "books", simulated.bench(1024, *((2, 60) if quick else (8, 30))))
        there = ["--store", str(books.store.folder)]
        files = [str(books.store.folder / f.name) for f in books.store.manifest.of("ledger")]
        show = _measure([*_loadfactor(), "show", "utilization", "--by", "team", *there])
        bare = _measure([sys.executable, "-c", BARE.format(files=files)])
        found = {"show_cpu_s": show[1], "show_over_duckdb": show[1] / bare[1]}
        if not quick:
            report, diagnose, savings = (_measure([*_loadfactor(), name, *there], 1) for name in OF_A_FLEET)
            found |= {
                "report_s": report[0],
                "report_cpu_s_1024x8": report[1],
                "diagnose_cpu_s_1024x8": diagnose[1],
                "savings_cpu_s_1024x8": savings[1],
            }
    return found


def make_books(folder: Path, scenario: simulated.Scenario) -> Books:
    """Books of a simulated fleet, booked."""
    source = Source(
        "simulated",
        lambda _paths: (),
        lambda _paths, _options: (
            Rows(batch.table, batch.data, "simulated") for batch in simulated.make_tables(simulated.simulate(scenario))
        ),
    )
    books = Books(folder)
    with books.store.write() as writer:
        import_files(writer, source, (folder,), ReadOptions(), _quiet)
        refresh(writer, _quiet)
    return books


def _loadfactor() -> list[str]:
    return [sys.executable, "-c", "from loadfactor.interfaces.cli import main; main()"]


def _measure(command: list[str], rounds: int = ROUNDS) -> tuple[float, float]:
    """The least wall and processor seconds of a process that does this."""
    took = []
    with tempfile.TemporaryDirectory() as bytecode:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = bytecode
        for _ in range(rounds + 1):
            began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(command, stdout=subprocess.DEVNULL, env=env, check=False)
            if done.returncode not in (0, 1):  # 1: the answer is no
                raise RuntimeError(f"{' '.join(command)} left with {done.returncode}")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            took.append((time.perf_counter() - began, used))
    return min(wall for wall, _ in took[1:]), min(used for _, used in took[1:])


def _quiet(_what: str, _share: float) -> None:
    """Shows no progress."""
