"""Exports that overlap, of a Slurm that does not count restarts: each run of a job is booked once."""

from datetime import UTC
from pathlib import Path

from tests.sources.slurm.sacct_files import DAY, job, write_sacct

import loadfactor
from loadfactor.sources.base import ReadOptions


def test_a_run_that_two_exports_number_differently_counts_once(tmp_path: Path) -> None:
    """The second export begins after the first run of a job: its second run comes first there, and is the same run."""
    first = job("104", "09:00:00", "10:00:00", 2, State="REQUEUED")
    second = job("104", "11:00:00", "13:00:00", 2, Submit=f"{DAY}10:00:05", Eligible=f"{DAY}10:02:00")
    books = loadfactor.Books(tmp_path / "books")
    for number, runs in enumerate(([first, second], [second])):
        path = tmp_path / f"export-{number}.txt"
        path.write_text(write_sacct(runs))
        books.add("slurm", [path], ReadOptions(timezone=UTC))
    (held,) = [r.value for r in books.show("allocated_gpu_hours", by="job") if r.by["job"] == "104"]
    assert held == 2 * 1 + 2 * 2
