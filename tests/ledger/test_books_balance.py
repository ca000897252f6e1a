"""Do the books balance? Random fleets through the real door, beside an oracle that loops over every instant."""

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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ledger.fleets import Fleet, add, batches
from tests.ledger.oracle import Oracle
from tests.ledger.oracle_answers import DIMENSIONS, OF_A_JOB, UNITS, Asked, answers
from tests.ledger.oracle_cells import HOLDER, HOUR, PLACE, STATES, Cell
from tests.long import rest_long

from loadfactor.books.books import Books
from loadfactor.books.rebuild import open_ledger
from loadfactor.ledger.states import KEYS as EXACT_KEYS
from loadfactor.ledger.states import SAMPLE_DIMENSIONS, measures
from loadfactor.ledger.steps import ledger_columns
from loadfactor.tables.schema import BASES

EXAMPLES = int(os.environ.get("BOOKS_EXAMPLES", "12"))
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
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


def shown(books: Books, asked: Asked, of_days: bool = False) -> dict[Key, dict[str, Any]]:
    """What the books answer, in the oracle's form; `of_days`: where days were added up before, as the report has it."""
    zero = datetime(1970, 1, 1, tzinfo=UTC)
    start, end = (zero + timedelta(milliseconds=ms) for ms in (asked.start, asked.end))
    out: dict[Key, dict[str, Any]] = defaultdict(dict)
    with books.snapshot() as snapshot:
        if of_days:
            snapshot.add_up_days(asked.by, start, end, asked.zone, asked.basis)
        readings = snapshot.show((), asked.by, start, end, asked.zone, asked.basis, without_idle=asked.without_idle)
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


@pytest.mark.parametrize(("part", "examples"), rest_long([(0, 2), (0, EXAMPLES), (1, EXAMPLES)]))
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
        listed_s = sum(
            (1.0 if d["share"] is None else d["share"])
            * max(0, min(oracle.end, d["to_utc"] or oracle.end) - max(oracle.start, d["from_utc"] or oracle.start))
            for d in fleet.tables["devices"]
        )
        booked_s = sum(row["gpu_s"] for row in said.values())
        assert near(booked_s, listed_s / 1000) if not oracle.unlisted else booked_s >= listed_s / 1000 - 1e-6
        for of_days in (False, True):
            asked = question(rnd, oracle)
            if oracle.start < oracle.end:
                assert_same_answers(shown(books, asked, of_days), answers(oracle, asked))


def test_units_and_states_of_the_oracle_are_those_of_the_books() -> None:
    """The oracle knows every state, and the units it divides by are metrics."""
    from loadfactor.ledger.columns import STATES as OURS
    from loadfactor.metrics import metric

    assert set(STATES) == set(OURS)
    assert all(metric(f"cost_per_{name}") for name in UNITS)
