"""Does it matter in which order the data came? Not to the ledger, and only the hours that it touches are booked again."""

import random
from pathlib import Path

import pytest
from tests.ledger.fleets import HOUR, MINUTE, Fleet, Row, add, batch, batches
from tests.ledger.test_books_balance import assert_same_ledger, ledger_of

from loadfactor.books.books import Books
from loadfactor.books.rebuild import refresh


@pytest.mark.parametrize("seed", range(3))
def test_in_pieces_in_any_order_is_all_at_once(seed: int, tmp_path: Path) -> None:
    """Rows that come late, shuffled and in pieces, each piece booked as it comes, give the ledger of all at once."""
    rnd = random.Random(1000 + seed)
    tables = Fleet(rnd).tables
    whole, late = Books(tmp_path / "whole"), Books(tmp_path / "late")
    add(whole, batches(tables), "all", tmp_path)
    rows = [(name, row) for name, of in tables.items() if name != "devices" for row in of]
    rnd.shuffle(rows)
    pieces: list[dict[str, list[Row]]] = [{} for _ in range(3)]
    for name, row in rows:
        rnd.choice(pieces).setdefault(name, []).append(row)
    pieces.insert(rnd.randint(0, 3), {"devices": tables["devices"]})
    for number, piece in enumerate(pieces):
        if piece:
            add(late, batches(piece), f"piece {number}", tmp_path)
            refresh_ledger(late)
    assert late.store.span() == whole.store.span()
    assert_same_ledger(ledger_of(late), ledger_of(whole))


def refresh_ledger(books: Books) -> None:
    """Book what is stale, and keep it."""
    with books.store.write() as writer:
        refresh(writer, lambda _what, _share: None)


def test_the_same_twice_adds_nothing_and_only_touched_hours_are_booked(tmp_path: Path) -> None:
    """A late sample books its own hour again, the other days' files stay; the same file twice changes no file at all."""
    start = 1_767_225_600_000
    devices = [{"device_id": "g", "from_utc": start, "to_utc": start + 72 * HOUR}]
    samples = [
        {"device_id": "g", "source": "s", "to_utc": start + d * 24 * HOUR + m * MINUTE, "busy_share": 0.5}
        for d in range(3)
        for m in range(1, 60)
    ]
    held = [{"job_id": "j", "device_id": "g", "from_utc": start, "to_utc": start + 70 * HOUR}]
    books = Books(tmp_path / "store")
    items = [batch("devices", devices), batch("samples", samples), batch("allocations", held)]
    add(books, items, "all", tmp_path)
    refresh_ledger(books)
    before = books.store.manifest
    assert add(books, items, "all", tmp_path).already
    refresh_ledger(books)
    assert books.store.manifest == before
    late = start + 24 * HOUR + 5 * HOUR + 30 * MINUTE
    add(
        books,
        [
            batch(
                "samples",
                [{"device_id": "g", "source": "s", "from_utc": late - MINUTE, "to_utc": late, "busy_share": 1.0}],
            )
        ],
        "late",
        tmp_path,
    )
    refresh_ledger(books)
    day = start // (24 * HOUR) + 1
    kept = {f.name: f for f in before.of("ledger")}
    added = [f for f in books.store.manifest.of("ledger") if f.name not in kept]
    changed = [f for f in books.store.manifest.of("ledger") if f.name in kept and f != kept[f.name]]
    assert [(f.day, f.from_ms, f.to_ms) for f in added] == [(day, start + 29 * HOUR, start + 30 * HOUR)]
    assert [(f.day, f.hours) for f in changed] == [
        (day, ((start + 24 * HOUR, start + 29 * HOUR), (start + 30 * HOUR, start + 48 * HOUR)))
    ]


def test_a_corrected_end_takes_its_hours_away(tmp_path: Path) -> None:
    """When a correction makes the known span shorter, what lay beyond it leaves the ledger."""
    start = 1_767_225_600_000
    books = Books(tmp_path / "store")
    for label, hours in (("first", 50), ("corrected", 3)):
        held = [{"job_id": "j", "device_id": "g", "from_utc": start, "to_utc": start + hours * HOUR}]
        add(
            books,
            [batch("devices", [{"device_id": "g", "from_utc": start}]), batch("allocations", held)],
            label,
            tmp_path,
        )
        books.table("ledger")
    assert books.table("ledger").gpu_s.sum().to_pyarrow().as_py() == 3 * 3600
