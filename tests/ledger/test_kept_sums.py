"""Sums and waits that are kept beside the ledger are those worked out anew, whatever comes late, goes, or changes name or price."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.operations as ops
import pytest
from tests.ledger.fleets import HOUR, Fleet, Row, add, batch, batches, full
from tests.ledger.test_books_balance import near, refresh_ledger
from tests.long import rest_long

from loadfactor.books.books import Books
from loadfactor.books.expressions import write_waits
from loadfactor.books.kept_sums import LEDGER_FILES, find_untold
from loadfactor.books.kept_waits import TOLD_BY, view_waits
from loadfactor.books.ledger_inputs import select_ledger
from loadfactor.books.rebuild import open_ledger
from loadfactor.ledger.columns import HISTOGRAM, KEPT_SUMS, KEPT_WAITS
from loadfactor.ledger.states import measures
from loadfactor.ledger.steps import ledger_columns
from loadfactor.ledger.sums import HIGHEST, KEPT, KeptSum
from loadfactor.store.manifest import intersect, merge

MAPPING = "user,from,to,experiment\nann,,,notes\nbob,2025-12-31T20:00:00Z,,later\n"


@cache
def add_up_measures(kept: KeptSum) -> str:
    """SQL: every measure that a kept sum tells, by all it is split by, of the rows `added` in the form of the ledger."""
    rows = ibis.table(ledger_columns(), name="added")
    amounts = {c: rows[c] for c in kept.additive} | measures(rows)
    told = {n: of for n, of in amounts.items() if {f.name for f in of.op().find(ops.Field)} <= kept.columns}
    period = (rows.hour_utc - rows.hour_utc % KEPT_SUMS[kept.table]).name("period")
    found = rows.group_by([period, *kept.by, "state", "holder"]).aggregate(
        **{name: of.sum() for name, of in told.items()},
        **{c: rows[c].max() for c in HIGHEST if c in kept.highest},
        first=rows.from_utc.min(),
    )
    return str(ibis.to_sql(found, dialect="duckdb"))


def assert_sums_of_the_ledger(books: Books, whole: bool = True) -> None:
    """Every measure of every kept sum is that of the ledger as readers see it; `whole`: of all that a sum can tell."""
    with books.store.read() as session:
        open_ledger(session, books.idle_below)
        ledger_files = session.derived[LEDGER_FILES]
        booked = merge([span for file in ledger_files.ledger for span in file.booked])
        for kept in KEPT:
            files = ledger_files.sums.get(kept.table, [])
            assert not whole or not intersect(find_untold(kept.table, files, session.span()), booked)
            hours = [f"hour_utc >= {start} AND hour_utc < {end}" for file in files for start, end in file.booked]
            if not files:
                continue
            keys = ("period", *kept.by, "state", "holder")
            found: list[dict[tuple[Any, ...], Row]] = []
            of_ledger = "SELECT * FROM ledger WHERE"
            for rows in (
                f"{of_ledger} false UNION ALL BY NAME {select_ledger(session, files)}",  # names what the sum does not tell
                f"{of_ledger} {' OR '.join(hours)}",
            ):
                session.create_view("added", rows)
                found.append({tuple(r[k] for k in keys): r for r in session.fetch(add_up_measures(kept)).to_pylist()})
            told, true = found
            assert set(told) == set(true)
            for key, row in true.items():
                amounts = ((name, told[key][name], value) for name, value in row.items() if name not in keys)
                wrong = [(name, a, b) for name, a, b in amounts if not near(a, b)]
                assert not wrong, (kept.table, key, wrong)


def assert_waits_are_kept(books: Books) -> None:
    """Readers find waits and their reasons in files, and these are what allocations and queue events speak of now."""
    with books.store.read() as session:
        view_waits(session)
        shown = {name: session.fetch(f"FROM {name} ORDER BY ALL").to_pylist() for name in KEPT_WAITS}
        assert all("read_parquet" in session.read_view(name) for name in KEPT_WAITS)
        for name in TOLD_BY:
            session.view_table(name, name)
        for name, sql in write_waits().items():
            session.create_view(name, sql)
            assert session.fetch(f"FROM {name} ORDER BY ALL").to_pylist() == shown[name]


@pytest.mark.long
@pytest.mark.parametrize("seed", rest_long(range(4)))
def test_sums_are_those_of_the_ledger(seed: int, tmp_path: Path) -> None:
    """Through data in pieces in any order, new prices, rows tagged anew and an import taken out; also where hours are stale."""
    rnd = random.Random(30 + seed)
    fleet = Fleet(rnd)
    tables, prices = fleet.tables, fleet.tables["prices"]
    for row in tables["queue_events"]:
        row["reason"] = rnd.choice((None, "Priority", "Resources"))
    books = Books(tmp_path / "store")
    rows = [(name, row) for name, of in tables.items() if name not in ("devices", "prices") for row in of]
    rnd.shuffle(rows)
    pieces: list[dict[str, list[Row]]] = [{"devices": tables["devices"]}, {}, {}, {"prices": prices}]
    for name, row in rows:
        rnd.choice(pieces[:3]).setdefault(name, []).append(row)
    for number, piece in enumerate(pieces):
        add(books, batches(piece), f"piece {number}", tmp_path)
        assert_sums_of_the_ledger(books, whole=False)
        refresh_ledger(books)
        assert_sums_of_the_ledger(books)
        assert_waits_are_kept(books)
    mapping = tmp_path / "mapping.csv"
    mapping.write_text(MAPPING)
    books.retag(mapping)
    assert_sums_of_the_ledger(books)
    assert_waits_are_kept(books)
    books.forget(rnd.randint(2, 3))
    assert_sums_of_the_ledger(books)
    assert_waits_are_kept(books)
    price = {"basis": "contracted", "price_per_gpu_hour": 7.0, "from_utc": fleet.start + 3 * HOUR}
    add(books, [batch("prices", [price])], "dearer", tmp_path)
    refresh_ledger(books)
    assert_sums_of_the_ledger(books)
    assert_waits_are_kept(books)


@pytest.mark.long
def test_waits_are_kept_where_an_event_comes_alone_and_where_their_file_went(tmp_path: Path) -> None:
    """No hour is booked for an event of a queue; a reader that sees more than what is kept works its waits out."""
    books, at = Books(tmp_path / "store"), 1_767_225_600_000
    device = {"device_id": "g", "from_utc": at, "to_utc": at + 4 * HOUR}
    event = {"job_id": "j", "event": "submitted", "at_utc": at, "gpus": 1.0, "reason": "Priority"}
    add(books, batches(full({"devices": [device], "queue_events": [event]})), "submitted", tmp_path)
    refresh_ledger(books)
    assert_waits_are_kept(books)
    started = event | {"event": "started", "at_utc": at + HOUR, "reason": None}
    add(books, batches(full({"queue_events": [started]})), "started", tmp_path)
    assert books.find_waits().all.started == 1  # not kept yet
    refresh_ledger(books)
    assert_waits_are_kept(books)
    found = books.find_waits()
    assert (found.all.started, [(of.reason, of.gpu_hours_waited) for of in found.reasons]) == (1, [("Priority", 1.0)])
    with books.store.write() as writer:
        writer.swap(writer.manifest.of(KEPT_WAITS["wait_reasons"]), [])
    assert books.find_waits() == found
    refresh_ledger(books)
    assert_waits_are_kept(books)


def test_a_question_by_gpu_over_days_reads_no_rows_of_hours() -> None:
    """A sum of days tells what GPUs did and their histogram, which read of the ledger takes ten times as long."""
    read = {"device_id", "node", "state", "holder", "measured_mask", "gpu_s", "sm_active_s", *HISTOGRAM}
    assert [kept.table for kept in KEPT if read <= kept.columns] == ["ledger_by_device_day"]
