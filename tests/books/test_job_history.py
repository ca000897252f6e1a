"""The jobs in the books become a history a plan can start from."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.books.job_run import job_history
from loadfactor.interfaces.cli import app


def kept(folder: Path, allocations: str) -> Path:
    """Books with two nodes of 8 and these allocations."""
    tables = folder / "mine"
    tables.mkdir()
    devices = "".join(f"gpu-{i},node-{i // 8},2026-05-01T00:00:00Z,\n" for i in range(16))
    (tables / "devices.csv").write_text("device_id,node,from_utc,to_utc\n" + devices)
    (tables / "allocations.csv").write_text(
        "job_id,node,device_id,gpus,share,team,submitted_utc,from_utc,to_utc\n" + allocations
    )
    store = folder / "books"
    loadfactor.open(str(store), create=True).add("tables", [tables])
    return store


def test_gangs_are_one_job_and_waits_are_not_durations(tmp_path: Path) -> None:
    """A gang named by GPU count or GPU by GPU is one job; a share counts as a share; a job still held is left out and counted."""
    store = kept(
        tmp_path,
        "a,node-0,,8,,nlp,2026-05-01T00:00:00Z,2026-05-01T01:00:00Z,2026-05-01T03:00:00Z\n"
        "b,node-1,gpu-8,,,vision,2026-05-01T00:30:00Z,2026-05-01T00:30:00Z,2026-05-01T01:00:00Z\n"
        "b,node-1,gpu-9,,,vision,2026-05-01T00:30:00Z,2026-05-01T00:30:00Z,2026-05-01T01:00:00Z\n"
        "c,node-1,gpu-10,,0.5,,,2026-05-01T02:00:00Z,2026-05-01T02:10:00Z\n"
        "d,node-1,gpu-11,,,,,2026-05-01T02:00:00Z,\n",
    )
    found = job_history(loadfactor.open(str(store)))
    assert (found.submit_s - found.submit_s[0]).tolist() == [0, 1800, 7200]
    assert found.gpus.tolist() == [8, 2, 0.5]
    assert found.duration_s.tolist() == [7200, 1800, 600]
    assert found.team.tolist() == ["nlp", "vision", ""]
    assert (found.still_held, found.not_waited, found.installed_gpus) == (1, 1, 16)


def test_books_are_sized(tmp_path: Path) -> None:
    """`plan size --store` simulates the jobs of the books and judges the GPUs installed in them."""
    rows = "".join(
        f"job-{i},node-{i % 2},,8,,nlp,2026-05-{1 + i:02d}T00:00:00Z,2026-05-{1 + i:02d}T00:00:00Z,2026-05-{1 + i:02d}T12:00:00Z\n"
        for i in range(20)
    )
    store = kept(tmp_path, rows)
    result = CliRunner().invoke(app, ["plan", "size", "--store", str(store), "--format", "json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["today"]["gpus"] == 16
    assert found["cheapest"]["gpus"] == 8
    assert found["smaller_is_cheaper"] is True
    assert found["work_gpu_hours"] == pytest.approx(20 * 8 * 12)


def test_books_without_jobs_say_so(tmp_path: Path) -> None:
    """Books in which no job ended cannot be sized, and a folder without books is named."""
    store = kept(tmp_path, "a,node-0,,8,,nlp,,2026-05-01T01:00:00Z,\n")
    with pytest.raises(InputError, match=r"too few jobs that ended \(0\)"):
        job_history(loadfactor.open(str(store)))
    refused = CliRunner().invoke(app, ["plan", "size", "--store", str(tmp_path / "none")])
    assert isinstance(refused.exception, InputError)
    assert "no books" in str(refused.exception)


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
