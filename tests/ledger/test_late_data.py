"""Does it matter in which order the data came? Not to the ledger, and only the hours that it touches are booked again."""

import random
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.fleets import HOUR, MINUTE, STARTS, Fleet, Row, add, batch, batches
from tests.ledger.test_books_balance import assert_same_ledger, ledger_of
from tests.long import rest_long

from loadfactor.books.books import Books
from loadfactor.books.rebuild import refresh


@pytest.mark.parametrize("seed", rest_long(range(3)))
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


def priced(books: Books, start: int) -> list[float | None]:
    """What a GPU cost in each hour, in the order of the hours; None where its price is unknown."""
    rows = books.table("ledger").select("hour_utc", "price_per_gpu_hour_contracted").to_pyarrow().to_pylist()
    by_hour = {(row["hour_utc"] - start) // HOUR: row["price_per_gpu_hour_contracted"] for row in rows}
    return [by_hour[hour] for hour in range(len(by_hour))]


def test_an_exchange_rate_that_ends_leaves_its_hours_unknown_until_the_next_one(tmp_path: Path) -> None:
    """A rate of one hour that comes late ends the one before it: what lies between it and the next rate is booked again."""
    start = 1_767_225_600_000
    books = Books(tmp_path / "store")
    device = {"device_id": "g", "from_utc": start, "to_utc": start + 6 * HOUR}
    price = {"from_utc": start, "basis": "contracted", "price_per_gpu_hour": 2.0, "currency": "EUR"}
    rates = [{"currency": "EUR", "from_utc": start + hour * HOUR, "rate": rate} for hour, rate in ((1, 2.0), (5, 3.0))]
    known = [batch("devices", [device]), batch("prices", [price]), batch("exchange_rates", rates)]
    add(books, known, "known", tmp_path)
    refresh_ledger(books)
    assert priced(books, start) == [None, 4.0, 4.0, 4.0, 4.0, 6.0]
    late = {"currency": "EUR", "from_utc": start + 2 * HOUR, "to_utc": start + 3 * HOUR, "rate": 1.0}
    number = add(books, [batch("exchange_rates", [late])], "late", tmp_path).number
    assert books.store.manifest.stale == ((start + 2 * HOUR, start + 5 * HOUR),)
    refresh_ledger(books)
    assert priced(books, start) == [None, 4.0, 2.0, None, None, 6.0]
    books.forget(number)
    assert priced(books, start) == [None, 4.0, 4.0, 4.0, 4.0, 6.0]


@pytest.mark.parametrize("name", ["prices", "exchange_rates"])
def test_a_price_or_rate_without_an_end_that_is_forgotten_costs_nothing_more(name: str, tmp_path: Path) -> None:
    """Where the only import of a table is forgotten, all hours that its rows spoke of are booked again, to the end of the books."""
    start = 1_767_225_600_000
    books = Books(tmp_path / "store")
    device = {"device_id": "g", "from_utc": start, "to_utc": start + 3 * HOUR}
    price = {"from_utc": start, "basis": "contracted", "price_per_gpu_hour": 2.0, "currency": "EUR"}
    tables = {"prices": [price], "exchange_rates": [{"currency": "EUR", "from_utc": start, "rate": 2.0}]}
    rest = {"devices": [device], **{other: rows for other, rows in tables.items() if other != name}}
    add(books, batches(rest), "rest", tmp_path)
    number = add(books, [batch(name, tables[name])], name, tmp_path).number
    refresh_ledger(books)
    assert priced(books, start) == [4.0, 4.0, 4.0]
    books.forget(number)
    assert priced(books, start) == [None, None, None]


START = STARTS[-1]
SMI = {"source": "nvidia-smi", "busy_share": 0.5, "power_w": 400.0, "mem_used_bytes": 40.0, "mem_total_bytes": 80.0}
DCGM = {"source": "dcgm", "sm_active_share": 0.3}


def sample(since: int, until: int, **values: Any) -> dict[str, Any]:
    return {"device_id": "g0", "from_utc": START + since, "to_utc": START + until, **values}


def books_of(folder: Path, *imports: list[dict[str, Any]]) -> Books:
    """One GPU held for an hour, and its samples, an import each."""
    hour = {"device_id": "g0", "from_utc": START, "to_utc": START + HOUR}
    books = Books(folder / "store")
    add(books, [batch("devices", [hour]), batch("allocations", [{"job_id": "a", **hour}])], "held", folder)
    for number, rows in enumerate(imports):
        add(books, [batch("samples", rows)], str(number), folder)
    return books


def values(books: Books, *metrics: str) -> list[Any]:
    return [r.value for r in books.show(metrics)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_better_signal_leaves_energy_and_memory(tmp_path: Path, order: tuple[int, int]) -> None:
    """Activity is the better one's, energy, memory and GPU_UTIL are the other's, whichever came first."""
    both = ([sample(0, HOUR, **SMI)], [sample(0, HOUR, **DCGM)])
    books = books_of(tmp_path, *(both[k] for k in order))
    metrics = ("energy_kwh", "mem_utilization", "utilization", "gpu_util", "sm_activity", "mem_utilization_peak")
    assert values(books, *metrics) == [0.4, 0.5, 0.3, 0.5, 0.3, 0.5]
    (reading,) = books.show(["utilization"])
    assert reading.activity_basis == "sm_active"


def test_of_two_that_measured_the_same_the_better_sample_counts(tmp_path: Path) -> None:
    """Power of both: the one with the better activity signal counts while it speaks, the other before and after."""
    better = sample(15 * MINUTE, 45 * MINUTE, **DCGM, power_w=200.0)
    books = books_of(tmp_path, [sample(0, HOUR, **SMI)], [better])
    assert values(books, "energy_kwh", "utilization") == pytest.approx([0.3, 0.4])


def test_memory_in_use_and_memory_there_is_come_from_one_sample(tmp_path: Path) -> None:
    """The better sample knows only what is in use: both come from the one that knows both."""
    books = books_of(tmp_path, [sample(0, HOUR, **SMI)], [sample(0, HOUR, **DCGM, mem_used_bytes=72.0)])
    assert values(books, "mem_utilization") == [0.5]
    alone = {k: v for k, v in SMI.items() if k != "mem_used_bytes"}
    (tmp_path / "b").mkdir()
    books = books_of(tmp_path / "b", [sample(0, HOUR, **alone)], [sample(0, HOUR, **DCGM, mem_used_bytes=72.0)])
    assert values(books, "mem_utilization") == [0.9]
