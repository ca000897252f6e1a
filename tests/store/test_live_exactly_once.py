"""Live rows count exactly once: through a flush, a lost manifest, a removed or damaged log, and clocks that jump."""

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from loadfactor.base.errors import DamageError, InputError, StoreError
from loadfactor.books.books import Books
from loadfactor.books.rebuild import open_ledger
from loadfactor.store.live import LiveBatch, LiveLog, read_live
from loadfactor.store.manifest import NAME
from loadfactor.tables.schema import IDLE_BELOW

START = 1_767_225_600_000  # 2026-01-01
STEP = 60_000
DEVICES = "device_id,node,from_utc\ng0,n0,2026-01-01T00:00:00Z\n"


def batch(first: int, rows: int = 5, value: float = 0.5) -> LiveBatch:
    """Samples of one GPU, a minute apart, from the `first`-th minute on."""
    times = [START + STEP * (first + i + 1) for i in range(rows)]
    data = {"device_id": ["g0"] * rows, "to_utc": times, "busy_share": [value] * rows, "power_w": [100.0] * rows}
    return LiveBatch("live", "samples", pa.table(data), "node")


def says(folder: Path) -> tuple[list[object], list[object]]:
    """The ledger and the samples, row by row."""
    with Books.open(folder).store.read() as session:
        open_ledger(session, IDLE_BELOW)
        session.view_table("samples", "samples")
        ledger, samples = (
            session.fetch(f"SELECT * FROM {name} ORDER BY ALL").to_pylist() for name in ("ledger", "samples")
        )
    return ledger, samples


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Books with a GPU and nothing of what it did."""
    folder = tmp_path / "store"
    (tmp_path / "devices.csv").write_text(DEVICES)
    Books.open(folder, create=True).add("tables", [tmp_path])
    return folder


def acknowledge(folder: Path, *batches: LiveBatch) -> None:
    with LiveLog.open(folder) as log:
        log.acknowledge(batches)


def discard(folder: Path) -> None:
    LiveLog.open(folder).close()


@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_lost_manifest_neither_doubles_nor_loses_flushed_rows(store: Path, trimmed: bool, compacted: bool) -> None:
    """Whether flushed batches are in the log still or not: after a repair each row counts once, and a flush adds only new ones."""
    acknowledge(store, batch(0), batch(5))
    assert Books(store).flush() == 2
    if compacted:
        Books(store).compact()
    if trimmed:
        discard(store)
    acknowledge(store, batch(10))
    expected = says(store)
    assert len(expected[1]) == 15
    (store / NAME).unlink()
    with pytest.raises(DamageError):
        says(store)
    assert Books(store).repair() == ()
    assert says(store) == expected
    assert Books(store).flush() == 3
    discard(store)
    assert says(store) == expected
    assert Books(store).flush() == 3
    assert len(Books(store).imports) == 2  # the table, and what live rows say of one day


def test_a_forgotten_flush_stays_forgotten(store: Path) -> None:
    """Its batches may be in the log still: neither a session nor the next flush nor a repair brings them back."""
    acknowledge(store, batch(0))
    Books(store).flush()
    Books(store).forget(2)
    assert says(store)[1] == []
    (store / NAME).unlink()
    Books(store).repair()
    assert Books(store).flush() == 1
    assert says(store)[1] == []


def test_a_log_that_was_removed_goes_on_behind_what_is_in_files(store: Path) -> None:
    """A new log gives no number that files hold: what it takes is seen, and becomes files."""
    acknowledge(store, batch(0), batch(5))
    Books(store).flush()
    (store / "live.sqlite").unlink()
    acknowledge(store, batch(10))
    assert [number for number, _ in read_live(store, 0)] == [3]
    assert len(says(store)[1]) == 15
    assert Books(store).flush() == 3
    assert len(says(store)[1]) == 15


@pytest.mark.parametrize("kind", ["torn page", "lone log"])
def test_a_damaged_log_is_said_and_repair_moves_it_aside(store: Path, kind: str) -> None:
    """Readers, writers and a flush say it; repair puts it into quarantine and notes the loss; then batches are taken again."""
    acknowledge(store, batch(0))
    Books(store).flush()
    kept = says(store)
    with LiveLog.open(store) as log:
        log.acknowledge([batch(5)])
        wal = (store / "live.sqlite-wal").read_bytes()
    if kind == "lone log":
        (store / "live.sqlite").unlink()
        (store / "live.sqlite-wal").write_bytes(wal)
    else:
        content = bytearray((store / "live.sqlite").read_bytes())
        content[-9000:-4000] = bytes(5000)
        (store / "live.sqlite").write_bytes(content[: len(content) - 16384])
    for act in (says, discard, lambda folder: Books(folder).flush()):
        with pytest.raises(DamageError, match=r"live\.sqlite is damaged"):
            act(store)
    (loss,) = Books(store).repair()
    assert (loss.name, loss.what) == ("live.sqlite", "what was taken live and is in no file: batches after 1")
    assert says(store) == kept
    acknowledge(store, batch(10))
    assert len(says(store)[1]) == 10


def test_repair_leaves_a_log_that_is_open(store: Path) -> None:
    """While a process takes batches the damaged database is not moved under it."""
    with LiveLog.open(store) as log:
        log.acknowledge([batch(0)])
        path = store / "live.sqlite"
        content = path.read_bytes()
        path.write_bytes(b"x" * len(content))
        with pytest.raises(StoreError, match="stop it first"):
            Books(store).repair()
        path.write_bytes(content)


def test_a_clock_that_jumps(store: Path) -> None:
    """Set back an hour, the same minutes come again: the later row counts, alike live, flushed at once or bit by bit, compacted."""
    batches = [batch(60, 10, 0.2), batch(0, 5, 0.4), batch(65, 10, 0.8), batch(3, 4, 0.6)]
    acknowledge(store, *batches)
    live = says(store)
    assert len(live[1]) == 15 + 7
    Books(store).flush()
    assert says(store) == live
    Books(store).compact()
    assert [row["busy_share"] for row in says(store)[1]] == [row["busy_share"] for row in live[1]]  # type: ignore[index]
    assert says(store)[0] == live[0]
    bit = store.parent / "bit"
    Books.open(bit, create=True).add("tables", [store.parent / "devices.csv"])
    for one in batches:
        acknowledge(bit, one)
        Books(bit).flush()
    assert says(bit)[0] == live[0]


def test_flushers_and_an_import_at_once(store: Path, tmp_path: Path) -> None:
    """Two flushers and an import that all retry, beside batches that come: every row once."""
    done, refused, failed = threading.Event(), [], []

    def insist(act: object) -> None:
        while True:
            try:
                act()  # type: ignore[operator]
                return
            except StoreError as error:
                refused.append(str(error))
                done.wait(0.01)

    def flush_until_done() -> None:
        try:
            while not done.is_set():
                insist(Books(store).flush)
        except BaseException as error:
            failed.append(error)

    more = tmp_path / "more"
    more.mkdir()
    rows = "".join(f"g0,2026-01-01T03:{m:02}:00Z,log,0.3\n" for m in range(1, 6))
    (more / "samples.csv").write_text("device_id,to_utc,source,busy_share\n" + rows)
    with LiveLog.open(store) as log:
        flushers = [threading.Thread(target=flush_until_done) for _ in range(2)]
        for flusher in flushers:
            flusher.start()
        for k in range(10):
            log.acknowledge([batch(5 * k)])
            if k == 5:
                insist(lambda: Books(store).add("tables", [more]))
        done.set()
        for flusher in flushers:
            flusher.join()
        insist(lambda: log.discard_through(Books(store).flush()))
    assert not failed
    assert all("another import is writing" in line for line in refused)
    assert read_live(store, 0) == []
    assert len(says(store)[1]) == 55
    assert sum(record.rows.get("samples", 0) for record in Books(store).imports) == 55


def test_rows_taken_live_alone_are_books(tmp_path: Path) -> None:
    """Before anything was imported or flushed; a folder whose log is empty is an empty store."""
    with pytest.raises(InputError, match="no books"):
        Books.open(tmp_path)
    LiveLog.open(tmp_path).close()
    with pytest.raises(InputError, match="are empty"):
        _ = Books.open(tmp_path).span
    acknowledge(tmp_path, batch(0))
    assert len(says(tmp_path)[1]) == 5
    assert Books.open(tmp_path).check().is_sound
