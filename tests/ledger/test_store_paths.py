"""Does it matter how rows came into the store? The same fleet by every way gives the ledger and the answers of the oracle."""

import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.ledger.fleets import HOUR, MINUTE, SECOND, STARTS, Fleet, Row, Tables, add, batch, batches, source
from tests.ledger.oracle import Oracle
from tests.ledger.oracle_answers import answers
from tests.ledger.oracle_cells import DAY
from tests.ledger.test_books_balance import (
    assert_same_answers,
    assert_same_ledger,
    ledger_by_hand,
    ledger_of,
    question,
    shown,
)
from tests.long import rest_long

from loadfactor.books import rebuild
from loadfactor.books.booking import find_suspects
from loadfactor.books.books import Books
from loadfactor.ledger.states import find_overlaps
from loadfactor.sources.base import Gap, Rows
from loadfactor.store.importing import Receipt
from loadfactor.store.live import LiveLog
from loadfactor.store.live_database import LiveBatch

FIRST, AFTER = (int(n) for n in os.environ.get("STORE_PATHS_SEEDS", "0:1").split(":"))
MEASURED = ("busy_share", "sm_active_share", "power_w", "mem_used_bytes", "mem_total_bytes")
LONE_S = 30.0
Way = Callable[[Path, random.Random, Tables], Books]


class LossyFleet(Fleet):
    """A fleet watched in regular steps, of which some devices lose up to two thirds of their samples."""

    def _samples(self) -> None:
        midnight = self.start // DAY * DAY + DAY
        steps = {name: self.rnd.choice((30 * SECOND, MINUTE, 10 * MINUTE, HOUR)) for name in ("s1", "s2")}
        taken = set()
        for device in self.ids:
            for watcher in self.rnd.choice((("s1",), ("s1",), ("s1", "s2"), ())):
                step, given = steps[watcher], self.chance(0.2)
                lost = self.rnd.choice((0, 0, 0.3, 0.5, 0.7))
                has = [c for c in MEASURED if self.chance(0.7)]
                at = self.rnd.choice((self.at(), midnight - self.rnd.randint(0, 20) * step))
                for _ in range(self.rnd.randint(2, 30)):
                    at += step + self.rnd.choice((0, 0, 0, 0, 2)) + 6 * HOUR * self.chance(0.03)
                    if self.chance(lost) or (device, watcher, at) in taken:
                        continue
                    taken.add((device, watcher, at))
                    row: Row = {"device_id": device, "source": watcher, "to_utc": at}
                    if given or self.chance(0.03):
                        row["from_utc"] = at - self.rnd.choice((step, step, step // 2, step * 2))
                    row |= {c: self._value(c) for c in has if self.chance(0.9)}
                    if (row.get("busy_share") or 0) >= 0.05 and "sm_active_share" in row:
                        row["sm_active_share"] = max(row["sm_active_share"], 0.02)  # else it was not measured
                    self.tables["samples"].append(row)


def bring(books: Books, items: list[Rows | Gap], label: str, folder: Path) -> Receipt:
    """Import batches as live rows are: a sample of a source that shows no step is as long as exporters' are."""
    return add(books, items, label, folder, lone_s=LONE_S)


def in_pieces(rnd: random.Random, tables: Tables, count: int) -> list[Tables]:
    """Rows dealt out at random or by time; some come twice, some samples in two halves with some of the columns each."""
    pieces: list[Tables] = [{} for _ in range(count)]
    by_time = rnd.random() < 0.4
    ends = sorted(row["to_utc"] for row in tables["samples"])
    for name, rows in tables.items():
        together = name != "samples" and rnd.random() < 0.6
        whole = rnd.sample(pieces, 2)
        for row in rows:
            first, second = whole if together else rnd.sample(pieces, 2)
            if name == "samples" and by_time:
                first = pieces[ends.index(row["to_utc"]) * count // len(ends)]
            parts = [row]
            if name == "samples" and rnd.random() < 0.15:
                parts = split(rnd, row)
            elif rnd.random() < 0.15:
                parts = [row, row]
            if second is first and name != "samples":
                parts = [row]
            for piece, part in zip((first, second), parts, strict=False):
                piece.setdefault(name, []).append(part)
    for piece in pieces:
        for rows in piece.values():
            rnd.shuffle(rows)
    return [piece for piece in pieces if piece]


def split(rnd: random.Random, row: Row) -> list[Row]:
    """A sample in two halves, each with some of its measurements."""
    halves = [dict(row), dict(row)]
    for column in MEASURED:
        rnd.choice(halves)[column] = None
    return halves


def add_all(books: Books, pieces: list[Tables], folder: Path, label: str = "piece") -> None:
    for number, piece in enumerate(pieces):
        bring(books, batches(piece), f"{label} {number}", folder)


def acknowledge(books: Books, pieces: list[Tables]) -> None:
    """Live batches of these rows, a request a piece."""
    with LiveLog.open(books.store.folder) as log:
        for piece in pieces:
            log.acknowledge([LiveBatch("test", r.table, r.data, r.where) for r in map(batch, piece, piece.values())])


def at_once(folder: Path, _rnd: random.Random, tables: Tables) -> Books:
    books = Books(folder / "store")
    bring(books, batches(tables), "all", folder)
    return books


def uncompacted(folder: Path, rnd: random.Random, tables: Tables) -> Books:
    books = Books(folder / "store")
    add_all(books, in_pieces(rnd, tables, rnd.randint(2, 6)), folder)
    return books


def compacted(folder: Path, rnd: random.Random, tables: Tables) -> Books:
    """Late pieces too come before a last compaction."""
    books = Books(folder / "store")
    for number, piece in enumerate(in_pieces(rnd, tables, rnd.randint(2, 6))):
        bring(books, batches(piece), f"piece {number}", folder)
        if rnd.random() < 0.3:
            books.compact()
    books.compact()
    return books


def late(folder: Path, rnd: random.Random, tables: Tables) -> Books:
    """A piece comes after a compaction."""
    books = Books(folder / "store")
    *early, last = in_pieces(rnd, tables, rnd.randint(2, 4))
    add_all(books, early, folder)
    if early:
        books.compact()
    bring(books, batches(last), "late", folder)
    return books


def booked(folder: Path, rnd: random.Random, tables: Tables) -> Books:
    """As every import does: compacted where it is needed, and the touched hours booked."""
    books = Books(folder / "store")
    for number, piece in enumerate(in_pieces(rnd, tables, rnd.randint(2, 6))):
        path = folder / f"piece {number}"
        path.write_text(path.name)
        with patch(
            "loadfactor.books.writing.find_source", lambda _name, items=batches(piece): source(items, step_s=LONE_S)
        ):
            books.add("test", [path])
    return books


def live(folder: Path, rnd: random.Random, tables: Tables) -> Books:
    books = Books(folder / "store")
    acknowledge(books, in_pieces(rnd, tables, rnd.randint(2, 6)))
    return books


def half_live(folder: Path, rnd: random.Random, tables: Tables) -> Books:
    books = Books(folder / "store")
    first, *rest = in_pieces(rnd, tables, rnd.randint(2, 4))
    bring(books, batches(first), "first", folder)
    if rnd.random() < 0.5:
        books.compact()
    acknowledge(books, rest)
    return books


def flushed(folder: Path, rnd: random.Random, tables: Tables) -> Books:
    """Live batches become files, and more of them come."""
    books = Books(folder / "store")
    for piece in in_pieces(rnd, tables, rnd.randint(2, 5)):
        acknowledge(books, [piece])
        if rnd.random() < 0.7:
            books.flush()
    return books


def forgotten(folder: Path, rnd: random.Random, tables: Tables) -> Books:
    """An import that met others' rows and said other things of the same samples is taken out again."""
    books = Books(folder / "store")
    other = LossyFleet(rnd).tables
    names = ("allocations", "outages", "prices", "exchange_rates", "progress", "samples")
    wrong = {name: other[name] for name in names}
    for row in tables["samples"]:
        if rnd.random() < 0.3:
            wrong["samples"].append(row | {"busy_share": 0.5, "sm_active_share": 0.5, "power_w": 1.0})
    pieces = in_pieces(rnd, tables, rnd.randint(2, 4))
    place = rnd.randint(0, len(pieces))
    add_all(books, pieces[:place], folder)
    number = bring(books, batches(wrong), "wrong", folder).number if any(wrong.values()) else None
    add_all(books, pieces[place:], folder, "later")
    if rnd.random() < 0.5:
        books.compact()
    if number is not None:
        books.forget(number)
    return books


def repaired(folder: Path, rnd: random.Random, tables: Tables) -> Books:
    """The manifest is gone, and repaired from the files."""
    books = rnd.choice((uncompacted, compacted, booked))(folder, rnd, tables)
    for path in books.store.folder.glob("manifest*.json"):
        path.unlink()
    books = Books(books.store.folder)
    assert not books.repair()
    return books


WAYS: tuple[Way, ...] = (
    compacted, half_live, forgotten, repaired, at_once, uncompacted, late, booked, live, flushed,
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("way", [uncompacted, at_once], ids=lambda way: way.__name__)
def test_samples_are_cut_where_they_overlap_and_nowhere_else(way: Way, tmp_path: Path) -> None:
    """Files suspect every hour of a GPU in which samples overlap; of what they suspect these alone are cut."""
    import ibis

    for seed in range(FIRST, FIRST + 3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        store = way(folder, random.Random(seed), LossyFleet(random.Random(seed)).tables).store
        with store.read() as session:
            session.view_table("samples", "samples")
            samples = session.fetch("SELECT * FROM samples")
            spans = find_suspects(session.parts(session.manifest.of("samples")))
        by_hour: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for row in samples.to_pylist():
            by_hour.setdefault((row["device_id"], row["hour_utc"]), []).append((row["from_utc"], row["to_utc"]))
        expected = {
            key
            for key, spans in by_hour.items()
            if any(a < d and c < b for n, (a, b) in enumerate(spans) for c, d in spans[n + 1 :])
        }
        suspects = sorted({h for start, end in spans for h in range(start - start % HOUR, end, HOUR)})
        found = find_overlaps(ibis.memtable(samples), ibis.memtable({"hour_utc": suspects}))
        rows = found.to_pyarrow().to_pylist() if suspects else []
        assert {(row["device_id"], row["hour_utc"]) for row in rows} == expected


@pytest.mark.long
@pytest.mark.parametrize("way", rest_long(WAYS), ids=lambda way: way.__name__)
def test_every_way_into_the_store_gives_the_same_books(way: Way, tmp_path: Path) -> None:
    """Pieces in any order, compacted, live, forgotten or repaired: the ledger is the oracle's, and so are the answers."""
    for seed in range(FIRST, AFTER):
        check_way(way, tmp_path / str(seed), random.Random(f"{seed} {way.__name__}"))


def check_way(way: Way, folder: Path, rnd: random.Random) -> None:
    """One fleet by one way; every fourth time with a question."""
    tables = LossyFleet(rnd).tables
    oracle = Oracle(tables, lone_ms=1000 * LONE_S)
    folder.mkdir()
    books = way(folder, rnd, tables)
    with books.store.read() as session:
        assert session.span() == (oracle.start, oracle.end)
    assert_same_ledger(ledger_of(books), ledger_by_hand(oracle.book()))
    if rnd.random() < 0.25 and oracle.start < oracle.end:
        asked = question(rnd, oracle)
        assert_same_answers(shown(books, asked), answers(oracle, asked))


@pytest.mark.long
def test_the_books_end_where_they_did_after_an_import_is_forgotten_or_while_rows_are_live(tmp_path: Path) -> None:
    """Rows that ended the books later, of a table without a ledger, move its end: live at once, forgotten back again."""
    start = STARTS[0]
    books = Books(tmp_path / "store")
    sample = {"device_id": "g", "source": "s", "from_utc": start, "to_utc": start + HOUR, "busy_share": 0.5}
    asked = [{"job_id": "j", "at_utc": start + 5 * HOUR, "event": "submitted"}]

    def booked_h() -> float:
        return sum(row["gpu_s"] for row in ledger_of(books).values()) / 3600

    bring(books, [batch("devices", [{"device_id": "g"}]), batch("samples", [sample])], "first", tmp_path)
    books.compact()
    assert booked_h() == 1
    rate = {"currency": "EUR", "from_utc": start - 9 * HOUR, "rate": 1.1}
    acknowledge(books, [{"exchange_rates": [rate]}])
    assert booked_h() == 1
    acknowledge(books, [{"queue_events": asked}])
    assert booked_h() == 5
    books.flush()
    assert booked_h() == 5
    for record in books.imports[1:]:  # one for each UTC day that the rows speak of
        books.forget(record.number)
    assert booked_h() == 1


def test_a_step_that_live_samples_teach_holds_for_all_samples_of_their_source(tmp_path: Path) -> None:
    """Samples that lie in files and were booked are as long as the step that is known since live samples came."""
    start = STARTS[0]
    books = Books(tmp_path / "store")
    told = [{"device_id": "g", "source": "s", "to_utc": start + n * 10 * MINUTE, "busy_share": 0.5} for n in (6, 7, 9)]
    devices = [{"device_id": d, "from_utc": start, "to_utc": start + 48 * HOUR} for d in ("g", "h", "i")]
    bring(books, [batch("devices", devices), batch("samples", told)], "first", tmp_path)
    books.compact()
    minutes = range(24 * 60, 24 * 60 + 30)
    live_rows: list[Row] = [
        {"device_id": d, "source": "s", "to_utc": start + m * MINUTE, "busy_share": 0.5} for d in "hi" for m in minutes
    ]
    acknowledge(books, [{"samples": live_rows}])
    seen = {key[3]: 0.0 for key in ledger_of(books)}
    for key, sums in ledger_of(books).items():
        seen[key[3]] += sums["busy_measured_s"]
    assert seen == {"g": 3 * 60, "h": 30 * 60, "i": 30 * 60}


DAYS, JOBS = 14, 900


def write_jobs(folder: Path) -> None:
    """Jobs on nodes whose GPUs nobody lists."""
    draw, start = random.Random(1), datetime(2026, 3, 1, tzinfo=UTC)
    rows = ["job_id,node,gpus,from_utc,to_utc"]
    for job in range(JOBS):
        begun = start + timedelta(minutes=draw.randrange(DAYS * 24 * 60))
        ended = begun + timedelta(minutes=draw.randint(10, 600))
        rows.append(f"j{job},n{draw.randrange(40)},{draw.randint(1, 4)},{begun.isoformat()},{ended.isoformat()}")
    folder.mkdir()
    (folder / "allocations.csv").write_text("\n".join(rows) + "\n")


def count_bookings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[rebuild.Span, ...]]:
    """The spans of every booking from now on."""
    booked: list[tuple[rebuild.Span, ...]] = []

    def book(session: rebuild.Session, spans: tuple[rebuild.Span, ...], **options: object) -> None:
        booked.append(spans)
        original(session, spans, **options)  # type: ignore[arg-type]

    original = rebuild.book
    monkeypatch.setattr(rebuild, "book", book)
    return booked


def ask(books: Books) -> list[object]:
    """The hours of every job by day."""
    return [(r.by, r.value) for r in books.show(["paid_gpu_hours", "allocated_gpu_hours"], by=["job", "day"])]


@pytest.mark.long
def test_days_are_booked_together_by_how_many_gpu_hours_they_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Books made day by day answer as those made at once, also of jobs that run over midnight."""
    write_jobs(tmp_path / "tables")
    booked = count_bookings(monkeypatch)
    answers, times = [], []
    for most in (rebuild.SAMPLES_AT_ONCE, 1):
        monkeypatch.setattr(rebuild, "SAMPLES_AT_ONCE", most)
        booked.clear()
        books = Books(tmp_path / str(most))
        books.add("tables", [tmp_path / "tables"])
        times.append(len(booked))
        answers.append(ask(books))
    assert times == [1, DAYS + 1]
    assert answers[0] == answers[1]


@pytest.mark.long
def test_a_month_that_does_not_fit_is_booked_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Books made with little memory answer as those made with enough."""
    write_jobs(tmp_path / "tables")
    booked = count_bookings(monkeypatch)
    answers, times = [], []
    for memory in ("1000MB", "45MB"):
        booked.clear()
        books = Books(tmp_path / memory)
        books.store.memory = memory
        books.add("tables", [tmp_path / "tables"])
        times.append(len(booked))
        books.store.memory = "1000MB"
        answers.append(ask(books))
    assert times[0] == 1 < times[1]
    assert len(answers[0]) > JOBS
    assert answers[0] == answers[1]
