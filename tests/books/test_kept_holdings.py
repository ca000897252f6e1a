"""Holdings kept from minute to minute are those worked out anew, and the manifest says what booked hours stand on."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ledger.fleets import HOUR, MINUTE, Fleet, Row, Tables, add, batches
from tests.long import rest_long

import loadfactor.books.kept_holdings as kept_holdings
from loadfactor.books.booking import book
from loadfactor.books.books import Books
from loadfactor.books.kept_holdings import KeptHoldings
from loadfactor.books.ledger_inputs import BookedBills, BookedFile, LedgerInputs, OwnedPrice, OwnedPrices, read_inputs
from loadfactor.store.session import Session
from loadfactor.tables.schema import ALWAYS, Span

STARTED = 1_790_000_000_000 // HOUR * HOUR
STATED = ("devices", "allocations", "outages", "prices", "exchange_rates")


def list_holdings(session: Session, span: Span) -> list[tuple[object, ...]]:
    """The holdings of a span, with how many of them share their stretch in place of its number."""
    return session.raw.execute(
        "SELECT * REPLACE (count(*) OVER (PARTITION BY span) AS span,"
        f" greatest(from_utc, {span[0]}) AS from_utc, least(to_utc, {span[1]}) AS to_utc)"
        f" FROM holdings WHERE from_utc < {span[1]} AND to_utc > {span[0]} ORDER BY ALL"
    ).fetchall()


def compare(books: Books, kept: KeptHoldings, start: int, minutes: int) -> None:
    """Holdings of some minutes as they were kept, and as they are without."""
    span = start, start + minutes * MINUTE
    with books.store.read() as session:
        kept.show(session, span, with_bills=False)
        found = list_holdings(session, span)
    with books.store.read() as session:
        book(session, (span,), until="holdings", with_bills=False)
        assert found == list_holdings(session, span)


@pytest.mark.long
@pytest.mark.parametrize("seed", rest_long(range(12)))
def test_whatever_is_said_in_between_kept_holdings_are_those_worked_out_anew(seed: int) -> None:
    """Rows of the small tables come a few at a time, in any order, while minute after minute of an hour is asked for."""
    rnd = random.Random(seed)
    fleet = Fleet(rnd)
    rows = [(name, row) for name in STATED for row in fleet.tables[name]]
    rnd.shuffle(rows)
    with TemporaryDirectory() as folder:
        books, kept = Books(Path(folder) / "store"), KeptHoldings()
        at = fleet.start + rnd.randrange(1, 4) * HOUR
        for step in range(6):
            some, rows = rows[:4], rows[4:]
            tables: Tables = {name: [row for of, row in some if of == name] for name in STATED}
            if some:
                add(books, batches(tables), f"rows {step}", Path(folder))
            compare(books, kept, at, rnd.choice((1, 3)))
            at += rnd.choice((0, 3, 7)) * MINUTE


def hold(device: str, job: str, start: int, end: int | None) -> Row:
    """An allocation of a GPU, in minutes."""
    to = None if end is None else STARTED + end * MINUTE
    return {"job_id": job, "device_id": device, "user": "ann", "from_utc": STARTED + start * MINUTE, "to_utc": to}


@pytest.mark.long
def test_jobs_that_come_and_go_on_many_gpus_change_only_what_they_hold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Forty nodes: a job ends, one begins, a node is listed, a GPU is shared, and all but the first is attributed in part."""
    books, kept, whole = Books(tmp_path / "store"), KeptHoldings(), []
    monkeypatch.setattr(
        kept_holdings, "book", lambda *args, **given: (whole.append(given["among"] is None), book(*args, **given))
    )
    devices: list[Row] = [
        {"device_id": f"n{n}g{g}", "node": f"n{n}", "pool": "p", "from_utc": STARTED, "known_from": "list"}
        for n in range(40)
        for g in range(4)
    ]
    jobs = [hold(row["device_id"], f"j{number // 8}", 0, None) for number, row in enumerate(devices)]
    add(books, batches({"devices": devices, "allocations": jobs}), "first", tmp_path)
    new = {"device_id": "n99g0", "node": "n99", "pool": "p", "from_utc": STARTED, "known_from": "list"}
    comings: list[Tables] = [
        {},
        {"allocations": [hold(f"n{n}g{g}", "j0", 0, 20) for n in range(2) for g in range(4)]},
        {"allocations": [hold("n0g0", "late", 22, 30), hold("n0g1", "late", 22, None)]},
        {"devices": [new]},
        {"allocations": [hold("n99g0", "elsewhere", 3, None), {**hold("n5g0", "half", 1, None), "share": 0.5}]},
        {"allocations": [hold("stranger", "unlisted", 1, None)]},
    ]
    for minute, tables in enumerate(comings):
        if tables:
            add(books, batches(tables), f"minute {minute}", tmp_path)
        compare(books, kept, STARTED + (25 + minute) * MINUTE, 2)
    assert whole == [True, False, False, False, False, False]


DIGEST = st.text("0123456789abcdef", min_size=16, max_size=16)
INSTANT = st.integers(*ALWAYS)
NAMED = st.none() | st.text(min_size=1)
FILES = st.builds(BookedFile, DIGEST, INSTANT, INSTANT)
BILLS = st.builds(BookedBills, DIGEST, DIGEST, st.lists(FILES, max_size=4).map(lambda files: tuple(sorted(files))))
ROWS = st.builds(OwnedPrice, NAMED, NAMED, st.none() | INSTANT, st.none() | INSTANT, st.floats(0, 1e12), NAMED)
OWNED = st.just(OwnedPrices()) | st.builds(OwnedPrices, DIGEST, st.lists(ROWS, max_size=3).map(tuple))
INPUTS = st.builds(LedgerInputs, DIGEST, DIGEST, DIGEST, st.none() | BILLS, OWNED)


@given(INPUTS)
def test_what_is_written_is_read(inputs: LedgerInputs) -> None:
    """Whatever the inputs of a ledger are, they are read as they were written."""
    assert read_inputs(inputs.write()) == inputs
