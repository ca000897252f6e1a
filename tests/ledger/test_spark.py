"""The ledger on Spark: days as tasks on a cluster, with a worker killed in the middle; and what Spark reads of an export."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession
from tests.commands import Run
from tests.ledger.spark_cluster import SparkCluster
from tests.ledger.test_books_balance import ledger_of

from loadfactor.books.books import Books
from loadfactor.books.day_tasks import FOLDER
from loadfactor.interfaces.engines.spark import run_spark
from loadfactor.interfaces.engines.worker import name_books
from loadfactor.interfaces.pages.ledger_tasks import list_planned, publish
from loadfactor.simulator import DEMO, simulate, write_tables

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers; this process is set up to be their driver."""
    with SparkCluster(tmp_path_factory.mktemp("spark")) as cluster, pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment.items():
            patch.setenv(name, value)
        yield cluster


@pytest.fixture(scope="module")
def demo_books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    """The books of the demo's fleet, two weeks, booked by one process."""
    folder = tmp_path_factory.mktemp("demo")
    write_tables(simulate(DEMO), folder / "tables")
    books = Books(folder / "books")
    books.add("tables", [folder / "tables"])
    return books


def test_days_on_spark_are_the_whole(cluster: SparkCluster, demo_books: Books, tmp_path: Path) -> None:
    """Every day of the demo as a task of Spark, an executor killed once some are done: key by key the ledger of one process."""
    books = Books(shutil.copytree(demo_books.store.folder, tmp_path / "books"))
    names = [task.task for task in list_planned(books, is_all=True)]
    killed: list[int] = []
    is_over = threading.Event()

    def kill_one() -> None:
        while not is_over.is_set() and not killed:
            if len(list((books.store.folder / FOLDER).glob("*.parquet"))) >= 1:
                for pid in cluster.find_executors()[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            time.sleep(0.05)

    killer = threading.Thread(target=kill_one)
    killer.start()
    try:
        run_spark(name_books(books.store.folder), names, cluster.master, lambda _what, _share: None)
    finally:
        is_over.set()
        killer.join()
    assert killed
    found = publish(books)
    assert (found.tasks, found.dropped, found.stale_hours) == (len(names), 0, 0)
    booked, whole = ledger_of(books), ledger_of(demo_books)
    assert set(booked) == set(whole)
    worst = max(
        abs(value - whole[key][name]) / max(abs(value), abs(whole[key][name]), 1e-300)
        for key, sums in booked.items()
        for name, value in sums.items()
    )
    assert worst <= 1e-12


def test_spark_reads_what_is_exported(demo_books: Books, tmp_path: Path, run: Run) -> None:
    """The statement of docs/in-your-warehouse.md in Spark and in DuckDB, over exported Parquet: the same, and as the books say."""
    text = (Path(__file__).parents[2] / "docs" / "in-your-warehouse.md").read_text(encoding="utf-8")
    statement = text.partition("```sql\n")[2].partition("```")[0]
    assert run("export", "ledger", "--store", demo_books.store.folder, "--output", tmp_path / "out")[0] == 0
    duckdb.sql(
        f"CREATE VIEW ledger AS SELECT * FROM read_parquet('{tmp_path}/out/*/*.parquet', hive_partitioning = true)"
    )
    here = {row[0]: row[1:] for row in duckdb.sql(statement).fetchall()}
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        session.read.parquet(str(tmp_path / "out")).createOrReplaceTempView("ledger")
        there = {row[0]: tuple(row)[1:] for row in session.sql(statement).collect()}
    finally:
        session.stop()
    assert len(here) > 1
    assert {team: pytest.approx(values, rel=1e-9) for team, values in here.items()} == there
    start, end = (datetime(2026, month, 1, tzinfo=UTC) for month in (10, 11))
    readings = demo_books.show(["allocated_gpu_hours", "utilization", "idle_cost"], "team", start, end)
    for reading in readings:
        if reading.by["team"] in here:
            index = ("allocated_gpu_hours", "utilization", "idle_cost").index(reading.metric)
            assert here[reading.by["team"]][index] == pytest.approx(reading.value, rel=1e-9), reading
