"""Flushes of live batches: one import a source and day, few files, and every row exactly once whatever is lost or killed."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.ledger.fleets import HOUR, MINUTE
from tests.long import rest_long

from loadfactor.base.errors import DamageError, InputError, StoreError
from loadfactor.books.books import Books
from loadfactor.books.rebuild import open_ledger
from loadfactor.store.compaction import compact_store
from loadfactor.store.live import LiveBatch, LiveLog, read_live
from loadfactor.store.live_rows import flush_live
from loadfactor.store.manifest import NAME
from loadfactor.tables.schema import IDLE_BELOW, LINGER_MS

START = 1_767_225_600_000  # 2026-01-01
DAY = 24 * HOUR
EVERY = 5 * MINUTE


def minutes(first: int, last: int, gpus: int = 2, source: str = "dcgm:gpus", node: str = "n") -> list[LiveBatch]:
    """What GPUs did in the minutes [first, last) since START, a batch a minute: samples, and devices as seen so far."""
    found = []
    names = [f"{node}-g{k}" for k in range(gpus)]
    for minute in range(first, last):
        at = START + (minute + 1) * MINUTE
        samples = {"device_id": names, "to_utc": [at] * gpus, "busy_share": [(minute % 10) / 10] * gpus}
        devices = {"device_id": names, "node": [node] * gpus, "from_utc": [START] * gpus, "to_utc": [at] * gpus}
        found += [
            LiveBatch(source, "samples", pa.table(samples), node),
            LiveBatch(source, "devices", pa.table(devices), node),
        ]
    return found


def flush(log: LiveLog, books: Books, batches: Sequence[LiveBatch]) -> None:
    log.acknowledge(batches)
    log.discard_through(books.flush())


def readings(books: Books) -> list[tuple[object, ...]]:
    return [(r.metric, r.by, r.value) for r in books.show(by="device")]


def imports(books: Books) -> list[tuple[int, str, tuple[str, ...], dict[str, int]]]:
    return [(r.number, r.source, r.paths, r.rows) for r in books.imports]


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books.open(tmp_path / "store", create=True)


@pytest.mark.long
def test_flushes_of_a_day_are_one_import(books: Books) -> None:
    """A source and UTC day has one line in the list of imports; a midnight inside a flush divides it."""
    with LiveLog.open(books.store.folder) as log:
        for first in range(1430, 1450, 5):
            flush(log, books, minutes(first, first + 5) + minutes(first, first + 5, 1, "dcgm:other", "m"))
    first, second = ("live 2026-01-01",), ("live 2026-01-02",)
    assert imports(books) == [
        (1, "dcgm:gpus", first, {"devices": 2, "samples": 20}),
        (2, "dcgm:other", first, {"devices": 1, "samples": 10}),
        (3, "dcgm:gpus", second, {"devices": 2, "samples": 20}),
        (4, "dcgm:other", second, {"devices": 1, "samples": 10}),
    ]


@pytest.mark.long
def test_what_a_source_lists_counts_whole(books: Books) -> None:
    """Of rows with one key that a source corrects the last one counts, its empty cells too: shown, in one flush, in two."""
    row = {"job_id": ["a"], "at_utc": [START], "event": ["submitted"]}
    waits, starts = (
        LiveBatch("kubernetes", "queue_events", pa.table({**row, **more}), "k")
        for more in ({"reason": ["no quota"]}, {"team": ["t"]})
    )

    def told() -> list[dict[str, object]]:
        with Books(books.store.folder).snapshot() as snapshot:
            rows = snapshot.fetch(snapshot.view("queue_events")).to_pylist()
        return [{k: v for k, v in row.items() if k in ("reason", "team") and v is not None} for row in rows]

    with LiveLog.open(books.store.folder) as log:
        log.acknowledge([waits, starts])
        assert told() == [{"team": "t"}]
        flush(log, books, [])
        assert told() == [{"team": "t"}]
        flush(log, books, [waits])
        assert told() == [{"reason": "no quota"}]
        flush(log, books, [starts])
        assert told() == [{"team": "t"}]
    assert [record.gaps for record in books.imports] == [()]


@pytest.mark.long
def test_forgetting_a_day_leaves_the_others(books: Books, tmp_path: Path) -> None:
    """Without the import of a day the books are those that never had it, and the next flush of that day begins a new one."""
    kept = Books.open(tmp_path / "kept", create=True)
    with LiveLog.open(books.store.folder) as log, LiveLog.open(kept.store.folder) as other:
        for first in range(1400, 1480, 20):
            flush(log, books, minutes(first, first + 20))
            if first >= 1440:
                flush(other, kept, minutes(first, first + 20))
        books.forget(1)
        assert readings(books) == readings(kept)
        assert books.check().is_sound
        flush(log, books, minutes(1390, 1395))
        flush(log, books, minutes(1395, 1400))
    assert [number for number, *_ in imports(books)] == [2, 3]


def held(first: int, last: int, state: str | None = None) -> LiveBatch:
    """A job on the GPUs of `minutes`, seen from one minute to another."""
    rows = {"job_id": ["j"] * 2, "device_id": ["n-g0", "n-g1"], "node": ["n"] * 2, "team": ["t"] * 2}
    times = {"from_utc": [START + first * MINUTE] * 2, "to_utc": [START + last * MINUTE] * 2}
    return LiveBatch(
        "pods", "allocations", pa.table(rows | times | {"end_state": pa.array([state] * 2, pa.string())}), "n"
    )


@pytest.mark.long
def test_a_row_that_goes_on_changes_what_it_adds(books: Books, tmp_path: Path) -> None:
    """Hours before the former end of a device or job stay booked, and say what books say that are booked at once."""
    around = LINGER_MS // MINUTE
    with LiveLog.open(books.store.folder) as log:
        flush(log, books, [*minutes(0, 200), held(30, 200)])
        for last, state, changed in (
            (260, None, (200 - around, 260 + around)),
            (320, "failed", (30 - around, 320 + around)),
        ):
            log.acknowledge([*minutes(last - 60, last), held(30, last, state)])
            with books.store.read() as session:
                assert session.live_spans == (tuple(START + minute * MINUTE for minute in changed),)
            log.discard_through(books.flush())
    whole = Books.open(tmp_path / "whole", create=True)
    with LiveLog.open(whole.store.folder) as log:
        flush(log, whole, [*minutes(0, 320), held(30, 320, "failed")])
    assert says(books.store.folder)[0] == says(whole.store.folder)[0]


@pytest.mark.long
def test_what_is_flushed_in_pieces_is_as_what_is_flushed_at_once(books: Books, tmp_path: Path) -> None:
    """A source with a late minute, a pause, and an inventory listed in between: the same answers, also after `compact`."""
    pieces = [minutes(k, k + 5) for k in (*range(0, 60, 5), *range(120, 150, 5), 90, *range(150, 200, 5))]
    whole = Books.open(tmp_path / "whole", create=True)
    with LiveLog.open(books.store.folder) as log, LiveLog.open(whole.store.folder) as other:
        for piece in pieces:
            flush(log, books, piece)
        flush(other, whole, [batch for piece in pieces for batch in piece])
    assert readings(books) == readings(whole)
    books.compact()
    assert readings(books) == readings(whole)


@pytest.mark.long
def test_a_listed_device_ends_as_listed_whatever_is_flushed_after(books: Books, tmp_path: Path) -> None:
    """An inventory imported during a day counts for the rows it lists, also when tables are made anew from their logs."""
    listed = tmp_path / "devices.csv"
    listed.write_text(f"device_id,node,from_utc,to_utc\nn-g0,n,{START},{START + HOUR}\nn-g1,n,{START},{START + HOUR}\n")
    with LiveLog.open(books.store.folder) as log:
        flush(log, books, minutes(0, 5))
        flush(log, books, minutes(0, 5, 1, "dcgm:other", "m"))
        books.add("tables", [listed])
        for first in range(5, 90, 17):
            flush(log, books, minutes(first, first + 17))
    before = readings(books)
    (file,) = books.store.manifest.of("devices")
    ends = pq.read_table(books.store.folder / file.name).to_pylist()
    assert {r["device_id"]: r["to_utc"] for r in ends} == {
        "m-g0": START + 5 * MINUTE,
        "n-g0": START + HOUR,
        "n-g1": START + HOUR,
    }
    books.forget(2)  # makes the table anew
    assert [r for r in readings(books) if "m-g0" not in str(r)] == [r for r in before if "m-g0" not in str(r)]


def test_a_gpu_seen_in_two_places_does_not_stop_a_flush(books: Books) -> None:
    """What was acknowledged is not refused: the row that cannot be is left out and said, the others are taken."""
    with LiveLog.open(books.store.folder) as log:
        flush(log, books, minutes(0, 5))
        moved = pa.table(
            {"device_id": ["n-g0"], "node": ["m"], "from_utc": [START + MINUTE], "to_utc": [START + 9 * MINUTE]}
        )
        flush(log, books, [LiveBatch("dcgm:gpus", "devices", moved, "m"), *minutes(5, 10)])
    (record,) = books.imports
    assert record.rows == {"devices": 2, "samples": 20}
    assert [(where, count) for where, what, count in record.gaps if "two places" in what] == [("devices", 1)]


@pytest.mark.parametrize("flushes", rest_long((24, 120), 0))
def test_files_and_rows_of_logs_stay_few(books: Books, flushes: int) -> None:
    """Two dozen flushes or more of 8 GPUs over three days: at most some dozen files, and of a device a row of the log a day."""
    most = 0
    with LiveLog.open(books.store.folder) as log:
        for first in range(0, 66 * 60, 66 * 60 // flushes):
            log.acknowledge([*minutes(first, first + 1, 8)])
            with books.store.write() as writer:
                flush_live(writer)
                compact_store(writer, everything=False)
            log.discard_through(writer.manifest.live_through)
            most = max(most, len(writer.manifest.files))
    files = books.store.manifest.files
    by_day = {day: sum(f.day == day for f in files) for day in {f.day for f in files if f.table == "samples"}}
    assert most <= 30
    assert sorted(by_day.values())[:2] == [1, 1]  # days that ended
    logged = [f for f in files if f.is_log and f.table == "devices"]
    assert sum(pq.read_metadata(books.store.folder / f.name).num_rows for f in logged) <= 3 * 8 + 8
    assert sum(f.rows for f in files if f.table == "imports") == 3
    assert len(list(books.store.folder.iterdir())) <= len(files) + 5


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


@pytest.mark.long
@pytest.mark.parametrize("trimmed", rest_long([True, False]))
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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
