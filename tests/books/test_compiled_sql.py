"""Compiled SQL is kept between runs, and whatever happens to what was kept changes no answer."""

from pathlib import Path

import pytest

from loadfactor.books import booking, compiled_sql, rebuild
from loadfactor.books.books import Books
from loadfactor.books.compiled_sql import recall


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of a process that has compiled nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled_sql, "_known", {})
    return tmp_path / "loadfactor"


def forget_and_recall(monkeypatch: pytest.MonkeyPatch, sql: str) -> dict[str, str]:
    """What another process is given that would compile `sql`."""
    monkeypatch.setattr(compiled_sql, "_known", {})
    return recall("a question", lambda: {"sums": sql})


def test_a_question_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process reads what the first one compiled."""
    assert forget_and_recall(monkeypatch, "SELECT 1") == {"sums": "SELECT 1"}
    assert forget_and_recall(monkeypatch, "SELECT 2") == {"sums": "SELECT 1"}
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("damage", [b"", b"\xff\x00", b"0" * 32 + b'\n{"sums": "SELECT 3"}'])
def test_damage_is_compiled_again(folder: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    """An entry whose bytes are not those that were written is not believed."""
    forget_and_recall(monkeypatch, "SELECT 1")
    next(folder.iterdir()).write_bytes(damage)
    assert forget_and_recall(monkeypatch, "SELECT 2") == {"sums": "SELECT 2"}


def test_a_cache_that_cannot_be_written_is_done_without(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands where the folder should be: answers come all the same."""
    folder.write_text("")
    assert forget_and_recall(monkeypatch, "SELECT 1") == {"sums": "SELECT 1"}


@pytest.mark.usefixtures("folder")
def test_the_ledger_is_booked_from_kept_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process books the same ledger without compiling a step."""
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "devices.csv").write_text("device_id,from_utc,to_utc\ng,2026-01-01T00:20:00Z,2026-01-01T02:40:00Z\n")

    def book(name: str) -> list[dict[str, object]]:
        monkeypatch.setattr(compiled_sql, "_known", {})
        books = Books(tmp_path / name)
        books.add("tables", [tables])
        return sorted(books.table("ledger").to_pyarrow().to_pylist(), key=lambda row: int(row["hour_utc"]))

    first = book("first")
    for module in (booking, rebuild):
        monkeypatch.setattr(module, "ledger_steps", None)
    assert book("second") == first
    assert len(first) == 3


def test_what_sql_depends_on_is_there() -> None:
    """Each folder and file whose text names the cache exists: a change of any of them compiles anew."""
    root = Path(compiled_sql.__file__).parents[1]
    assert all((root / name).exists() for name in compiled_sql.DEFINED_IN)
