"""Small tables: the short way, for rows that have nothing to do with each other, gives the table that folding gives."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ledger.fleets import HOUR, STARTS, add, batch

from loadfactor.books.books import Books
from loadfactor.store.manifest import name_file
from loadfactor.store.sample_files import read
from loadfactor.store.small_imports import completed, contradicted, fold, in_order, listed_twice, repeated, together
from loadfactor.store.writer import Writer
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.columns import Table, arrow_type
from loadfactor.tables.schema import SAMPLES, TABLES

SMALL = [t for t in TABLES if t not in (SAMPLES, CHARGES)]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.sampled_from(["a", "b", "é"]),
    "instant": st.integers(1, 4),
    "flag": st.booleans(),
    "mask": st.integers(0, 3),
}


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@st.composite
def logged(draw: st.DrawFn, kept: Table) -> pa.Table:
    """Rows of a few imports as logs hold them; cells that may be empty sometimes are."""
    cells = {
        c.name: VALUES.get(c.kind, st.sampled_from([0.0, 0.5, 1.0]))
        if c.required
        else st.none() | VALUES.get(c.kind, st.sampled_from([0.0, 0.5, 1.0]))
        for c in kept.columns
    }
    rows = draw(st.lists(st.fixed_dictionaries(cells), max_size=5))
    schema = pa.schema([pa.field(c.name, arrow_type(c.kind)) for c in kept.columns])
    told = {
        "import_no": pa.array([draw(st.sampled_from([None, 1, 2])) for _ in rows], pa.int32()),
        "seq": pa.array(range(len(rows)), pa.int64()),
        "watched": pa.array([draw(st.booleans()) for _ in rows], pa.bool_()),
    }
    table = pa.Table.from_pylist(rows, schema=schema)
    for name, column in told.items():
        table = table.append_column(name, column)
    return table


@pytest.mark.parametrize("kept", SMALL, ids=lambda t: t.name)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_rows_apart_are_listed_in_order(raw: duckdb.DuckDBPyConnection, kept: Table, data: st.DataObject) -> None:
    """Where no two rows have to do with each other, nothing is merged, nothing is refused, and the order is that of the fold."""
    raw.register("rows", data.draw(logged(kept)))
    if raw.execute(together(kept, "rows")).fetchone():
        return
    assert not raw.execute(repeated(kept, "rows")).fetchone()
    raw.execute(f"CREATE OR REPLACE TABLE folded AS {fold(kept, 'rows')}")
    wanted = "SELECT * FROM folded"
    if kept.name == "devices":
        assert not raw.execute(listed_twice("rows")).fetchone()
        wanted = completed("folded")
        assert not raw.execute(contradicted(f"({wanted})")).fetchone()
    order = ", ".join(kept.identity)
    assert (
        raw.execute(in_order(kept, "rows")).fetchall()
        == raw.execute(f"SELECT * FROM ({wanted}) ORDER BY {order}").fetchall()
    )


START = STARTS[-1]
DEVICES = [{"device_id": "g0", "node": "n0", "from_utc": START, "to_utc": START + HOUR}]


def _step(to_s: int, amount: float, **more: object) -> dict[str, object]:
    row = {"job_id": "j", "from_utc": START, "to_utc": START + 1000 * to_s, "unit": "step"}
    return {**row, "amount": amount, **more}


def _write_as_before(writer: Writer, name: str) -> None:
    """The file as a version without these columns would have written it."""
    file = next(f for f in writer.manifest.files if f.name == name)
    sql = f"SELECT * EXCLUDE (cause, replica) FROM {read(writer.paths([file]))}"
    writer.swap([file], [writer.copy(sql, replace(file, name=name_file(file.table)))])


def _list_steps(books: Books) -> list[tuple[float, str | None]]:
    rows = books.table("progress").to_pyarrow().to_pylist()
    return sorted(((row["amount"], row["replica"]) for row in rows), key=str)


@pytest.fixture
def books(tmp_path: Path) -> Books:
    """Two rows that begin at once and end apart, as an earlier version kept them."""
    books = Books(tmp_path / "store")
    add(books, [batch("devices", DEVICES), batch("progress", [_step(10, 5.0), _step(20, 7.0)])], "a", tmp_path)
    with books.store.write() as writer:
        for file in [f for f in writer.manifest.files if f.table == "progress"]:
            _write_as_before(writer, file.name)
    return books


def test_books_of_before_keep_all_rows_and_take_new_ones(books: Books, tmp_path: Path) -> None:
    """Rows that only their end tells apart stay two; those of a replica come beside them, and go with their import."""
    assert _list_steps(books) == [(5.0, None), (7.0, None)]
    add(books, [batch("progress", [_step(20, 9.0, replica="r")])], "b", tmp_path)
    assert _list_steps(books) == [(5.0, None), (7.0, None), (9.0, "r")]
    add(books, [batch("progress", [_step(20, 8.0)])], "c", tmp_path)
    assert _list_steps(books) == [(5.0, None), (8.0, None), (9.0, "r")]
    books.compact()
    books.forget(3)
    books.forget(2)
    assert _list_steps(books) == [(5.0, None), (7.0, None)]


def test_a_row_of_a_replica_is_replaced_as_it_grows(tmp_path: Path) -> None:
    """A later import of a replica's row with a later end counts in its place."""
    books = Books(tmp_path / "store")
    add(books, [batch("devices", DEVICES), batch("progress", [_step(10, 5.0, replica="r")])], "a", tmp_path)
    add(books, [batch("progress", [_step(40, 20.0, replica="r"), _step(40, 1.0, replica="s")])], "b", tmp_path)
    assert _list_steps(books) == [(1.0, "s"), (20.0, "r")]
