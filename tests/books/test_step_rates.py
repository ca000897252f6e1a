"""Minutes of the ledger, cut from what each second of a sample adds, are those of a ledger that is booked minute by minute."""

import random
from collections import defaultdict
from pathlib import Path

import pytest
from tests.insight.alerts.small_fleet import make_books
from tests.ledger.fleets import HOUR, MINUTE, Fleet
from tests.long import rest_long

from loadfactor.books import watched as watched_books
from loadfactor.books.booking import book
from loadfactor.books.kept_holdings import KeptHoldings
from loadfactor.books.step_totals import CutRows, read_cut_rows
from loadfactor.books.watched import Watched
from loadfactor.insight.alerts.rules import RULES
from loadfactor.metrics import metric
from loadfactor.metrics.query.calendar import Window
from loadfactor.metrics.query.question import UNKNOWN_HOLDER, Question

BY = ("device", "node", "job", "team")
NAMES = dict.fromkeys([*(need.metric for rule in RULES for need in rule.needs), "utilization_histogram"])
METRICS = tuple(map(metric, NAMES))


def sum_rows(rows: CutRows) -> dict[tuple[object, ...], float]:
    """The amounts by minute, names, part and column; nothing where they are zero."""
    total: dict[tuple[object, ...], float] = defaultdict(float)
    names = [[*rows.names[by], None] for by in BY]
    for row, step in enumerate(rows.step.tolist()):
        key = [of[rows.codes[by][row]] for by, of in zip(BY, names, strict=True)]
        key = [None if name == UNKNOWN_HOLDER else name for name in key]
        for part, amounts in rows.sums.items():
            for column, amount in enumerate(amounts[:, row].tolist()):
                total[(step, *key, part, column)] += amount
    return {key: amount for key, amount in total.items() if abs(amount) > 1e-9}


@pytest.mark.parametrize("seed", rest_long(range(6)))
def test_minutes_cut_from_rates_are_those_of_the_ledger(tmp_path: Path, seed: int) -> None:
    """Two hours of a fleet with shared GPUs, gaps, overlapping samples and outages."""
    books = make_books(tmp_path, Fleet(random.Random(seed)).tables)
    with books.watch() as watched:
        start = watched.span[0] // HOUR * HOUR
    span = (start, start + 2 * HOUR)
    hours = tuple((at, min(at + HOUR, span[1])) for at in range(span[0], span[1], HOUR))
    question = Question(METRICS, BY, Window(*span), "estimate")
    with books.store.read() as session:
        found = sum_rows(Watched(session, books.idle_below).read_steps(METRICS, BY, span, MINUTE, KeptHoldings()))
    with books.store.read() as session:
        book(session, hours, range(span[0], span[1], MINUTE), books.idle_below, with_bills=False)
        session.create_view("window_ledger", "SELECT * FROM book")
        cut = sum_rows(read_cut_rows(session, question, MINUTE))
    assert found == pytest.approx(cut, rel=1e-9)


@pytest.mark.parametrize("seed", rest_long((3, 2, 4)))
def test_steps_of_jobs_are_those_of_the_ledger(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that are read by minutes and by ten minutes, of one attribution, a few hours of samples at a time."""
    monkeypatch.setattr(watched_books, "SAMPLES_AT_ONCE", 1)
    books = make_books(tmp_path, Fleet(random.Random(seed)).tables)
    with books.store.read() as session:
        watched = Watched(session, books.idle_below)
        start, end = watched.span[0] // HOUR * HOUR, -(-watched.span[1] // HOUR) * HOUR
        hours = tuple((at, at + HOUR) for at in range(start, end, HOUR))
        jobs = sorted({row["job_id"] for row in watched.list_rows("allocations", "job_id IS NOT NULL")})
        parts = list(watched.read_job_rates(dict.fromkeys(jobs, (start, end)), METRICS, BY, (start, end)))
        assert len(parts) > 1
        for step in (MINUTE, 10 * MINUTE):
            question = Question(METRICS, BY, Window(start, end), "estimate")
            book(session, hours, range(start, end, step), books.idle_below)
            session.create_view("window_ledger", "SELECT * FROM book")
            cut = read_cut_rows(session, question, step)
            for job in jobs:
                found: dict[tuple[object, ...], float] = defaultdict(float)
                for (first, after), rates in parts:
                    for (at, *key), amount in sum_rows(rates.of("job", job).cut((first, after), step)).items():
                        found[(at + (first - start) // step, *key)] += amount  # type: ignore[operator]
                assert found == pytest.approx(sum_rows(cut.of("job", job)), rel=1e-9), job
