"""An older manifest that was put back: nobody writes over what is newer, and `repair` takes the newest generation that is whole."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.ledger.fleets import HOUR
from tests.long import rest_long
from tests.store.test_whole_or_nothing import START, add, totals

from loadfactor.base.errors import DamageError, InputError, StoreError
from loadfactor.base.units import MS_PER_DAY
from loadfactor.books.books import Books
from loadfactor.books.retention import retain as drop_expired
from loadfactor.settings.retention import Age, RetentionSettings
from loadfactor.store import manifest as manifest_file
from loadfactor.store.folder import list_numbered
from loadfactor.store.live import LiveBatch, LiveLog
from loadfactor.store.manifest import NAME
from loadfactor.store.session import Session
from loadfactor.tables.schema import SAMPLES

PERIOD = "2026-01-01T00:00:00Z,2026-02-01T00:00:00Z,2026-01-01T00:00:00Z"
COLUMNS = "ProviderName,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart"
BILL = f"{COLUMNS},BilledCost,EffectiveCost,Tags\nAWS,1,USD,{PERIOD},7,7,\n"

Change = Callable[[Books, Path], object]


def forget(books: Books, _folder: Path) -> None:
    """Take the second day out."""
    books.forget(2)


def flush(books: Books, _folder: Path) -> None:
    """Make files of two minutes that were taken live."""
    rows = {"device_id": ["g0", "g1"], "to_utc": [START + 40 * HOUR] * 2, "busy_share": [0.5, 0.25]}
    with LiveLog.open(books.store.folder) as log:
        log.acknowledge([LiveBatch("live", SAMPLES.name, pa.table(rows), "n")])
        log.discard_through(books.flush())


def compact(books: Books, _folder: Path) -> None:
    """Merge the files of both days."""
    books.compact()


def retain(books: Books, _folder: Path) -> None:
    """Drop the samples of the first day."""
    kept = RetentionSettings(samples=Age("7d"))
    at_ms = START + 8 * MS_PER_DAY
    drop_expired(books.store, books.idle_below, kept, lambda _what, _share: None, at_ms, is_confirmed=True)


def bill(books: Books, folder: Path) -> None:
    """Import a bill of 7 dollars."""
    path = folder / "bill.csv"
    path.write_text(BILL)
    books.add("focus", [path])


CHANGES: dict[str, Change] = {"forget": forget, "flush": flush, "compact": compact, "retain": retain, "bill": bill}


def count_rows(session: Session, table: str) -> int:
    """Rows of a table of the books."""
    session.view_table(table, table)
    (rows,) = session.fetch_one(f"SELECT count(*) FROM {table}")
    return int(rows)


def describe(store: Path) -> list[object]:
    """Totals, rows of tables, and numbers of imports."""
    with Books(store).store.read() as session:
        rows = [count_rows(session, table) for table in ("samples", "allocations", "charges")]
    return [*totals(Books(store)), *rows, *(record.number for record in Books(store).imports)]


def remove_copies(store: Path) -> None:
    """Remove the manifests beside the newest one."""
    for path in list_numbered(store).values():
        path.unlink()


@pytest.fixture
def two_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of two imports, of 24 GPU-hours held each; beside it the manifest of before the second."""
    store = tmp_path / "store"
    add(Books(store), 0, tmp_path, monkeypatch)
    shutil.copy(store / NAME, tmp_path / "older.json")
    add(Books(store), 1, tmp_path, monkeypatch)
    return store


def put_back(store: Path) -> None:
    """Write the older manifest over the newest, in place, as `cp` does."""
    (store / NAME).write_bytes((store.parent / "older.json").read_bytes())


@pytest.mark.long
@pytest.mark.parametrize("has_copy", [True, False])
def test_repair_after_an_import_takes_the_newer_generation(two_days: Path, has_copy: bool) -> None:
    """Two imports of 24 held GPU-hours, the manifest of the first put back: 48 after the repair, with or without the copy."""
    newest, expected = Books(two_days).store.manifest, describe(two_days)
    put_back(two_days)
    if not has_copy:
        remove_copies(two_days)
    files = {path.name: path.read_bytes() for path in two_days.rglob("*") if path.is_file()}
    plan = Books(two_days).plan_repair()
    assert {path.name: path.read_bytes() for path in two_days.rglob("*") if path.is_file()} == files
    assert plan.takes == newest.generation
    first = plan.choices[0]
    assert (first.generation, first.complete, first.paid_gpu_hours) == (newest.generation, True, expected[0])
    assert first.rows > plan.choices[1].rows
    assert Books(two_days).repair() == ()
    assert describe(two_days) == expected
    assert [path.name for path in (two_days / "quarantine").glob("manifest-*")]
    assert Books(two_days).check().is_sound


@pytest.mark.long
@pytest.mark.parametrize("has_copy", rest_long([False, True]))
@pytest.mark.parametrize("change", CHANGES)
def test_repair_after_any_change_takes_the_newer_generation(
    two_days: Path, tmp_path: Path, change: str, has_copy: bool
) -> None:
    """Forgotten stays forgotten, dropped dropped; flushed, merged and billed rows are back: all as before the older manifest."""
    shutil.copy(two_days / NAME, tmp_path / "older.json")
    CHANGES[change](Books(two_days), tmp_path)
    expected = describe(two_days)
    put_back(two_days)
    if not has_copy:
        remove_copies(two_days)
    assert Books(two_days).repair() == ()
    assert describe(two_days) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("has_copy", [True, False])
def test_no_writer_begins_beside_something_newer(
    two_days: Path, has_copy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imports, flushes and compaction end in one line that names `repair`, and no file goes; doctor says it as well."""
    put_back(two_days)
    if not has_copy:
        remove_copies(two_days)
    files = {path.name for path in two_days.glob("*.parquet")}
    for act in (lambda books: add(books, 2, tmp_path, monkeypatch), Books.compact, Books.check):
        with pytest.raises(DamageError, match="loadfactor repair") as caught:
            act(Books(two_days))
        assert len(str(caught.value).splitlines()) == 1
    assert {path.name for path in two_days.glob("*.parquet")} == files


def test_older_manifest_with_all_its_files_is_noticed(two_days: Path, tmp_path: Path) -> None:
    """A backup of the first day unpacked over the second: doctor and writers say it, and repair takes the second."""
    expected = describe(two_days)
    unpacked = tmp_path / "unpacked"
    shutil.copytree(two_days, unpacked)
    first_day = tmp_path / "first-day"
    with pytest.MonkeyPatch.context() as patch:
        add(Books(first_day), 0, tmp_path, patch)
    remove_copies(first_day)
    shutil.copytree(first_day, unpacked, dirs_exist_ok=True)
    assert Books(unpacked).store.manifest.generation < Books(two_days).store.manifest.generation
    for act in (Books.check, Books.compact):
        with pytest.raises(DamageError, match="is older than manifest-"):
            act(Books(unpacked))
    assert Books(unpacked).repair() == ()
    assert describe(unpacked) == expected
    kept = {path.name for path in (unpacked / "quarantine").iterdir()}
    assert {file.name for file in Books(first_day).store.manifest.files} <= kept


@pytest.mark.long
def test_newest_generation_with_a_damaged_file_keeps_the_rest(two_days: Path) -> None:
    """A file of samples of the second day is gone: the older manifest lacks more, so the newest is taken and says the loss."""
    newest = Books(two_days).store.manifest
    lost = max(newest.of(SAMPLES.name), key=lambda file: file.day or 0)
    put_back(two_days)
    (two_days / lost.name).unlink()
    plan = Books(two_days).plan_repair()
    assert plan.takes == newest.generation
    assert not plan.choices[0].complete
    assert [loss.name for loss in Books(two_days).repair()] == [lost.name]
    assert len(Books(two_days).imports) == 2


def test_take_chooses_a_generation_and_deletes_nothing(two_days: Path) -> None:
    """`take` of the older one: the first day alone, and every file of the second in quarantine; another number is refused."""
    newest = Books(two_days).store.manifest
    put_back(two_days)
    plan = Books(two_days).plan_repair()
    with pytest.raises(InputError, match="--take must be one of the generations"):
        Books(two_days).take_generation(take=99)
    older = plan.choices[-1].generation
    files = {path.name: path.read_bytes() for path in two_days.glob("*.parquet")}
    assert Books(two_days).take_generation(take=older).takes == older
    assert len(Books(two_days).imports) == 1
    left = {path.name for folder in (two_days, two_days / "quarantine") for path in folder.glob("*.parquet")}
    assert {file.name for file in newest.files if not manifest_file.is_booked(file.table)} <= left
    assert left >= {name for name in files if not manifest_file.is_booked(name.partition("-")[0])}
    Books(two_days).compact()  # it is the newest now


def test_books_rolled_back_whole_are_as_they_were(two_days: Path, tmp_path: Path) -> None:
    """Manifest and files of a copy: nothing newer is there, so nothing is said and repair changes nothing."""
    copy = tmp_path / "copy"
    shutil.copytree(two_days, copy)
    expected = describe(copy)
    Books(two_days).forget(2)
    shutil.rmtree(two_days)
    shutil.copytree(copy, two_days)
    before = (two_days / NAME).read_bytes()
    assert Books(two_days).repair() == ()
    assert (two_days / NAME).read_bytes() == before
    assert describe(two_days) == expected


CONTENTS = {
    "brackets": b"[" * 100_000,
    "objects": b'{"files":' * 100_000,
    "no UTF-8": b"\xff\xfe\x00{",
    "empty": b"",
    "a list": b"[]",
    "long number": b'{"format": ' + b"9" * 10_000 + b"}",
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_unreadable_manifest_is_one_line_and_repaired(two_days: Path, content: bytes) -> None:
    """Whatever stands in the manifest, the error is one line that names `repair`, which finds everything again."""
    expected = describe(two_days)
    (two_days / NAME).write_bytes(content)
    with pytest.raises(DamageError, match="run `loadfactor repair") as caught:
        totals(Books(two_days))
    assert len(str(caught.value).splitlines()) == 1
    assert Books(two_days).repair() == ()
    assert describe(two_days) == expected


@pytest.mark.long
def test_manifest_of_2_gib_is_not_read(two_days: Path) -> None:
    """A sparse file of 2 GiB: refused by its size in one line, and repaired."""
    with (two_days / NAME).open("r+b") as file:
        file.truncate(2 << 30)
    with pytest.raises(DamageError, match="268,435,45"):
        totals(Books(two_days))
    assert Books(two_days).repair() == ()


@pytest.mark.parametrize(("key", "value"), [("generation", "3"), ("files", 5), ("stale", [[1]]), ("currency", 5)])
def test_manifest_of_wrong_types_is_damaged(two_days: Path, key: str, value: object) -> None:
    """With the right checksum, too: a text for the generation, a number for the files, half a span."""
    raw = json.loads((two_days / NAME).read_bytes()) | {key: value}
    body = {name: raw[name] for name in raw if name not in ("format", "crc32")}
    raw["crc32"] = manifest_file._checksum(body)
    (two_days / NAME).write_text(json.dumps(raw))
    with pytest.raises(DamageError, match="run `loadfactor repair"):
        totals(Books(two_days))


def test_manifest_of_a_newer_version_stays(two_days: Path) -> None:
    """Neither repair nor its plan touches books of format 99; both say to install the newest version."""
    (two_days / NAME).write_text('{"format": 99}')
    before = {path.name: path.read_bytes() for path in two_days.iterdir() if path.name != "lock"}
    for act in (Books.repair, Books.plan_repair):
        with pytest.raises(StoreError, match="install the newest version"):
            act(Books(two_days))
    assert {path.name: path.read_bytes() for path in two_days.iterdir() if path.name != "lock"} == before
