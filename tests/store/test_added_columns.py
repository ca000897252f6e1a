"""Books whose files were written before a table got a column: they answer, grow, compact and forget as any others."""

from dataclasses import replace
from pathlib import Path

import pytest

from loadfactor import Books
from loadfactor.store.manifest import name_file
from loadfactor.store.sample_files import read
from loadfactor.store.session import read_rows
from loadfactor.store.writer import Writer

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
