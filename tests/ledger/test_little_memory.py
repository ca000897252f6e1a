"""Booking takes fewer days at once where a month of them takes more memory than there is; what is booked is the same."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loadfactor.books import rebuild
from loadfactor.books.books import Books

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
