"""Tasks on a cluster of Spark: rows of names, which `mapInArrow` hands to Python beside each executor. Spark retries what fails.

Executors read the books under the same path as this process, and have loadfactor installed.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from loadfactor.base.errors import InputError, StoreError
from loadfactor.interfaces.engines.worker import TaskBooks, book_task

if TYPE_CHECKING:
    import pyarrow as pa

    from loadfactor.store.importing import Progress


def run_spark(books: TaskBooks, names: Sequence[str], master: str | None, progress: "Progress") -> None:
    """Book tasks on a cluster, a partition each. Raises InputError without PySpark, StoreError where Spark gives up."""
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise InputError("PySpark is not installed: `pip install 'loadfactor[spark]'`") from error
    progress("starting Spark", 0.0)
    builder = SparkSession.builder.appName("loadfactor ledger")
    session = (builder.master(master) if master else builder).getOrCreate()
    try:
        progress("booking days on Spark", 0.0)
        rows = session.sparkContext.parallelize([(name,) for name in names], len(names))
        frame = session.createDataFrame(rows, "name string")
        frame.mapInArrow(partial(_book_batches, books), "name string").collect()
    except PySparkException as error:
        raise StoreError(
            f"Spark gave up: {str(error).strip().splitlines()[0]}; `loadfactor ledger plan` has what is left"
        ) from error
    finally:
        session.stop()


def _book_batches(books: TaskBooks, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    for batch in batches:
        for name in batch["name"].to_pylist():
            book_task(books, name)
        yield batch
