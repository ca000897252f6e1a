"""The books balance beside an oracle that loops over every instant, and the order in which data came does not matter."""

import math
import os
import random
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import ibis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.ledger.fleets import MINUTE, STARTS, Fleet, Row, add, batch, batches
from tests.ledger.oracle import Oracle
from tests.ledger.oracle_answers import DIMENSIONS, OF_A_JOB, UNITS, Asked, answers
from tests.ledger.oracle_cells import HOLDER, HOUR, PLACE, STATES, Cell
from tests.long import rest_long

from loadfactor.books.books import Books
from loadfactor.books.rebuild import open_ledger, refresh
from loadfactor.ledger.columns import HISTOGRAM
from loadfactor.ledger.states import KEYS as EXACT_KEYS
from loadfactor.ledger.states import SAMPLE_DIMENSIONS, measures
from loadfactor.ledger.steps import ledger_columns
from loadfactor.tables.schema import BASES

EXAMPLES = int(os.environ.get("BOOKS_EXAMPLES", "12"))
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=(Phase.generate,),  # a fleet made smaller takes minutes, and is as long to read
    derandomize="BOOKS_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
    database=None,
)
KEYS = ("hour_utc", "state", "holder", "device_id", *PLACE, *HOLDER)
ZONES = (UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("Asia/Kolkata"))
Key = tuple[Any, ...]


def near(a: Any, b: Any) -> bool:
    """Equal to a billionth; unknown is only equal to unknown."""
    if a is None or b is None:
        return a is b
    if isinstance(a, list):
        return len(a) == len(b) and all(near(x, y) for x, y in zip(a, b, strict=True))
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


@cache
def compile_measures() -> str:
    """SQL: the ledger with all its measures."""
    rows = ibis.table(ledger_columns(), name="ledger")
    return str(ibis.to_sql(rows.mutate(**measures(rows)), dialect="duckdb"))


def ledger_of(books: Books) -> dict[Key, dict[str, float]]:
    """The ledger that readers see, added up by everything but the exact instants."""
    with books.store.read() as session:
        open_ledger(session, books.idle_below)
        book = session.fetch(compile_measures())
    peaks = ("mem_peak_share", "temperature_peak_c", "pcie_peak_bytes_per_s", "nvlink_peak_bytes_per_s")
    not_added = {*EXACT_KEYS, *SAMPLE_DIMENSIONS, *peaks, *(f"price_per_gpu_hour_{b}" for b in BASES)}
    added = [c for c in book.column_names if c not in not_added]
    out: dict[Key, dict[str, float]] = defaultdict(lambda: dict.fromkeys(added, 0.0))
    for row in book.to_pylist():
        sums = out[tuple(row[k] for k in KEYS)]
        for name in added:
            sums[name] += row[name] or 0.0
    return out


def assert_histograms_are_whole(books: Books) -> None:
    """In each row the twentieths of activity add up to its seconds, where activity was measured; elsewhere all are zero."""
    parts = " + ".join(HISTOGRAM)
    is_whole = f"abs({parts} - if(state IN ('idle', 'busy'), gpu_s, 0.0)) <= 1e-9 * gpu_s"
    with books.store.read() as session:
        open_ledger(session, books.idle_below)
        assert session.fetch(f"SELECT * FROM ledger WHERE ({is_whole}) IS NOT TRUE").to_pylist() == []


def ledger_by_hand(cells: list[Cell]) -> dict[Key, dict[str, float]]:
    """The oracle's ledger, added up alike."""
    out: dict[Key, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for c in cells:
        sums = out[tuple({"hour_utc": c.hour, "state": c.state, **c.keys}[k] for k in KEYS)]
        for name, value in c.sums.items():
            if not name.startswith("priced_"):
                sums[name] += value
    return out


def assert_same_ledger(said: dict[Key, dict[str, float]], true: dict[Key, dict[str, float]]) -> None:
    assert set(said) == set(true)
    for key, sums in true.items():
        assert set(sums) <= set(said[key])
        wrong = {n: (v, sums.get(n, 0.0)) for n, v in said[key].items() if not near(v, sums.get(n, 0.0))}
        assert not wrong, (key, wrong)


def shown(books: Books, asked: Asked) -> dict[Key, dict[str, Any]]:
    """What the books answer, in the oracle's form."""
    zero = datetime(1970, 1, 1, tzinfo=UTC)
    start, end = (zero + timedelta(milliseconds=ms) for ms in (asked.start, asked.end))
    out: dict[Key, dict[str, Any]] = defaultdict(dict)
    readings = books.show((), asked.by, start, end, asked.zone, asked.basis, without_idle=asked.without_idle)
    for r in readings:
        key = tuple(
            round(datetime.fromisoformat(r.by[d]).timestamp() * 1000) if d == "hour" and r.by[d] else r.by[d]
            for d in asked.by
        )
        out[key][r.metric] = (r.value, r.coverage)
    return out


def assert_same_answers(said: dict[Key, dict[str, Any]], true: dict[Key, dict[str, Any]]) -> None:
    """Every metric of every group agrees, its coverage too; what the oracle knows nothing of is None (or nobody waits)."""
    assert set(said) == set(true)
    for key, group in said.items():
        for name, (value, coverage) in group.items():
            expected, covered = true[key].get(name, (None, None))
            if name == "queue_waiting":
                assert (value or 0) == (expected or 0), (key, name)
                continue
            assert near(value, expected), (key, name, value, expected)
            if name in true[key]:
                assert near(coverage, covered), (key, name, "coverage", coverage, covered)


def question(rnd: random.Random, oracle: Oracle) -> Asked:
    """A random question: a window that cuts hours, some dimensions, a zone, a basis."""
    low, high = oracle.start - HOUR, oracle.end + HOUR
    step = rnd.choice((HOUR, 60_000, 1))
    a, b = (low + rnd.randint(0, (high - low) // step) * step for _ in "ab")
    a, b = (oracle.start, oracle.end) if rnd.randint(0, 3) == 0 else (min(a, b), max(a, b) + 1)
    if b <= oracle.start or a >= oracle.end:  # outside the books nothing may be asked
        a, b = oracle.start, oracle.end
    everything = (*DIMENSIONS, "state", "hour", "day")
    dimensions = rnd.choice(
        (everything, ("node", "pool", "team"), ("pool", *OF_A_JOB), OF_A_JOB)
    )  # waits and units know fewer
    by = tuple(rnd.sample(dimensions, rnd.choice((0, 1, 1, 2, 3))))
    basis = rnd.choice(("contracted", "contracted", "list"))
    return Asked(by, a, b, rnd.choice(ZONES), basis, rnd.randint(0, 3) == 0)


@pytest.mark.parametrize(("part", "examples"), rest_long([(0, 20), (0, EXAMPLES), (1, EXAMPLES)]))
def test_the_books_say_what_the_oracle_says(part: int, examples: int) -> None:
    """Ledger and metrics of random fleets equal a slow loop over every instant, in total and split, in windows that cut hours."""

    @settings(SETTINGS, max_examples=examples)
    @given(st.randoms(use_true_random=False), st.just(part))
    def run(rnd: random.Random, _part: int) -> None:
        check_one(rnd)

    run()


def check_one(rnd: random.Random, make: Callable[[random.Random], Fleet] = Fleet) -> None:
    """The books of a random fleet, in full and asked."""
    fleet = make(rnd)
    step_s, lone_s = rnd.choice((None, None, 60.0)), rnd.choice((None, 30.0))
    oracle = Oracle(fleet.tables, step_s and step_s * 1000, lone_s and lone_s * 1000)
    with TemporaryDirectory() as folder:
        books = Books(Path(folder) / "store")
        add(books, batches(fleet.tables), "all", Path(folder), step_s=step_s, lone_s=lone_s)
        assert books.store.span() == (oracle.start, oracle.end)
        true = ledger_by_hand(oracle.book())
        said = ledger_of(books)
        assert_same_ledger(said, true)
        assert_histograms_are_whole(books)
        listed_s = sum(
            (1.0 if d["share"] is None else d["share"])
            * max(0, min(oracle.end, d["to_utc"] or oracle.end) - max(oracle.start, d["from_utc"] or oracle.start))
            for d in fleet.tables["devices"]
        )
        booked_s = sum(row["gpu_s"] for row in said.values())
        assert near(booked_s, listed_s / 1000) if not oracle.unlisted else booked_s >= listed_s / 1000 - 1e-6
        for is_booked in (False, True):
            if is_booked:  # then questions are answered from the sums that are kept
                refresh_ledger(books)
            asked = question(rnd, oracle)
            if oracle.start < oracle.end:
                assert_same_answers(shown(books, asked), answers(oracle, asked))


def test_units_and_states_of_the_oracle_are_those_of_the_books() -> None:
    """The oracle knows every state, and the units it divides by are metrics."""
    from loadfactor.ledger.columns import STATES as OURS
    from loadfactor.metrics import metric

    assert set(STATES) == set(OURS)
    assert all(metric(f"cost_per_{name}") for name in UNITS)


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
