"""Days of the ledger as tasks, in one process and in two, and exports of it: 1,024 GPUs for eight days.

`tasks_cpu_over_one` is what two processes spend over what one does on the same days, `tasks_wall_over_one` how long they take
over it, the start of processes included. `tasks_cpu_over_whole` is one process over booking all days at once.
`export_rows_per_s` are rows of the ledger, written as Parquet with all measures, a second of processor time.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from loadfactor import simulator as simulated
from loadfactor.books.books import Books
from loadfactor.books.rebuild import refresh
from loadfactor.sources.base import ReadOptions, Rows, Source
from loadfactor.store.importing import import_files

NAME = "tasks"
GPUS, DAYS, STEP_S = 1024, 8, 30
PROGRAM: Final = "from loadfactor.interfaces.cli import main; main()"


def run(quick: bool) -> dict[str, float]:
    """All figures; `quick` takes a quarter of the days."""
    scenario = simulated.bench(GPUS, DAYS // 4 if quick else DAYS, STEP_S)
    rows = [Rows(batch.table, batch.data, "simulated") for batch in simulated.make_tables(simulated.simulate(scenario))]
    source = Source("simulated", lambda _paths: (), lambda _paths, _options: iter(rows))
    with tempfile.TemporaryDirectory() as folder:
        books = Books(Path(folder) / "books")
        with books.store.write() as writer:
            import_files(writer, source, (), ReadOptions(), _quiet)
        begun = time.process_time()
        with books.store.write() as writer:
            refresh(writer, _quiet)
        whole_s = time.process_time() - begun
        store = ["--store", str(books.store.folder)]
        one_s, one_wall_s = _run(["ledger", "book", "--all", "--engine", "local:1", *store])
        subprocess.run(["rm", "-r", str(books.store.folder / "tasks")], check=True)
        two_s, two_wall_s = _run(["ledger", "book", "--all", "--engine", "local:2", *store])
        print(
            f"  whole {whole_s:.2f} CPU s, one process {one_s:.2f} ({one_wall_s:.2f} s), two {two_s:.2f} ({two_wall_s:.2f} s)"
        )
        _run(["ledger", "publish", *store])
        exported_s, _ = _run(["export", "ledger", "--output", str(Path(folder) / "export"), *store])
        ledger_rows = sum(file.rows for file in books.store.manifest.of("ledger"))
    return {
        "tasks_cpu_over_one": two_s / one_s,
        "tasks_wall_over_one": two_wall_s / one_wall_s,
        "tasks_cpu_over_whole": one_s / whole_s,
        "export_rows_per_s": ledger_rows / exported_s,
    }


def _run(words: Sequence[str]) -> tuple[float, float]:
    """Processor seconds of a command with its processes, and seconds."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, "-c", PROGRAM, *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent_s, time.monotonic() - begun


def _quiet(_what: str, _share: float) -> None:
    """Shows no progress."""
