"""Activity of one job over time comes from its own samples alone, down to minutes, and is what the ledger sums up."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loadfactor.books.books import Books

START = datetime(2026, 10, 24, tzinfo=UTC)


def make_books(folder: Path) -> Books:
    """Two GPUs for ten minutes, a sample a minute: the first rises by 0.1 a minute, the second is busy in even minutes alone."""
    tables = folder / "tables"
    tables.mkdir()
    at = [(START + timedelta(minutes=m + 1)).isoformat() for m in range(10)]
    samples = [f"g0,{at[m]},{m / 10}" for m in range(10)] + [f"g1,{at[m]},{float(m % 2 == 0)}" for m in range(10)]
    devices = "".join(f"g{i},x,{START.isoformat()}\n" for i in (0, 1))
    (tables / "devices.csv").write_text("device_id,accelerator,from_utc\n" + devices)
    (tables / "samples.csv").write_text("device_id,to_utc,sm_active_share\n" + "\n".join(samples) + "\n")
    end = (START + timedelta(minutes=9)).isoformat()
    held = "".join(f"j,g{i},{START.isoformat()},{end}\n" for i in (0, 1))
    pool = f"p,,{START.isoformat()},{end}\n"
    (tables / "allocations.csv").write_text("job_id,device_id,from_utc,to_utc\n" + held + pool)
    books = Books(folder / "books")
    books.add("tables", [tables])
    return books


def test_a_job_is_seen_by_the_minute(tmp_path: Path) -> None:
    """Mean, lowest and highest GPU of each minute that the job held them, not of the minute after."""
    books = make_books(tmp_path)
    with books.snapshot() as snapshot:
        seen = snapshot.job_activity("j", *snapshot.span)
    assert seen is not None
    assert (seen.step_s, seen.gpus, seen.start_ms) == (60, 2, int(START.timestamp() * 1000))
    assert seen.mean == pytest.approx([(m / 10 + (m % 2 == 0)) / 2 for m in range(9)])
    assert seen.lowest == pytest.approx([m / 10 if m % 2 == 0 else 0.0 for m in range(9)])
    assert seen.highest == pytest.approx([1.0 if m % 2 == 0 else m / 10 for m in range(9)])
    utilization = books.show(["utilization"], where={"job": "j"})[0].value
    assert sum(m or 0.0 for m in seen.mean) / 9 == pytest.approx(utilization)


def test_a_window_and_a_gap_stay_what_they_are(tmp_path: Path) -> None:
    """Only the window is seen; a job whose allocation names no GPU has no picture."""
    books = make_books(tmp_path)
    with books.snapshot() as snapshot:
        seen = snapshot.job_activity("j", START + timedelta(minutes=2), START + timedelta(minutes=4, seconds=30))
        assert snapshot.job_activity("p", *snapshot.span) is None
    assert seen is not None
    assert seen.mean == pytest.approx([0.6, 0.15, 0.7])
