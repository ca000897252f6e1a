"""Small tables: the short way, for rows that have nothing to do with each other, gives the table that folding gives."""

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.store.small_imports import completed, contradicted, fold, in_order, listed_twice, repeated, together
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
