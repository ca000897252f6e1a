"""The interval between checkpoints as a lever: lost work above what the best interval loses."""

from pathlib import Path

import pytest
from tests.books.test_waterfall import END, START, configured, made, make_books, tokens_at

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.insight.savings import find_savings
from loadfactor.planner.hardware.checkpoint import plan_checkpoints

__all__ = ["configured"]


def test_work_is_lost_less_at_the_best_interval(tmp_path: Path) -> None:
    """A job of 10 h that loses a fifth of its work in two restarts; its checkpoints take 12 s.

    Its losses are 5 h apart: what Daly's interval loses of 10 GPU-hours is not saved, the rest of the lost work is.
    """
    half = (START + END) // 2
    lost = [
        {**made("train", tokens_at(0.04), kept=False), "from_utc": at, "to_utc": at + MS_PER_HOUR, "cause": "restart"}
        for at in (START, half)
    ]
    stalls = [{"job_id": "train", "from_utc": half, "to_utc": half + 12_000, "kind": "checkpoint"}]
    books: Books = make_books(tmp_path, [made("train", tokens_at(0.32)), *lost], stalls)
    fall = books.waterfall().all.gpu_hours
    (lever,) = [of for of in find_savings(books).levers if of.lever == "checkpoint_oftener"]
    plan = plan_checkpoints(12.0, 5 * 3600.0, 0.0)
    assert fall.lost_work > 0
    assert lever.gpu_hours == pytest.approx(fall.lost_work - 10 * (1 - plan.efficiency_share))
    assert "lost work 2 times" in lever.evidence[0]
