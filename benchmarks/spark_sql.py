"""The ledger's steps as SQL on Spark beside DuckDB: the 14 days of the demo in one warm session, all processor time counted.

`spark_sql_cpu_over_duckdb` is what Spark, the Python beside its executors and the driver spend over what one process of DuckDB does
for the same tasks. The first round, which compiles, is not counted.
"""

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from loadfactor.books.books import Books
from loadfactor.books.day_tasks import FOLDER
from loadfactor.interfaces.engines.local import run_local
from loadfactor.interfaces.engines.spark_sql import book_days
from loadfactor.interfaces.engines.worker import name_books
from loadfactor.interfaces.pages.ledger_tasks import list_planned
from loadfactor.simulator import DEMO, simulate, write_tables

NAME = "spark_sql"
TICKS_S: Final = 100
"""Of /proc."""


def run(quick: bool) -> dict[str, float]:
    """The figure; `quick` takes two days."""
    with tempfile.TemporaryDirectory() as folder:
        write_tables(simulate(DEMO), Path(folder) / "tables")
        books = Books(Path(folder) / "books")
        books.add("tables", [Path(folder) / "tables"])
        names = [task.task for task in list_planned(books, is_all=True)][: 2 if quick else None]
        of, outputs = name_books(books.store.folder), books.store.folder / FOLDER
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        spent = []
        for _ in range(2):
            before = _spent()
            book_days(spark, of, names)
            spent.append(_spent() - before)
            shutil.rmtree(outputs)
        spark.stop()
        run_local(of, names[:1], 1, _quiet)
        shutil.rmtree(outputs)
        before = time.process_time()
        run_local(of, names, 1, _quiet)
        duckdb_s = time.process_time() - before
    print(f"  {len(names)} days: Spark {spent[0]:.1f} CPU s, then {spent[1]:.1f}, DuckDB {duckdb_s:.1f}")
    return {"spark_sql_cpu_over_duckdb": spent[1] / duckdb_s}


def _spent() -> float:
    """Processor seconds of this process, and of those that came from it and run."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        pid = int(path.parent.name)
        parents[pid], ticks[pid] = int(words[1]), sum(map(int, words[11:15]))
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sum(ticks[pid] for pid in found) / TICKS_S


def _quiet(_what: str, _share: float) -> None:
    """Shows no progress."""
