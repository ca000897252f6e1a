"""The ledger is one definition for every engine: each step compiles for DuckDB, Spark and ClickHouse; on Spark it is run too."""

from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ibis
import pytest
from ibis.backends.sql.compilers import PySparkCompiler
from ibis.config import Config
from tests.long import rest_long

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.catalog.links import list_link_peaks
from loadfactor.ledger.columns import WITHOUT
from loadfactor.ledger.scope import NUMBERS
from loadfactor.ledger.steps import Activity, Holders, compile_steps, list_steps
from loadfactor.ledger.waits import list_waits
from loadfactor.metrics.query.calendar import instant
from loadfactor.tables.schema import MEASUREMENTS, columns_of, measured_bit

EVERYTHING = (1 << len(MEASUREMENTS)) - 1
BUSY = measured_bit("busy_share")
DIALECTS = ("duckdb", "pyspark", "clickhouse")


class SparkOptions(Config):
    """What Ibis' Spark backend sets when it is imported."""

    treat_nan_as_null: bool = False


def sql(expr: Any, dialect: str) -> str:
    """SQL of an engine; Spark's compiler is used directly, so that pyspark need not be installed."""
    if dialect == "pyspark":
        with patch.object(ibis.options, "pyspark", SparkOptions()):
            return str(PySparkCompiler().to_sqlglot(expr.unbind()).sql("databricks"))
    return str(ibis.to_sql(expr, dialect=dialect))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("measured", "overlaps", "numbered", "filled"),
    rest_long([(EVERYTHING, True, True, True), (0, False, False, False), (BUSY, False, True, False)]),
)
def test_every_step_of_the_ledger_compiles(
    dialect: str, measured: int, overlaps: bool, numbered: bool, filled: bool
) -> None:
    """Whatever was measured, overlapping, numbered or filled in, each step is one SELECT of the engine; the last is the book."""
    chain = (Holders(numbered=numbered, filled=filled), Activity(measured, overlaps))
    steps = {name: step for of in chain for name, step in list_steps(of).items()}
    texts = {name: sql(step.full, dialect) for name, step in steps.items()}
    assert list(texts) == [key for of in chain for key in compile_steps(of) if WITHOUT not in key]
    assert list(texts)[-1] == "book"
    assert all("SELECT" in text for text in texts.values())
    assert ("misnumbered" in texts) == numbered
    assert ("payers" in texts) == filled
    for step in steps.values():
        for form in step.shorter.values():
            assert form.schema() == step.full.schema()
            assert "SELECT" in sql(form, dialect)


def test_what_nobody_says_costs_no_step() -> None:
    """Where no allocation says numbers of GPUs and no label a payer that lists lack, no step is for them or carries them along."""
    plain, filled, numbered = map(compile_steps, (Holders(), Holders(filled=True), Holders(numbered=True)))
    assert not any(NUMBERS in step.full.columns for step in list_steps(Holders()).values())
    assert {key.partition(WITHOUT)[0] for key in filled.keys() - plain.keys()} == {"lists", "payers"}
    new = {key.partition(WITHOUT)[0] for key in numbered.keys() - plain.keys()}
    assert new == {"numbers", "misnumbered", "known_claims"}
    assert filled["lists"] == plain["listed"]
    assert {key for key in plain.keys() & filled.keys() if filled[key] != plain[key]} == {"listed"}
    after = list(plain)[list(plain).index("claims") + 1 :]
    assert all(numbered[key] == plain[key] for key in after)


def test_an_empty_table_is_not_read() -> None:
    """A shorter form reads none of the tables whose emptiness it stands on: without cuts the slices need none."""
    for key, text in compile_steps(Holders(numbered=True)).items():
        name, _, empty = key.partition(WITHOUT)
        assert not {f'"{table}"' for table in empty.split()} & {*text.replace("\n", " ").split()}, name


@pytest.mark.parametrize("dialect", DIALECTS)
def test_waits_compile(dialect: str) -> None:
    """The definition of a wait is one too."""
    given = [ibis.table(ibis.schema(columns_of(name)), name=name) for name in ("allocations", "queue_events")]
    text = sql(list_waits(*given), dialect)
    assert "queue_events" in text
    assert "wait_s" in text


@pytest.mark.skipif(find_spec("pyspark") is None, reason="pyspark is not installed: pip install loadfactor[spark]")
def test_spark_keeps_the_same_books(tmp_path: Path) -> None:
    """The plan run on Spark over the store's own files gives the ledger that DuckDB gave."""
    import random

    from pyspark.sql import SparkSession
    from tests.ledger.fleets import Fleet, add, batches

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    books = Books(tmp_path / "store")
    add(books, batches(Fleet(random.Random(7)).tables), "all", tmp_path)
    columns = ("hour_utc", "state", "device_id", "job_id", "measured_mask", "activity_bin")
    ours = books.table("ledger").to_pandas()
    store = books.store
    spark.createDataFrame([store.span()], "start_ms long, end_ms long").createOrReplaceTempView("bounds")
    types = {"string": "string", "float64": "double", "int64": "long", "int32": "int", "boolean": "boolean"}
    for name in ("devices", "outages", "prices", "exchange_rates", "allocations", "samples", "estimates"):
        of = "prices" if name == "estimates" else name
        held = [] if name == "estimates" else store.relation(of).to_pyarrow().to_pylist()
        rows = [tuple(row[c] for c in columns_of(of)) for row in held]
        schema = ", ".join(f"`{c}` {types[t]}" for c, t in columns_of(of).items())
        spark.createDataFrame(rows, schema).createOrReplaceTempView(name)
    spark.createDataFrame(
        [tuple(row.values()) for row in list_link_peaks().to_pylist()],
        "accelerator string, pcie_peak_bytes_per_s double, nvlink_peak_bytes_per_s double",
    ).createOrReplaceTempView("links")
    measured = 0
    for file in store.manifest.of("samples"):
        measured |= file.measured
    spark.createDataFrame([], "at_utc long").createOrReplaceTempView("cuts")
    chain = (Holders(numbered=True, filled=True), Activity(measured, overlaps=True))
    for name, step in (item for of in chain for item in list_steps(of).items()):
        spark.sql(sql(step.full, "pyspark")).write.parquet(str(tmp_path / name))
        spark.read.parquet(str(tmp_path / name)).createOrReplaceTempView(name)
    theirs = spark.table("book").toPandas()
    for column in ("gpu_s", "sm_active_s", "busy_s", "energy_j", "mem_used_byte_s"):
        a, b = (t.groupby([*columns], dropna=False)[column].sum().to_dict() for t in (ours, theirs))
        assert {str(k): v for k, v in a.items()} == pytest.approx({str(k): v for k, v in b.items()}, rel=1e-9, abs=1e-9)
    spark.stop()


def test_a_window_is_what_its_parts_are(tmp_path: Path) -> None:
    """Two windows that meet inside an hour add up to the window they make."""
    import random

    from tests.ledger.fleets import Fleet, add, batches

    books = Books(tmp_path / "store")
    add(books, batches(Fleet(random.Random(7)).tables), "all", tmp_path)
    start, end = books.store.span()
    middle = (start + end) // 2 + 12_345

    def seconds(a: int, b: int) -> float:
        (paid,) = books.show(["paid_gpu_hours"], start=instant(a), end=instant(b))
        assert isinstance(paid.value, float)
        return paid.value

    assert seconds(start, middle) + seconds(middle, end) == pytest.approx(seconds(start, end), rel=1e-12)


def test_a_window_beside_the_books_is_refused(tmp_path: Path) -> None:
    """A window in the very hour in which the books begin or end, but outside of them, is told what they cover."""
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "devices.csv").write_text("device_id,from_utc,to_utc\ng,2026-01-01T00:20:00Z,2026-01-01T00:40:00Z\n")
    books = Books(tmp_path / "store")
    books.add("tables", [folder])

    def paid(first: str, last: str) -> float | None:
        window = (datetime.fromisoformat(f"2026-01-01T00:{minute}:00+00:00") for minute in (first, last))
        return books.show(["paid_gpu_hours"], (), *window)[0].value  # type: ignore[return-value]

    for outside in (("00", "10"), ("50", "59")):
        with pytest.raises(InputError, match="they cover 2026-01-01 00:20 UTC to 2026-01-01 00:40 UTC"):
            paid(*outside)
    assert paid("10", "50") == pytest.approx(1 / 3, rel=1e-12)
    assert paid("30", "50") == pytest.approx(1 / 6, rel=1e-12)
