"""Stores of earlier versions open with today's code, and newer ones are refused. `earlier_formats` holds stores they wrote."""

import errno
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loadfactor.base.errors import InputError, StoreError
from loadfactor.books.books import Books
from loadfactor.store import disk, manifest

EARLIER = Path(__file__).parent / "earlier_formats"
VALUES = {  # as the versions that wrote them answered
    "effective_gpu_hours": 1.9666666666666666,
    "observed_gpu_hours": 3.933333333333333,
    "energy_kwh": 2.36,
    "cost": 50.0,
    "unallocated_cost": 40.0,
    "allocated_gpu_hours": 4.0,
}


@pytest.fixture(params=["format-1", "format-2"])
def old_store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store as an earlier version wrote it: two GPUs, four hours of samples a minute apart with a gap, a job, a price."""
    return Path(shutil.copytree(EARLIER / request.param, tmp_path / "store"))


def test_an_old_store_opens_with_its_numbers(old_store: Path) -> None:
    """It is brought to today's format when it is opened, answers as before, and nothing of the earlier files stays."""
    books = Books(old_store)
    assert {r.metric: r.value for r in books.show(list(VALUES))} == pytest.approx(VALUES, rel=1e-12)
    (observed,) = books.show(
        "observed_gpu_hours", start=datetime(2026, 5, 1, 1, 30, tzinfo=UTC), end=datetime(2026, 5, 1, 1, 50, tzinfo=UTC)
    )
    assert observed.value == pytest.approx(17 / 60)
    assert json.loads((old_store / manifest.NAME).read_text())["format"] == manifest.FORMAT
    named = {f.name for f in books.store.manifest.files}
    assert {p.name for p in old_store.glob("*.parquet")} == named
    assert books.check().is_sound


def test_a_migration_that_finds_no_room_leaves_nothing_behind(old_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was moved into the store before the disk was full is removed; the store is as it was, and opens when there is room."""
    before, renamed, rename = {p.name for p in old_store.iterdir()}, [], disk.rename

    def fill_up(source: Path, target: Path) -> None:
        if renamed:
            raise OSError(errno.ENOSPC, "No space left on device")
        renamed.append(target.name)
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "rename", fill_up)
        with pytest.raises(StoreError, match="the books are as before"):
            Books(old_store)
    assert renamed
    assert {p.name for p in old_store.iterdir()} - before <= {"lock"}
    assert {r.metric: r.value for r in Books(old_store).show(list(VALUES))} == pytest.approx(VALUES, rel=1e-12)


def test_an_old_store_takes_new_prices(old_store: Path, tmp_path: Path) -> None:
    """After the migration an import of prices works on the same table, and can be taken out again."""
    (tmp_path / "prices.csv").write_text("basis,price_per_gpu_hour,from_utc\ncontracted,5,2026-05-01T05:00:00Z\n")
    books = Books(old_store)
    receipt = books.add("prices", [tmp_path / "prices.csv"])
    assert books.show("cost")[0].value == 75.0
    assert receipt.number is not None
    books.forget(receipt.number)
    assert books.show("cost")[0].value == pytest.approx(50.0, rel=1e-12)


def test_an_earlier_import_cannot_be_forgotten_and_says_so(old_store: Path) -> None:
    """Earlier versions did not keep the rows of imports apart: `imports` lists them, `forget` refuses."""
    books = Books(old_store)
    (record,) = books.imports
    with pytest.raises(InputError, match="was read by an earlier version"):
        books.forget(record.number)


def test_a_newer_store_is_refused(old_store: Path) -> None:
    """A store of a later format is refused in one line that says what to install, and is left as it is."""
    path = old_store / manifest.NAME
    raw = json.loads(path.read_text()) | {"format": manifest.FORMAT + 1}
    path.write_text(json.dumps(raw))
    before = path.read_text()
    with pytest.raises(StoreError, match=r"install the newest version"):
        Books(old_store)
    assert path.read_text() == before


def test_a_store_that_cannot_be_migrated_is_left_alone(old_store: Path) -> None:
    """When a file of an old store is missing, the migration stops with one line and changes nothing."""
    for prices in old_store.glob("prices-*.parquet"):
        prices.unlink()
    before = sorted((p.name, p.read_bytes()) for p in old_store.glob("*.*"))
    with pytest.raises(StoreError, match="of an earlier version and could not be brought to this one"):
        Books(old_store)
    assert sorted((p.name, p.read_bytes()) for p in old_store.glob("*.*")) == before
