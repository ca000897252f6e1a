"""Stores of another format are refused with what to do; tables with fewer columns are read."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commands import Run, worked_example

from loadfactor.base.errors import StoreError
from loadfactor.books.books import Books
from loadfactor.store import live_database, manifest
from loadfactor.store.live import LiveLog
from loadfactor.store.live_database import LiveBatch
from loadfactor.store.manifest import name_file
from loadfactor.store.sample_files import read
from loadfactor.store.session import read_rows
from loadfactor.store.writer import Writer

IS_OLDER = "carry it over: .*`loadfactor export`.* imported into a new store"
IS_NEWER = "install the newest version of loadfactor"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The books of the worked example."""
    books = Books(tmp_path / "store")
    books.add("tables", [worked_example(tmp_path / "tables")])
    return tmp_path / "store"


@pytest.mark.parametrize(("found", "advice"), [(1, IS_OLDER), (4, IS_OLDER), (6, IS_NEWER)])
def test_store_of_another_format_is_refused_and_left_alone(store: Path, found: int, advice: str) -> None:
    """Format 5 is read; of 4 a line says how to carry it over, of 6 that a newer version is needed, and no byte changes."""
    path = store / manifest.NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": found}))
    before = {p.name: p.read_bytes() for p in store.iterdir()}
    for open_books in (lambda: Books(store), lambda: Books.open(store)):
        with pytest.raises(StoreError, match=f"has format {found}, this version reads 5; {advice}"):
            open_books()
    assert {p.name: p.read_bytes() for p in store.iterdir()} == before


@pytest.mark.parametrize("words", [("show", "cost"), ("doctor",), ("repair",), ("imports",), ("compact",)])
def test_commands_refuse_a_store_of_before_in_a_line(store: Path, words: tuple[str, ...], run: Run) -> None:
    """`show`, `doctor`, `repair` and the like say in one line that format 4 is of before, and how to carry it over."""
    path = store / manifest.NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 4}))
    code, out, err = run(*words, "--store", store)
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert "carry it over" in err


@pytest.mark.parametrize(("found", "advice"), [(1, IS_OLDER), (3, IS_NEWER)])
def test_live_rows_of_another_format_are_refused(tmp_path: Path, found: int, advice: str) -> None:
    """live.sqlite of format 1 or 3 is neither read nor written; nothing in it is taken for damage."""
    rows = pa.table({"device_id": ["g"], "node": ["n"], "from_utc": [1_767_225_600_000], "to_utc": [1_767_229_200_000]})
    with LiveLog.open(tmp_path) as log:
        log.acknowledge([LiveBatch("test", "devices", rows, "")])
    with sqlite3.connect(tmp_path / live_database.NAME) as connection:
        connection.execute(f"PRAGMA user_version = {found}")
    connection.close()
    reads: list[Callable[[], object]] = [lambda: live_database.read_live(tmp_path, 0), lambda: LiveLog.open(tmp_path)]
    for read_rows_of_it in reads:
        with pytest.raises(StoreError, match=f"live.sqlite has format {found}, this version reads 2; {advice}"):
            read_rows_of_it()


ADDED = ("job_number", "queue", "tags", "known_from", "gpu_indices")
LIST = "job_id,device_id,node,from_utc,to_utc,team\n"


@pytest.fixture
def books(tmp_path: Path) -> Books:
    """Two imports of a GPU and its holders; their files lack the columns that were added since."""
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "devices.csv").write_text(
        "device_id,node,from_utc,to_utc\ng0,n1,2026-10-01T00:00:00Z,2026-10-02T00:00:00Z\n"
    )
    (folder / "allocations.csv").write_text(LIST + "a,g0,n1,2026-10-01T01:00:00Z,2026-10-01T03:00:00Z,red\n")
    second = tmp_path / "two"
    second.mkdir()
    (second / "allocations.csv").write_text(LIST + "b,g0,n1,2026-10-01T03:00:00Z,2026-10-01T04:00:00Z,blue\n")
    books = Books(tmp_path / "books")
    books.add("tables", [folder])
    books.add("tables", [second])
    with books.store.write() as writer:
        for file in [f for f in writer.manifest.files if f.table == "allocations"]:
            _write_without(writer, file.name)
    return books


def _write_without(writer: Writer, name: str) -> None:
    """The file as an earlier version would have written it."""
    file = next(f for f in writer.manifest.files if f.name == name)
    made = replace(file, name=name_file(file.table))
    sql = f"SELECT * EXCLUDE ({', '.join(ADDED)}) FROM {read(writer.paths([file]))}"
    writer.swap([file], [writer.copy(sql, made)])


def _hours(books: Books) -> dict[str | None, float | None]:
    return {r.by["team"]: r.value for r in books.show("allocated_gpu_hours", by="team") if r.value}


def test_they_answer(books: Books) -> None:
    """Questions read them; what was not written is null."""
    assert _hours(books) == {"red": 2.0, "blue": 1.0}
    with books.store.read() as session:
        stored = session.paths(session.manifest.of("allocations"))
        rows = session.fetch(f"SELECT * FROM {read_rows('allocations', stored)}")
    assert set(ADDED) <= set(rows.column_names)
    assert rows["queue"].null_count == rows.num_rows == 2


@pytest.mark.long
def test_they_grow_and_shrink(books: Books, tmp_path: Path) -> None:
    """Rows with the new columns are added beside them; earlier imports are taken out again."""
    third = tmp_path / "three"
    third.mkdir()
    (third / "allocations.csv").write_text(
        LIST.replace("team", "team,queue") + "c,g0,n1,2026-10-01T05:00:00Z,2026-10-01T09:00:00Z,green,gpu\n"
    )
    books.add("tables", [third])
    assert _hours(books) == {"red": 2.0, "blue": 1.0, "green": 4.0}
    books.forget(1)
    assert _hours(books) == {"blue": 1.0, "green": 4.0}
    books.compact()
    assert _hours(books) == {"blue": 1.0, "green": 4.0}
