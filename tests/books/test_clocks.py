"""Clocks of a scheduler and of samples that differ, told from GPUs that work before their jobs begin or after these have ended."""

from pathlib import Path

import pytest
from tests.books.test_joins import find, hour
from tests.ledger.fleets import Row, add, batches, full

from loadfactor import Books

STEP_S = 30


def make_books(folder: Path, shift_s: float, known_from: str | None = None, busy_between: bool = False) -> Books:
    """A GPU that a job holds for 18 minutes of each of eight hours; samples show its work by so much later."""
    jobs = [
        {
            "job_id": f"j{n}",
            "device_id": "g",
            "from_utc": hour(n + 0.5),
            "to_utc": hour(n + 0.8),
            "known_from": known_from,
        }
        for n in range(8)
    ]
    samples: list[Row] = []
    for at in range(hour(0) + STEP_S * 1000, hour(9), STEP_S * 1000):
        true = at - shift_s * 1000 - STEP_S * 500
        works = busy_between or any(job["from_utc"] + 5000 < true < job["to_utc"] for job in jobs)  # type: ignore[operator]
        samples.append({"device_id": "g", "source": "s", "to_utc": at, "busy_share": 0.9 * works})
    device = {"device_id": "g", "node": "n1", "from_utc": hour(0), "to_utc": hour(9)}
    books = Books(folder / "books")
    tables = full({"devices": [device], "allocations": jobs, "samples": samples})
    add(books, batches(tables), "all", folder, step_s=float(STEP_S))
    return books


@pytest.mark.parametrize(
    ("shift_s", "said"),
    [(240, "after their jobs have ended"), (-240, "before their jobs begin"), (720, "after their jobs have ended")],
)
def test_clocks_that_differ_are_measured(tmp_path: Path, shift_s: float, said: str) -> None:
    """Work of every job lies four minutes, or twelve, to one side: found, with the lower bound, on the right side."""
    found = find(make_books(tmp_path, shift_s), "nodes whose clocks differ from the scheduler's: on 1 (n1)")
    assert found is not None
    assert said in found.what
    words = found.what.split(" s or more")[0].split()
    assert 0.75 * abs(shift_s) <= float(words[-1]) <= abs(shift_s)
    assert found.gpu_hours is not None
    assert "chronyc" in found.do


@pytest.mark.parametrize(
    ("shift_s", "known_from", "busy_between"),
    [(0, None, False), (20, None, False), (-20, None, False), (240, "labels", False), (0, None, True)],
)
def test_clocks_that_agree_are_no_finding(
    tmp_path: Path, shift_s: float, known_from: str | None, busy_between: bool
) -> None:
    """Nor samples that come a little late, holders that samples themselves name, or a GPU that works all the time."""
    assert find(make_books(tmp_path, shift_s, known_from, busy_between), "nodes whose clocks") is None
