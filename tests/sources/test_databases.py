"""SQLite files from outside: endless views, virtual tables, and files over their budget end in one line, and leave nothing."""

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic

import pytest
from tests.sources.traces.test_nsight_and_xplane import write_sqlite

from loadfactor.base.errors import SourceError
from loadfactor.books.books import Books
from loadfactor.sources import databases
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.databases import Database
from loadfactor.sources.traces.read import read_trace

ENDLESS = (
    "AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT 'a' AS run_uuid, 'n' AS name, 'active' AS"
    " lifecycle_stage, x AS start_time, 'k' AS key, x AS step, x AS timestamp, 1.0 AS value, 0 AS is_nan, x AS id FROM c"
)
COLUMNS = {
    "runs": "run_uuid, name, lifecycle_stage, start_time",
    "metrics": "run_uuid, key, step, timestamp, value, is_nan",
}
ENOUGH_S = 20


def write_database(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return path


def write_mlflow(path: Path, view: str = "", name: str = "") -> Path:
    """An mlflow.db of one step, or with an endless view in place of one of its tables."""
    tables = [f"CREATE TABLE {table} ({columns})" for table, columns in COLUMNS.items() if table != view]
    views = [f"CREATE VIEW {name or view} {ENDLESS}"] if view else []
    rows = {
        "runs": "INSERT INTO runs VALUES ('a', 'n', 'active', 1)",
        "metrics": "INSERT INTO metrics VALUES ('a', 'loss', 1, 1767225600000, 2.5, 0), ('a', 'loss', 2, 1767225601000, 2.5, 0)",
    }
    return write_database(path, *tables, *views, *(row for table, row in rows.items() if table != view))


def forge(path: Path) -> Path:
    """Call every view of a database a table with pages."""
    change = "UPDATE sqlite_master SET type = 'table', rootpage = 2 WHERE type = 'view'"
    return write_database(path, "PRAGMA writable_schema = ON", change)


def import_error(path: Path, store: Path) -> str:
    began_s = monotonic()
    with pytest.raises(SourceError) as refused:
        Books(store).add("training-log", [path], ReadOptions(held_by="j"))
    assert monotonic() - began_s < ENOUGH_S, path
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_endless_view_in_mlflow_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`runs` or `metrics` as a view of 1, 2, 3, …: refused at once, without a file in the temporary folder or a store."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    for number, (view, name) in enumerate((("runs", "runs"), ("runs", "RUNS"), ("metrics", "metrics"))):
        path = write_mlflow(tmp_path / f"{number}.db", view, name)
        assert f"has no table {view}" in import_error(path, tmp_path / "store")
        assert import_error(forge(path), tmp_path / "store")
    assert not list(scratch.iterdir())
    assert not (tmp_path / "store").exists()


def test_endless_view_in_nsight_is_not_read(tmp_path: Path) -> None:
    """Each table of an export in turn as a view of 1, 2, 3, …: left out or refused; if it claims to be a table, refused."""
    whole = write_sqlite(tmp_path / "export.sqlite")
    with closing(Database("export", whole)) as database:
        tables = list(database.names)
    for number, table in enumerate(tables):
        path = tmp_path / f"{number}.sqlite"
        path.write_bytes(whole.read_bytes())
        write_database(path, f"ALTER TABLE {table} RENAME TO kept", f"CREATE VIEW {table.upper()} {ENDLESS}")
        for of in (path, forge(path)):
            began_s = monotonic()
            with suppress(SourceError):
                list(read_trace(of))
            assert monotonic() - began_s < ENOUGH_S, table


def test_view_is_prohibited_whatever_is_asked(tmp_path: Path) -> None:
    """A statement that names a view, or a recursive query of its own, is not run."""
    path = write_database(tmp_path / "a.db", "CREATE TABLE t (x)", f"CREATE VIEW v {ENDLESS}")
    with closing(Database("a.db", path)) as database:
        for statement in ("SELECT id FROM v", ENDLESS.removeprefix("AS "), "DELETE FROM t"):
            with pytest.raises(SourceError, match="damaged SQLite"):
                list(database.read(statement))


def test_virtual_table_is_no_table(tmp_path: Path) -> None:
    """A table of FTS5 is not among the names; its own tables of rows are."""
    path = write_database(tmp_path / "a.db", "CREATE TABLE t (x)", "CREATE VIRTUAL TABLE runs USING fts5(x)")
    with closing(Database("a.db", path)) as database:
        assert "t" in database.names
        assert "runs" not in database.names


@pytest.mark.parametrize(
    ("limit", "most", "said"),
    [
        ("MOST_INPUT_ROWS", 3, "more than 3 rows"),
        ("MOST_INPUT_BYTES", 4, "GiB"),
        ("MOST_INPUT_S", 0, "more than 0 seconds"),
    ],
)
@pytest.mark.parametrize("read", ["mlflow", "nsight"])
def test_database_over_its_budget_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str, limit: str, most: int, said: str
) -> None:
    """With a budget of 3 rows, 4 bytes or no time, an mlflow.db of 5 rows and an export end in one line."""
    monkeypatch.setattr(databases, limit, most)
    readers: dict[str, Callable[[], str]] = {
        "mlflow": lambda: import_error(write_mlflow(tmp_path / "mlflow.db"), tmp_path / "store"),
        "nsight": lambda: trace_error(write_sqlite(tmp_path / "export.sqlite")),
    }
    assert said in readers[read]()
    assert not (tmp_path / "store").exists()


def trace_error(path: Path) -> str:
    with pytest.raises(SourceError) as refused:
        list(read_trace(path))
    return str(refused.value)
