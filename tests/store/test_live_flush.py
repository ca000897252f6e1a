"""Flushes of live batches: one import a source and day, whatever number of flushes it took; files and rows of logs stay few."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.ledger.fleets import HOUR, MINUTE
from tests.long import rest_long

from loadfactor.books.books import Books
from loadfactor.store.compaction import compact_store
from loadfactor.store.live import LiveBatch, LiveLog
from loadfactor.store.live_rows import flush_live

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


def test_forgetting_a_day_leaves_the_others(books: Books, tmp_path: Path) -> None:
    """Without the import of a day the books are those that never had it, and the next flush of that day begins a new one."""
    kept = Books.open(tmp_path / "kept", create=True)
    with LiveLog.open(books.store.folder) as log, LiveLog.open(kept.store.folder) as other:
        for first in range(1400, 1480, 5):
            flush(log, books, minutes(first, first + 5))
            if first >= 1440:
                flush(other, kept, minutes(first, first + 5))
        books.forget(1)
        assert readings(books) == readings(kept)
        assert books.check().is_sound
        flush(log, books, minutes(1390, 1395))
        flush(log, books, minutes(1395, 1400))
    assert [number for number, *_ in imports(books)] == [2, 3]


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


def test_a_listed_device_ends_as_listed_whatever_is_flushed_after(books: Books, tmp_path: Path) -> None:
    """An inventory imported during a day counts for the rows it lists, also when tables are made anew from their logs."""
    listed = tmp_path / "devices.csv"
    listed.write_text(f"device_id,node,from_utc,to_utc\nn-g0,n,{START},{START + HOUR}\nn-g1,n,{START},{START + HOUR}\n")
    with LiveLog.open(books.store.folder) as log:
        flush(log, books, minutes(0, 5))
        flush(log, books, minutes(0, 5, 1, "dcgm:other", "m"))
        books.add("tables", [listed])
        for first in range(5, 90, 5):
            flush(log, books, minutes(first, first + 5))
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


@pytest.mark.parametrize("flushes", rest_long((24, 120)))
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
