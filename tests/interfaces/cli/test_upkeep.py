"""The commands that keep the books in order: imports, forget, compact, repair, and what is said of damage."""

import json
from pathlib import Path
from shutil import copytree

import pytest
from tests.commands import Run, worked_example

from loadfactor.books.books import Books


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with books of two imports, the worked example and a price list, and the files of both."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "prices.csv").write_text("basis,price_per_gpu_hour,from_utc\nlist,3,\n")
    books = Books(folder / "store")
    books.add("tables", [worked_example(folder / "tables")])
    books.add("prices", [folder / "prices.csv"])
    return folder


@pytest.fixture
def store(kept: Path, tmp_path: Path) -> Path:
    """A copy of these books, beside their files."""
    return Path(copytree(kept, tmp_path / "copy")) / "store"


def listing(store: Path) -> list[tuple[str, int, int]]:
    """Every file of a folder with its size and when it was changed."""
    return sorted((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in store.rglob("*"))


def test_imports_are_listed_and_one_is_forgotten(run: Run, store: Path) -> None:
    """`imports` numbers what was read; `forget` takes one out as if it had never been; an unknown number is a mistake."""
    _, before, _ = run("show", "cost", "--basis", "list", "--store", store, "--json")
    code, out, _ = run("imports", "--store", store, "--json")
    assert code == 0
    listed = json.loads(out)["imports"]
    assert [(i["number"], i["source"]) for i in listed] == [(1, "tables"), (2, "prices")]
    assert run("forget", "2", "--store", store)[0] == 0
    _, after, _ = run("show", "cost", "--basis", "list", "--store", store, "--json")
    assert json.loads(before)[0]["value"] == 30.0
    assert json.loads(after)[0]["value"] is None
    code, _, err = run("forget", "2", "--store", store)
    assert code == 2
    assert "no import 2" in err
    assert run("import", "prices", store.parent / "prices.csv", "--store", store)[0] == 0
    assert run("show", "cost", "--basis", "list", "--store", store, "--json")[1] == before


def test_questions_leave_no_trace(run: Run, store: Path) -> None:
    """Asking, checking and listing change nothing on the disk, and work where nothing can be written."""
    before = listing(store)
    for words in (("show", "cost"), ("report",), ("doctor",), ("imports",)):
        assert run(*words, "--store", store)[0] == 0
    assert listing(store) == before


def test_compaction_changes_no_answer(run: Run, store: Path) -> None:
    """`compact` merges files; every number stays."""
    asked = ("show", "cost", "utilization", "allocated_gpu_hours", "--by", "team,day", "--store", store, "--json")
    before = run(*asked)[1]
    assert run("compact", "--store", store)[0] == 0
    assert run(*asked)[1] == before


def test_damage_is_said_by_every_question_and_repaired(run: Run, store: Path) -> None:
    """A damaged file ends every question with a line and exit code 1; after `repair` what is lost is said with every answer."""
    for path in store.glob("samples-*.parquet"):
        path.write_bytes(path.read_bytes()[:-1])
    for path in store.glob("ledger-*.parquet"):
        path.unlink()
    for words in (("show", "cost"), ("report",), ("doctor",), ("show", "cost", "--json")):
        code, _, err = run(*words, "--store", store)
        assert code == 1
        assert len(err.strip().splitlines()) == 1
        assert "run `loadfactor repair" in err
    code, out, _ = run("repair", "--store", store)
    assert code == 1
    assert "samples" in out
    code, _, err = run("show", "cost", "--store", store)
    assert code == 0
    assert "lack what was in a damaged file" in err
    assert run("doctor", "--store", store)[0] == 1
    assert run("import", "tables", store.parent / "tables", "--store", store)[0] == 0
    code, _, err = run("show", "utilization", "--store", store)
    assert (code, err) == (0, "")
    assert run("doctor", "--store", store)[0] == 0


def test_a_ledger_booked_otherwise_is_said_until_it_is_written(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Books that another version booked answer alike, say that each question books them anew, and no longer once compacted."""
    _, before, said = run("show", "cost", "--store", store, "--json")
    assert "books it anew" not in said
    monkeypatch.setattr("loadfactor.books.rebuild.DEFINITION", "of another version")
    _, after, said = run("show", "cost", "--store", store, "--json")
    assert after == before
    assert said.count("books it anew") == 1
    assert f"loadfactor compact --store {store}" in said
    assert run("compact", "--store", store)[0] == 0
    assert "books it anew" not in run("show", "cost", "--store", store)[2]
