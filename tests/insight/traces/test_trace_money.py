"""Traces of jobs that the books know."""

from pathlib import Path

import pytest

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.books.books import Books

ROOT = Path(__file__).resolve().parents[3]
TRACE = ROOT / "examples" / "trace.json"


def test_seconds_of_a_trace_become_money_at_the_price_of_the_job(tmp_path: Path) -> None:
    """A cause costs its GPU-seconds × the job's cost ÷ its held hours; for the job, its share of the hours in which it worked."""
    Books(tmp_path / "books").add("tables", [ROOT / "examples" / "october"])
    found = loadfactor.diagnose(trace=[TRACE], job="481776", store=tmp_path / "books").data
    finding, cost = found.findings[0], found.in_books.costs[0]
    books = loadfactor.open(tmp_path / "books")
    names = ("paid_gpu_hours", "busy_gpu_hours", "cost")
    shown = books.show(names, where={"job": "481776"})
    held, busy, paid = (shown.column(name)[0] for name in names)
    assert found.in_books.price_per_gpu_hour == pytest.approx(paid / held)
    assert cost.gpu_s == pytest.approx(0.09)  # three stretches of 30 ms in which the host fetched data
    assert cost.cost == pytest.approx(0.09 / 3600 * paid / held)
    assert cost.job_gpu_hours_high == pytest.approx(finding.saved_share_high * busy)
    assert cost.job_cost_high == pytest.approx(finding.saved_share_high * busy * paid / held)
    assert cost.job_cost_high <= paid


def test_a_trace_of_a_job_that_the_books_do_not_know_is_refused(tmp_path: Path) -> None:
    """The message says how to list jobs."""
    Books(tmp_path / "books").add("tables", [ROOT / "examples" / "october"])
    with pytest.raises(InputError, match="no job called 'nobody'"):
        loadfactor.diagnose(trace=[TRACE], job="nobody", store=tmp_path / "books")
