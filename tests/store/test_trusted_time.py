"""Age is measured by the clock only while it is within a day of the newest time that rows say."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.ledger.fleets import batches
from tests.store.live_batches import batch

from loadfactor.base.units import MS_PER_DAY as DAY
from loadfactor.books.books import Books
from loadfactor.sources import find_source
from loadfactor.store.live import LiveBatch, LiveLog
from loadfactor.store.trusted_time import ClockState, find_newest_ms, judge_clock

START = 1_767_225_600_000
"""A midnight, 2026-01-01."""
HOUR = DAY // 24


def list_samples(device: str, first_ms: int, count: int) -> list[dict[str, Any]]:
    """Samples of a device each hour, the first one an hour after an instant."""
    return [
        {"device_id": device, "source": "s", "to_utc": first_ms + n * HOUR, "busy_share": 0.5}
        for n in range(1, count + 1)
    ]


def add(books: Books, rows: list[dict[str, Any]], name: str, has_source_times: bool = True) -> None:
    """Import samples."""
    books.add_rows(find_source("tables"), batches({"samples": rows}), name, has_source_times=has_source_times)


def flush(books: Books, rows: list[dict[str, Any]], witnessed_ms: int = 0) -> None:
    """Take samples live and make files of them."""
    columns = pa.Table.from_pylist(rows)
    with LiveLog.open(books.store.folder, after=books.store.manifest.live_through) as log:
        log.acknowledge([LiveBatch("s", "samples", columns, "s")])
        log.discard_through(books.flush(witnessed_ms))


def find_trusted_days(books: Books) -> float:
    """The newest trusted time, in days after START."""
    newest_ms = judge_clock(books.store.manifest).newest_trusted_ms
    return ((newest_ms or START) - START) / DAY


def test_a_store_without_rows_believes_the_clock(tmp_path: Path) -> None:
    """There is nothing to delete: allowed, 0 s ahead."""
    clock = judge_clock(Books(tmp_path / "s").store.manifest, START)
    assert (clock.deletions, clock.ahead_s, clock.expiry_ms) == ("allowed", 0.0, START)


def test_deletions_stop_beyond_a_day_ahead_or_behind() -> None:
    """24 h from the newest row is right, one minute more is not."""
    for side in (-1, 1):
        assert ClockState(START + side * DAY, START).deletions == "allowed"
        assert ClockState(START + side * (DAY + 60_000), START).deletions == "stopped"


def test_an_import_moves_the_time_to_where_its_rows_end(tmp_path: Path) -> None:
    """A store that was unused for 30 days: its next import says what time it is, one of before changes nothing."""
    books = Books(tmp_path / "s")
    add(books, list_samples("g", START, 24), "first")
    assert find_trusted_days(books) == 1
    add(books, list_samples("g", START + 30 * DAY, 1), "after a month")
    assert find_trusted_days(books) == 30 + 1 / 24
    add(books, list_samples("h", START + 5 * DAY, 24), "older")
    assert find_trusted_days(books) == 30 + 1 / 24


@pytest.mark.long
def test_rows_that_our_clock_stamped_do_not_move_it_by_years(tmp_path: Path) -> None:
    """Scraped under a clock 700 days ahead: neither they nor what is scraped after the clock was set move it there."""
    books = Books(tmp_path / "s")
    add(books, list_samples("g", START, 24), "first")
    flush(books, list_samples("g", START + 700 * DAY, 5))
    assert find_trusted_days(books) == 1
    flush(books, list_samples("g", START + DAY + 2 * HOUR, 3))
    assert find_trusted_days(books) == 1 + 5 / 24
    add(books, list_samples("h", START + 701 * DAY, 2), "a run of this machine", has_source_times=False)
    assert find_trusted_days(books) == 1 + 5 / 24
    books.compact()
    assert find_trusted_days(books) == 1 + 5 / 24


def test_senders_with_their_own_clock_move_it(tmp_path: Path) -> None:
    """After 30 days remote_write samples say the time, and the flush keeps it."""
    books = Books(tmp_path / "s")
    add(books, list_samples("g", START, 24), "first")
    later = list_samples("g", START + 30 * DAY, 3)
    assert judge_clock(books.store.manifest, START + 30 * DAY).deletions == "stopped"
    assert judge_clock(books.store.manifest, START + 30 * DAY, START + 30 * DAY).deletions == "allowed"
    flush(books, later, witnessed_ms=START + 30 * DAY + 3 * HOUR)
    assert find_trusted_days(books) == 30 + 3 / 24


@pytest.mark.long
def test_a_few_rows_far_ahead_do_not_move_it(tmp_path: Path) -> None:
    """One of 40 GPUs has a clock that is 700 days ahead: 24 of 984 rows."""
    books = Books(tmp_path / "s")
    rows = [row for n in range(40) for row in list_samples(f"g{n}", START, 24)]
    add(books, [*rows, *list_samples("bad", START + 700 * DAY, 24)], "first")
    assert find_trusted_days(books) == 1
    assert find_newest_ms(books.store.manifest) == START + 701 * DAY


@pytest.mark.long
def test_forgetting_rows_takes_their_time_back(tmp_path: Path) -> None:
    """An import whose rows were all in 2027 is taken out again: the time is that of the others."""
    books = Books(tmp_path / "s")
    add(books, list_samples("g", START, 24), "first")
    add(books, list_samples("g", START + 400 * DAY, 24), "wrong")
    assert find_trusted_days(books) == 401
    books.forget(2)
    assert find_trusted_days(books) == 1


def test_live_rows_alone_say_the_time_of_a_new_store(tmp_path: Path) -> None:
    """There was no time before."""
    books = Books(tmp_path / "s")
    with LiveLog.open(books.store.folder) as log:
        log.acknowledge([batch()])
        log.discard_through(books.flush())
    assert judge_clock(books.store.manifest).newest_trusted_ms
