"""Stores of earlier versions and of tables with fewer columns open with today's code; tokens are kept hashed."""

import errno
import json
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loadfactor.base.errors import DamageError, InputError, StoreError
from loadfactor.books.books import Books
from loadfactor.metrics import METRICS
from loadfactor.metrics.metric import Sum
from loadfactor.store import disk, manifest
from loadfactor.store.disk import append_audit
from loadfactor.store.live import LiveLog
from loadfactor.store.live_database import read_live
from loadfactor.store.manifest import name_file
from loadfactor.store.sample_files import read
from loadfactor.store.session import read_rows
from loadfactor.store.tokens import LOCK, NAME, TokenFile, create_token, read_tokens, revoke_token
from loadfactor.store.writer import Writer

EARLIER = Path(__file__).parent / "earlier_formats"
SHOWN = [of.name for of in METRICS if not (isinstance(of.kind, Sum) and of.kind.each)]
VALUES = {  # as the versions that wrote them answered
    "effective_gpu_hours": 1.9666666666666666,
    "observed_gpu_hours": 3.933333333333333,
    "energy_kwh": 2.36,
    "cost": 50.0,
    "unallocated_cost": 40.0,
    "allocated_gpu_hours": 4.0,
}


def write_fleet(folder: Path) -> Path:
    """The tables that every one of these stores was imported from."""
    folder.mkdir()
    minutes = [minute for minute in range(1, 240) if not 100 <= minute < 103]
    tables = {
        "devices": [
            "device_id,node,accelerator,from_utc,to_utc",
            *(f"g{n},n0,h100-sxm,2026-05-01T00:00:00Z,2026-05-01T10:00:00Z" for n in (0, 1)),
        ],
        "allocations": ["job_id,device_id,team,from_utc,to_utc", "a,g0,red,2026-05-01T00:00:00Z,2026-05-01T04:00:00Z"],
        "prices": ["basis,price_per_gpu_hour,currency", "contracted,2.5,USD"],
        "samples": [
            "device_id,to_utc,source,busy_share,power_w",
            *(
                f"g{n},2026-05-01T{minute // 60:02}:{minute % 60:02}:00Z,nvidia-smi,{0.5 * (1 - n)},300"
                for n in (0, 1)
                for minute in minutes
            ),
        ],
    }
    for name, rows in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(params=["format-1", "format-2"])
def old_store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store as an earlier version wrote it: two GPUs, four hours of samples a minute apart with a gap, a job, a price."""
    return Path(shutil.copytree(EARLIER / request.param, tmp_path / "store"))


@pytest.fixture(params=["format-1", "format-2", "format-3"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The same of every format that was written, that of today by its first version."""
    return Path(shutil.copytree(EARLIER / request.param, tmp_path / "store"))


def test_an_any_store_opens_with_its_numbers(any_store: Path) -> None:
    """It is brought to today's format when it is opened, answers as before, and nothing of the earlier files stays."""
    books = Books(any_store)
    assert {r.metric: r.value for r in books.show(list(VALUES))} == pytest.approx(VALUES, rel=1e-12)
    (observed,) = books.show(
        "observed_gpu_hours", start=datetime(2026, 5, 1, 1, 30, tzinfo=UTC), end=datetime(2026, 5, 1, 1, 50, tzinfo=UTC)
    )
    assert observed.value == pytest.approx(17 / 60)
    assert json.loads((any_store / manifest.NAME).read_text())["format"] == manifest.FORMAT
    named = {f.name for f in books.store.manifest.files}
    assert {p.name for p in any_store.glob("*.parquet")} == named
    assert books.check().is_sound


def test_an_upgraded_store_has_the_numbers_of_an_import_of_today(any_store: Path, tmp_path: Path) -> None:
    """Every metric of all, and those of VALUES by GPU and hour, as the same tables give them when they are imported anew."""
    fresh, upgraded = Books(tmp_path / "fresh"), Books(any_store)
    fresh.add("tables", [write_fleet(tmp_path / "tables")])
    compare(upgraded, fresh, SHOWN)
    compare(upgraded, fresh, list(VALUES), ("device", "hour"))


def compare(one: Books, other: Books, names: list[str], by: tuple[str, ...] = ()) -> None:
    """Assert that metrics have the same values in both."""
    then, now = (
        {(r.metric, *(r.by or {}).values()): r.value for r in books.show(names, by=by)} for books in (one, other)
    )
    assert then.keys() == now.keys()
    for key, value in now.items():
        assert then[key] == (value if value is None else pytest.approx(value, rel=1e-12)), key


def test_a_store_whose_samples_were_dropped_keeps_its_numbers(tmp_path: Path) -> None:
    """Its ledger is that of an import of today, by GPU and hour too; a price that comes late leaves it."""
    books, fresh = Books(Path(shutil.copytree(EARLIER / "format-4", tmp_path / "store"))), Books(tmp_path / "fresh")
    fresh.add("tables", [write_fleet(tmp_path / "tables")])
    (tmp_path / "prices.csv").write_text("basis,price_per_gpu_hour,from_utc\ncontracted,5,2026-05-01T05:00:00Z\n")
    books.add("prices", [tmp_path / "prices.csv"])
    compare(books, fresh, list(VALUES), ("device", "hour"))
    assert books.store.manifest.of("samples") == ()
    assert json.loads((tmp_path / "store" / manifest.NAME).read_text())["format"] == manifest.FORMAT_DROPPED
    assert books.check().is_sound


def test_live_rows_of_the_first_format_count_and_are_flushed(tmp_path: Path) -> None:
    """A server that was killed before its first flush by a version whose live.sqlite knew no bodies."""
    books = Books(Path(shutil.copytree(EARLIER / "live-1", tmp_path / "store")))
    assert {r.metric: r.value for r in books.show(list(VALUES))} == pytest.approx(VALUES, rel=1e-12)
    with LiveLog.open(tmp_path / "store", books.flush()) as log:
        assert (list(log.received()), log.states()) == ([], {})
    assert read_live(tmp_path / "store", 0) == []
    assert {r.metric: r.value for r in books.show(list(VALUES))} == pytest.approx(VALUES, rel=1e-12)


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


def test_a_newer_store_is_refused(any_store: Path) -> None:
    """A store of a later format is refused in one line that says what to install, and is left as it is."""
    path = any_store / manifest.NAME
    raw = json.loads(path.read_text()) | {"format": manifest.FORMAT_DROPPED + 1}
    path.write_text(json.dumps(raw))
    before = path.read_text()
    with pytest.raises(StoreError, match=r"install the newest version"):
        Books(any_store)
    assert path.read_text() == before


def test_a_store_that_cannot_be_migrated_is_left_alone(old_store: Path) -> None:
    """When a file of an old store is missing, the migration stops with one line and changes nothing."""
    for prices in old_store.glob("prices-*.parquet"):
        prices.unlink()
    before = sorted((p.name, p.read_bytes()) for p in old_store.glob("*.*"))
    with pytest.raises(StoreError, match="of an earlier version and could not be brought to this one"):
        Books(old_store)
    assert sorted((p.name, p.read_bytes()) for p in old_store.glob("*.*")) == before


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


def test_a_token_is_kept_as_a_hash(tmp_path: Path) -> None:
    """The file says nothing of the token, and only its owner reads it."""
    record, token = create_token(tmp_path / "new" / "books", "read", None, "grafana", 1)
    path = tmp_path / "new" / "books" / NAME
    assert token.startswith("lf_")
    assert len(token) == len("lf_") + 43
    assert token[3:] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {p.name for p in path.parent.iterdir()} == {NAME, LOCK}
    assert read_tokens(path.parent) == (record,)


def test_a_running_server_sees_tokens_come_and_go(tmp_path: Path) -> None:
    """A token admits from the moment it is made until it is revoked; a wrong one never does."""
    file = TokenFile(tmp_path)
    assert file.list() == ()
    record, token = create_token(tmp_path, "read-team", "vision", "", 1)
    assert file.find(token) == record
    assert file.find(token + "x") is None
    assert file.find("") is None
    revoke_token(tmp_path, record.id, 2)
    assert file.find(token) is None
    assert [r.revoked_ms for r in file.list()] == [2]
    assert revoke_token(tmp_path, record.id, 3).revoked_ms == 2
    with pytest.raises(InputError, match="no token 'x'"):
        revoke_token(tmp_path, "x", 3)


def test_tokens_made_at_once_are_all_kept(tmp_path: Path) -> None:
    """Two who create tokens at the same time lose none."""
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda n: create_token(tmp_path, "read", None, str(n), n), range(20)))
    assert {record.id for record in read_tokens(tmp_path)} == {record.id for record, _ in made}


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1, "tokens": [{}]}', '{"format": 1, "tokens": [1]}', "[]"])
def test_a_damaged_file_admits_nobody(tmp_path: Path, text: str) -> None:
    """A file that is not what was written is damage, not a store without tokens."""
    (tmp_path / NAME).write_text(text)
    with pytest.raises(DamageError):
        TokenFile(tmp_path).find("lf_x")


def test_the_stores_cleanup_leaves_tokens_and_audit_alone(tmp_path: Path) -> None:
    """Writing to a store keeps the tokens and the audit log, and removes only a token file half written."""
    record, _ = create_token(tmp_path, "write", None, "", 1)
    append_audit(tmp_path, "token create", id=record.id)
    books = Books(tmp_path)
    (tmp_path / "prices.csv").write_text("basis,price_per_gpu_hour,currency\nlist,2,USD\n")
    books.add("prices", [tmp_path / "prices.csv"])
    books.compact()
    books.forget(1)
    assert read_tokens(tmp_path) == (record,)
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert [line["action"] for line in lines] == ["token create", "forget"]
    half = tmp_path / f"{NAME}.{'0' * 32}.tmp"
    half.write_text("{")
    create_token(tmp_path, "write", None, "", 1)
    assert not half.exists()
