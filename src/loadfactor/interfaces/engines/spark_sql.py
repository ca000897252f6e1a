"""The steps of the ledger as SQL on Spark, from the definitions that DuckDB runs, for books that lie where a cluster reads them.

Small tables are read from the files of the store, and samples, whose intervals follow from the samples around them, are settled by
DuckDB in tasks beside the executors (`mapInArrow`), which also put the rows of each day into the file of its task. Everything
between is Spark's: all days at once. Executors read the books under the same path as this process, and have loadfactor installed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from loadfactor.base.errors import InputError
from loadfactor.base.paths import read_url
from loadfactor.base.units import MS_PER_DAY
from loadfactor.books.booking import book_elsewhere, settle_samples
from loadfactor.books.compiled_sql import recall
from loadfactor.books.day_tasks import DayTask, TaskList
from loadfactor.interfaces.engines.spark import open_session
from loadfactor.interfaces.engines.worker import TaskBooks, open_tasks
from loadfactor.store.session import Session
from loadfactor.tables.schema import columns_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from loadfactor.store.importing import Progress

SETTINGS: Final = {
    "spark.sql.ansi.enabled": "false",  # a share of nothing is unknown, as elsewhere
    "spark.sql.constraintPropagation.enabled": "false",  # takes longer than the query
}
_TYPES: Final = {
    "string": "string",
    "int64": "bigint",
    "int32": "int",
    "float64": "double",
    "boolean": "boolean",
}


class SparkTables:
    """Tables of a session of Spark, as the steps of the ledger need them (`books.booking.OtherTables`)."""

    dialect: Final = "pyspark"

    def __init__(self, spark: "SparkSession", books: TaskBooks, tasks: TaskList, names: Sequence[str]) -> None:
        self.spark = spark
        self._books, self._session, self._names = books, tasks.session, names
        import ibis

        _ = ibis.pyspark.name  # options that its compiler reads are there once it is loaded

    def view_table(self, name: str, table: str) -> None:
        """Name the files of a table of the store; columns that a file lacks are unknown."""
        schema = _write_schema(columns_of(table))
        paths = [str(path) for path in self._session.paths(self._session.manifest.of(table))]
        rows = self.spark.read.schema(schema).parquet(*paths) if paths else self.spark.createDataFrame([], schema)
        rows.createOrReplaceTempView(name)

    def create_view(self, name: str, sql: str) -> None:
        """Give a query a name."""
        self.spark.sql(self._work_out_parts(name, sql)).createOrReplaceTempView(name)

    def materialize(self, name: str, sql: str) -> int:
        """Work a query out, on the executors; how many rows it has."""
        rows = self.spark.sql(self._work_out_parts(name, sql)).localCheckpoint()
        rows.createOrReplaceTempView(name)
        return int(rows.count())

    def put(self, name: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Put a few texts or whole numbers into a table."""
        types = {c: "string" if values and isinstance(values[0], str) else "int64" for c, values in columns.items()}
        self._put(name, types, list(zip(*columns.values(), strict=True)))

    def put_once(
        self, name: str, columns: Mapping[str, str], list_rows: Callable[[], list[Any]], _key: object = None
    ) -> None:
        """Put rows into a table."""
        self._put(name, columns, [tuple(row[column] for column in columns) for row in list_rows()])

    def take(self, name: str, session: Session) -> None:
        """Take a table of a session, under its name."""
        rows = session.fetch(f"SELECT * FROM {name}")
        types = {field.name: str(field.type).replace("double", "float64") for field in rows.schema}
        self._put(name, types, [tuple(row.values()) for row in rows.to_pylist()])

    def settle(self, name: str) -> None:
        """Name the samples of the days, whose intervals DuckDB works out beside the executors."""
        rows = self.spark.sparkContext.parallelize([(task,) for task in self._names], len(self._names))
        frame = self.spark.createDataFrame(rows, "name string")
        settled = frame.mapInArrow(partial(_settle, self._books), _write_schema(columns_of("samples")))
        settled.localCheckpoint().createOrReplaceTempView(name)

    def _put(self, name: str, types: Mapping[str, str], rows: list[tuple[Any, ...]]) -> None:
        self.spark.createDataFrame(rows, _write_schema(types)).createOrReplaceTempView(name)

    def _work_out_parts(self, name: str, sql: str) -> str:
        """Put the parts that a query needs more than once into tables; SQL of the rest."""
        *parts, (_, rest) = recall(f"parts {sql}", lambda: _list_parts(sql, name)).items()
        for part, text in parts:
            self.spark.sql(text).localCheckpoint().createOrReplaceTempView(part)
        return rest


def run_spark_sql(books: TaskBooks, names: Sequence[str], master: str | None, progress: "Progress") -> None:
    """Book days on a cluster. Raises InputError without PySpark or of books in a bucket, StoreError where Spark gives up."""
    if read_url(books.store) is not None:
        raise InputError("spark-sql reads the files of a folder; of books in a bucket take --engine spark")
    with open_session(master, progress) as session:
        book_days(session, books, names)


def book_days(spark: "SparkSession", books: TaskBooks, names: Sequence[str]) -> None:
    """Book days in a session of Spark, all at once, and put the rows of each into the file of its task."""
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    tasks = open_tasks(books)
    chosen = [tasks.find(name) for name in names]
    tables = SparkTables(spark, books, tasks, names)
    book_elsewhere(tasks.session, tables, tasks.find_spans(chosen), tasks.idle_below, tasks.owned)
    rows = spark.table("book")
    days = rows.repartition(len(names), (rows.hour_utc / MS_PER_DAY).cast("bigint"))
    days.mapInArrow(partial(_keep, books, tuple(names)), "name string").collect()
    nothing = rows.limit(0).toArrow()
    for task in chosen:  # of days without a row
        _keep_rows(tasks, [task], nothing)


def _settle(books: TaskBooks, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """The samples of days, given by the names of their tasks."""
    for batch in batches:
        tasks = open_tasks(books)
        for name in batch["name"].to_pylist():
            chosen = settle_samples(tasks.session, tasks.find_spans([tasks.find(name)]))
            columns = ", ".join(columns_of("samples"))
            yield from tasks.session.raw.execute(f"SELECT {columns} FROM ({chosen})").fetch_record_batch(100_000)


def _keep(books: TaskBooks, names: Sequence[str], batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Put rows of the ledger, whole days, into the files of their tasks."""
    import pyarrow as pa

    iterator = iter(batches)
    first = next(iterator, None)
    if first is not None:
        tasks = open_tasks(books)
        rows = pa.RecordBatchReader.from_batches(first.schema, chain((first,), iterator))
        _keep_rows(tasks, [tasks.find(name) for name in names], rows)
    return iter(())


def _keep_rows(tasks: TaskList, of: Iterable[DayTask], rows: "pa.Table | pa.RecordBatchReader") -> None:
    """Put rows into the files of those tasks whose day they speak of, or of all where there is no row."""
    session = tasks.session
    session.raw.register("rows_of_spark", rows)
    count = session.materialize("kept_rows", "SELECT * FROM rows_of_spark")
    session.raw.unregister("rows_of_spark")
    there = {
        day for (day,) in session.raw.execute(f"SELECT DISTINCT hour_utc // {MS_PER_DAY} FROM kept_rows").fetchall()
    }
    for task in of:
        day = task.hours[0][0] // MS_PER_DAY
        if day in there or not count:
            tasks.keep(task, f"(SELECT * FROM kept_rows WHERE hour_utc // {MS_PER_DAY} = {day})")


def _list_parts(sql: str, name: str) -> dict[str, str]:
    from loadfactor.ledger.shared_queries import list_parts  # takes as long to import as a small query to plan

    return list_parts(sql, name)


def _write_schema(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {_TYPES[of]}" for name, of in columns.items())
