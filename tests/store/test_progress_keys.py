"""Rows of progress and what tells them apart, in books of before `replica` and `cause`, too."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.ledger.fleets import HOUR, STARTS, add, batch

from loadfactor.books.books import Books
from loadfactor.store.manifest import name_file
from loadfactor.store.sample_files import read
from loadfactor.store.writer import Writer

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
