"""Targets: where they stand, the pace that would meet them, and whose page shows them."""

from pathlib import Path

import pytest
from tests.books.conftest import Write
from tests.commands import Run

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books

TARGETS = """
[[target]]
metric = "allocation"
at_least = 0.9
due = 2026-11-16
[[target]]
metric = "allocation"
team = "a"
at_least = 0.5
due = 2026-10-12
[[target]]
metric = "allocated_gpu_hours"
team = "b"
at_most = 200
due = 2027-01-01
"""


def fill(folder: Path) -> Books:
    """Four weeks of ten GPUs; team a holds 4, 5, 6, 7 of them, b one."""
    (folder / "tables").mkdir()
    days = ("2026-09-28", "2026-10-05", "2026-10-12", "2026-10-19", "2026-10-26")
    rows = [
        f"{team}{week}-{gpu},{team},g{gpu},{days[week]}T00:00Z,{days[week + 1]}T00:00Z\n"
        for week in range(4)
        for gpu in range(5 + week)
        for team in ("b" if gpu == 0 else "a",)
    ]
    devices = "".join(f"g{gpu},{days[0]}T00:00Z,{days[-1]}T00:00Z\n" for gpu in range(10))
    (folder / "tables" / "devices.csv").write_text("device_id,from_utc,to_utc\n" + devices)
    (folder / "tables" / "allocations.csv").write_text("job_id,team,device_id,from_utc,to_utc\n" + "".join(rows))
    books = Books(folder / "books")
    books.add("tables", [folder / "tables"])
    return books


def test_a_target_has_the_pace_that_meets_it(tmp_path: Path, write: Write, run: Run) -> None:
    """By hand: 50 to 80 % in three weeks is 10 points a week; 10 more in three weeks need 3.3."""
    write(TARGETS)
    books = fill(tmp_path)
    with books.snapshot() as snapshot:
        fleet, a, b = snapshot.targets()
    assert (fleet.value, fleet.per_week) == (pytest.approx(0.8), pytest.approx(0.1))
    assert (fleet.needed_per_week, fleet.on_pace) == (pytest.approx(0.1 / 3), True)
    assert (a.is_met, a.on_pace) == (True, True)  # a holds all of what it holds
    assert (b.value, b.is_met, b.needed_per_week) == (pytest.approx(168), True, None)
    out = run("report", "--store", tmp_path / "books")[1]
    assert "Of 3 targets, 2 met, 1 at a pace that meets them." in out
    out = run("report", "--where", "team=b", "--store", tmp_path / "books")[1]
    assert "Of 1 target, 1 met" in out
    assert " of a" not in out.partition("Targets")[2].partition("moves:")[0]


def test_a_target_that_cannot_be_is_one_line(tmp_path: Path, write: Write) -> None:
    """Neither or both of the goals, and a metric that is none, are refused by name."""
    books = fill(tmp_path)
    write('[[target]]\nmetric = "utilisation"\nat_least = 0.5\ndue = 2027-01-01\n')
    with books.snapshot() as snapshot, pytest.raises(InputError, match="utilization"):
        snapshot.targets()
    write('[[target]]\nmetric = "utilization"\ndue = 2027-01-01\n')
    with pytest.raises(InputError, match="at_least"), books.snapshot() as snapshot:
        snapshot.targets()
