"""What is older than it is kept goes, and what was booked of it stays: no later row changes a number of a day without samples."""

import random
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.books.conftest import Write
from tests.ledger.fleets import HOUR, Fleet, add, batch, batches
from tests.ledger.test_books_balance import assert_same_ledger, ledger_of, near, refresh_ledger
from tests.ledger.test_kept_sums import assert_sums_of_the_ledger
from tests.long import rest_long
from tests.store.test_whole_or_nothing import listing

from loadfactor.base.errors import LoadfactorError
from loadfactor.base.units import MS_PER_DAY
from loadfactor.books import rebuild
from loadfactor.books.books import Books
from loadfactor.metrics import METRICS
from loadfactor.sources import find_source
from loadfactor.store.backup import back_up
from loadfactor.store.import_records import GONE
from loadfactor.store.live import LiveBatch, LiveLog
from loadfactor.store.manifest import intersect, name_file
from loadfactor.store.sample_files import read

START = 1_767_225_600_000
"""A midnight, 2026-01-01."""
DAY = MS_PER_DAY


def sample(device: str, at: int, busy: float = 0.5) -> dict[str, Any]:
    """A sample of half an hour."""
    return {
        "device_id": device,
        "source": "s",
        "to_utc": at,
        "busy_share": busy,
        "sm_active_share": busy / 2,
        "power_w": 300.0,
    }


def make_books(folder: Path, days: int = 12) -> Books:
    """Books of two GPUs over some days, one of them held by job `a` of team `red`, with a price."""
    devices = [
        {"device_id": d, "accelerator": "h100-sxm", "from_utc": START, "to_utc": START + days * DAY} for d in "gh"
    ]
    held = [{"job_id": "a", "team": "red", "device_id": "g", "from_utc": START, "to_utc": START + days * DAY}]
    samples = [sample(d, START + n * HOUR // 2, 0.4 + 0.1 * (n % 5)) for d in "gh" for n in range(1, days * 48)]
    price = [{"basis": "contracted", "price_per_gpu_hour": 2.0}]
    books = Books(folder / "store")
    rows = {"devices": devices, "allocations": held, "prices": price, "samples": samples}
    books.add_rows(find_source("tables"), batches(rows), "first")
    return books


def ask(books: Books, start: int, end: int, by: tuple[str, ...] = ("team", "device")) -> dict[Any, list[Any]]:
    """Every metric over [start, end), ms."""
    found = books.show((), by, *(datetime.fromtimestamp(at / 1000, UTC) for at in (start, end)))
    return {key: [found.column(m.name)[place] for m in METRICS] for place, key in enumerate(found.keys)}


@pytest.mark.long
def test_numbers_of_days_without_samples_stay(tmp_path: Path, write: Write) -> None:
    """Every metric is as before; then a price, a tag, and late samples change other days alone, and cuts add up to the hour."""
    write('[retention]\nsamples = "7d"\n')
    books = make_books(tmp_path)
    whole, old, new = (START, START + 12 * DAY), (START, START + 4 * DAY), (START + 4 * DAY, START + 12 * DAY)
    before, of_old, of_new = (ask(books, *window) for window in (whole, old, new))
    now = START + 11 * DAY + HOUR
    assert [(of.table, of.days) for of in books.retain(now_ms=now, is_dry_run=True).dropped] == [("samples", 4)]
    assert len({f.day for f in books.store.manifest.of("samples")}) == 12
    done = books.retain(now_ms=now)
    assert done.words.startswith("dropped 386 rows of samples (4 days")
    assert {f.day for f in books.store.manifest.of("samples")} == {START // DAY + n for n in range(4, 12)}
    assert books.retain(now_ms=now).words == "dropped nothing"
    assert ask(books, *whole) == before
    assert ask(Books(tmp_path / "store"), *old) == of_old
    add(
        books,
        [batch("prices", [{"basis": "contracted", "price_per_gpu_hour": 5.0, "from_utc": START + 2 * DAY}])],
        "dearer",
        tmp_path,
    )
    add(books, [batch("samples", [sample("h", START + 6 * DAY + 7, 0.9)])], "late", tmp_path)
    refresh_ledger(books)
    assert ask(books, *old) == of_old
    assert ask(books, *new) != of_new
    assert not books.store.manifest.stale
    assert books.store.manifest.dropped.changed == ((START + 2 * DAY, START + 4 * DAY),)
    assert books.check().balance.holds
    half = [ask(books, START + HOUR // 2 * n, START + HOUR // 2 * (n + 1), ()) for n in (2, 3)]
    hour = ask(books, START + HOUR, START + 2 * HOUR, ())
    place = [m.name for m in METRICS].index("paid_gpu_hours")
    assert near(sum(of[()][place] for of in half), hour[()][place])


def open_hours(books: Books, ledger: dict[Any, dict[str, float]], is_frozen: bool) -> dict[Any, dict[str, float]]:
    """The rows of a ledger in hours that are frozen in these books, or in the others."""
    hours = books.store.manifest.dropped.hours
    return {k: v for k, v in ledger.items() if any(s <= k[0] < e for s, e in hours) == is_frozen}


@pytest.mark.long
@pytest.mark.parametrize("seed", rest_long(range(8)))
def test_random_fleets_keep_what_was_booked(seed: int, tmp_path: Path, write: Write) -> None:
    """Days without samples keep every row; prices, rules and late samples then change the others as in books with all samples."""
    write('[retention]\nsamples = "7d"\n')
    rnd = random.Random(900 + seed)
    while True:
        fleet = Fleet(rnd)
        samples = fleet.tables["samples"]
        early = {**fleet.tables, "samples": samples[: -(len(samples) // 10) or None]}
        days = [(row["to_utc"] - 1) // DAY for row in early["samples"]]
        if days and min(days) < max(days):
            break
    books = Books(tmp_path / "store")
    add(books, batches(early), "early", tmp_path)
    refresh_ledger(books)
    before, asked = ledger_of(books), books.show((), ("team", "device"))
    shutil.copytree(tmp_path / "store", tmp_path / "twin")
    midnight = (min(days) + 1) * DAY
    books.retain(now_ms=midnight + 7 * DAY, is_confirmed=True)
    dropped = books.store.manifest.dropped
    assert dropped.frozen
    assert not any((f.day + 1) * DAY <= midnight for f in books.store.manifest.of("samples"))
    assert_same_ledger(ledger_of(books), before)
    assert_sums_of_the_ledger(books)
    shown = zip(books.show((), ("team", "device")), asked, strict=True)
    assert all(near(a.value, b.value) for a, b in shown)
    mapping = tmp_path / "mapping.csv"
    mapping.write_text("user,from,to,experiment\nann,,,notes\n")
    price = {"basis": "contracted", "price_per_gpu_hour": 7.0}
    late = [row for row in samples[len(early["samples"]) :] if row["to_utc"] > midnight]
    twin = Books(tmp_path / "twin")
    for of in (books, twin):
        add(of, [batch("prices", [price])], "dearer", tmp_path)
        of.retag(mapping)
        if late:
            add(of, [batch("samples", late)], "late", tmp_path)
        refresh_ledger(of)
    assert books.store.span() == twin.store.span()
    assert books.store.manifest.dropped.frozen == dropped.frozen
    assert_same_ledger(open_hours(books, ledger_of(books), True), open_hours(books, before, True))
    assert_same_ledger(open_hours(books, ledger_of(books), False), open_hours(books, ledger_of(twin), False))
    assert_sums_of_the_ledger(books)


@pytest.mark.long
def test_another_definition_leaves_days_without_samples(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that books otherwise books the other days again; doctor says which days are as an earlier one booked them."""
    write('[retention]\nsamples = "7d"\n')
    books = make_books(tmp_path)
    before = ledger_of(books)
    books.retain(now_ms=START + 11 * DAY)
    monkeypatch.setattr(rebuild, "DEFINITION", 1_000)
    assert_same_ledger(ledger_of(books), before)
    refresh_ledger(books)
    assert_same_ledger(ledger_of(books), before)
    assert_sums_of_the_ledger(books)
    assert books.store.manifest.dropped.redefined == ((START, START + 4 * DAY),)
    said = [finding.what for finding in books.check().findings]
    assert any("the ledger of 2026-01-01 to 2026-01-04 is that of an earlier version" in what for what in said)


def rewrite_as_before(books: Books) -> None:
    """The ledger of days without samples as a version writes it that knows no `nvlink_bytes`."""
    with books.store.write() as writer:
        for file in writer.manifest.of("ledger"):
            if intersect(file.booked, writer.manifest.dropped.hours):
                sql = f"SELECT * EXCLUDE (nvlink_bytes) FROM {read(writer.paths([file]))}"
                made = writer.copy(sql, replace(file, name=name_file("ledger", file.day)))
                writer.swap([file], [replace(made, from_ms=file.from_ms, to_ms=file.to_ms)])
        writer.manifest = replace(writer.manifest, ledger_key="that of an earlier version")


@pytest.mark.long
def test_days_of_an_earlier_version_keep_their_numbers(tmp_path: Path, write: Write) -> None:
    """Its rows lack a column: read with others, booked with others, found again, brought to a peer."""
    write('[retention]\nsamples = "7d"\n')
    books = make_books(tmp_path)
    old, cut = (START, START + 4 * DAY), (START + HOUR // 2, START + 5 * DAY)
    shutil.copytree(tmp_path / "store", tmp_path / "peer")
    books.retain(now_ms=START + 11 * DAY)
    before, of_old, of_cut = ledger_of(books), ask(books, *old), ask(books, *cut)
    rewrite_as_before(books)
    for name in ("lost", "new"):
        shutil.copytree(tmp_path / "store", tmp_path / name)
    lost = Books(tmp_path / "lost")
    (lost.store.folder / "manifest.json").unlink()
    lost.repair()
    peer, new = Books(tmp_path / "peer"), Books(tmp_path / "of none")
    refresh_ledger(peer)
    with peer.store.write() as writer:  # a server that never had these days
        drop = [
            f for f in writer.manifest.files if (f.day or 0) < START // DAY + 4 and f.table in ("samples", "ledger")
        ]
        writer.swap(drop, [])
    peer.merge(books)
    new.merge(books)
    for of in (books, lost, peer, new):
        for _ in range(2):  # before it is booked, and after
            assert_same_ledger(ledger_of(of), before)
            for window, true in ((old, of_old), (cut, of_cut)):
                found = ask(of, *window)
                assert {*found} == {*true}
                assert all(near(a, b) for key in true for a, b in zip(found[key], true[key], strict=True))
            refresh_ledger(of)
        assert_sums_of_the_ledger(of, whole=False)
        assert of.store.manifest.dropped.redefined == ((START, START + 4 * DAY),)


def test_late_samples_of_these_days_are_refused_or_left_out(tmp_path: Path, write: Write) -> None:
    """A file of nothing else is refused in one line; of one with other days the rest is taken, and the receipt says what is not."""
    write('[retention]\nsamples = "7d"\n')
    books = make_books(tmp_path)
    books.retain(now_ms=START + 11 * DAY)
    before = listing(books.store.folder)
    old, new = sample("g", START + DAY + 7), sample("g", START + 6 * DAY + 7)
    with pytest.raises(
        LoadfactorError, match=r"samples of 2026-01-02 are late: .*\[retention\] samples.*import it into another"
    ):
        add(books, [batch("samples", [old])], "old", tmp_path)
    assert listing(books.store.folder) == before
    receipt = add(books, [batch("samples", [old, new])], "both", tmp_path)
    assert receipt.rows == {"samples": 1}
    assert [gap.count for gap in receipt.gaps if "are late" in gap.what] == [1]
    assert [gap for record in books.imports for gap in record.gaps if gap[1] == GONE] == [("samples", GONE, 384)]


@pytest.mark.long
def test_repair_keeps_days_without_samples(tmp_path: Path, write: Write) -> None:
    """Of a lost manifest their ledger is found again; where that is damaged itself, it is a loss, and their holders are booked."""
    write('[retention]\nsamples = "7d"\n')
    books = make_books(tmp_path)
    before = ledger_of(books)
    books.retain(now_ms=START + 11 * DAY)
    (books.store.folder / "manifest.json").unlink()
    books.repair()
    assert_same_ledger(ledger_of(books), before)
    assert books.store.manifest.dropped.hours == ((START, START + 4 * DAY),)
    frozen = next(f for f in books.store.manifest.of("ledger") if f.day == START // DAY + 1)
    path = books.store.folder / frozen.name
    path.write_bytes(path.read_bytes()[:-9])
    losses = books.repair()
    assert [loss.what.split(",")[0] for loss in losses] == ["ledger"]
    assert books.store.manifest.dropped.hours == ((START, START + DAY), (START + 2 * DAY, START + 4 * DAY))
    day = [datetime.fromtimestamp(START / 1000 + n * 86_400, UTC) for n in (1, 2)]
    (held, seen) = books.show(["allocated_gpu_hours", "effective_gpu_hours"], (), *day)
    assert (held.value, seen.value) == (24.0, None)


@pytest.mark.long
def test_the_books_begin_where_their_ledger_does(tmp_path: Path, write: Write) -> None:
    """Days of before are outside the books, late rows do not bring them back; other days stay as they were."""
    write('[retention]\nsamples = "7d"\nledger = "9d"\nsteps = "8d"\n')
    books = make_books(tmp_path)
    before, rest = ledger_of(books), (START + 2 * DAY, START + 12 * DAY)
    of_rest = ask(books, *rest)
    done = books.retain(now_ms=START + 11 * DAY)
    assert [(of.table, of.days) for of in done.dropped] == [("samples", 4), ("ledger", 2)]
    assert books.store.span() == rest
    assert ask(books, *rest) == of_rest
    price = {"basis": "contracted", "price_per_gpu_hour": 5.0, "from_utc": START, "to_utc": START + DAY}
    add(books, [batch("prices", [price])], "dearer", tmp_path)
    refresh_ledger(books)
    assert_same_ledger(ledger_of(books), {k: v for k, v in before.items() if k[0] >= rest[0]})
    assert books.check().balance.holds
    assert_sums_of_the_ledger(books)


@pytest.mark.long
def test_merged_stores_agree_on_days_without_samples(tmp_path: Path, write: Write) -> None:
    """What one dropped does not come back from the other; a new one takes the ledger of these days as it was booked."""
    write('[retention]\nsamples = "7d"\n')
    books, new = make_books(tmp_path), Books(tmp_path / "new")
    shutil.copytree(tmp_path / "store", tmp_path / "peer")
    peer, before = Books(tmp_path / "peer"), ledger_of(books)
    books.retain(now_ms=START + 11 * DAY)
    generation = books.store.manifest.generation
    assert books.merge(peer) == []
    assert books.store.manifest.generation == generation
    assert peer.merge(books) == []
    assert not peer.store.manifest.dropped.frozen
    new.merge(books)
    assert_same_ledger(ledger_of(new), before)
    assert new.store.manifest.dropped.hours == books.store.manifest.dropped.hours
    assert not new.store.manifest.dropped.changed
    assert_sums_of_the_ledger(new, whole=False)
    assert new.merge(books) == []


@pytest.mark.long
def test_late_samples_that_were_received_live_are_kept_aside(tmp_path: Path, write: Write) -> None:
    """Acknowledged rows of days without samples are in a file that another store imports; the day's record counts them."""
    write('[retention]\nsamples = "7d"\n')
    books = make_books(tmp_path)
    before = ledger_of(books)
    books.retain(now_ms=START + 11 * DAY)
    late = [sample("g", START + DAY + 7), sample("h", START + DAY + 8)]
    with LiveLog.open(books.store.folder) as log:
        log.acknowledge([LiveBatch("live", "samples", pa.Table.from_pylist(late), "live")])
        assert_same_ledger(ledger_of(books), before)
        log.discard_through(books.flush())
    assert_same_ledger(ledger_of(books), before)
    assert [(what, count) for _, what, count in books.imports[-1].gaps if "are late" in what and "quarantine/" in what]
    (folder,) = (books.store.folder / "quarantine").glob("late-2026-01-02-*")
    other = Books(tmp_path / "other")
    assert other.add("tables", [folder]).rows["samples"] == 2
    back_up(books.store.place, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy" / "quarantine").rglob("*.parquet")] == ["samples.parquet"]
    assert_same_ledger(ledger_of(Books(tmp_path / "copy")), before)


@pytest.mark.long
def test_statements_and_steps_go_by_their_own_ages(tmp_path: Path, write: Write) -> None:
    """Rows that ended before go, others stay; months that are left are shown as they were closed, and pages say what is gone."""
    write('[retention]\nsteps = "7d"\n')
    books = make_books(tmp_path, days=40)
    steps = [
        {"job_id": "a", "from_utc": START + n * DAY, "to_utc": START + n * DAY + HOUR, "unit": "step", "amount": 10.0}
        for n in range(40)
    ]
    books.add_rows(find_source("tables"), [batch("progress", steps)], "steps")
    before = ledger_of(books)
    for month in ("2026-01", "2026-02"):
        books.close_month(month, is_known_to_lack=True)
    kept = books.show_closed("2026-02").statements
    write('[retention]\nsteps = "7d"\nledger = "1y"\nstatements = "1y"\n')
    assert [(of.table, of.rows) for of in books.retain(now_ms=START + 39 * DAY + HOUR, is_confirmed=True).dropped] == [
        ("progress", 32)
    ]
    with books.snapshot() as snapshot:
        assert snapshot.list_remarks(None, None) == (
            "Records of progress that ended before 2026-02-02 were dropped ([retention] steps).",
        )
    assert_same_ledger(ledger_of(books), before)
    february = START + 59 * DAY  # it ends
    dropped = books.retain(now_ms=february + 364 * DAY, is_confirmed=True).dropped
    assert [of.table for of in dropped] == ["samples", "progress", "statements", "ledger"]
    assert books.show_closed("2026-02").statements == kept
    with pytest.raises(LoadfactorError, match="2026-01"):
        books.show_closed("2026-01")
