"""What became of levers: work per unit of money before and after, beside what was promised."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from tests.insight.levers.fleet import at, held, keep

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.insight.savings import follow_levers
from loadfactor.settings.money import DoneLever

DONE = date(2026, 1, 3)
"""Two days after the books begin."""


def two_halves(folder: Path, before: float, after: float, tokens: tuple[float, float] | None = None) -> Books:
    """Four days of a GPU at 2 dollars: activity, and perhaps tokens, of the first two days and of the last two."""
    progress = [
        {
            "job_id": "j",
            "unit": "train_token",
            "amount": amount,
            "from_utc": at(48 * n),
            "to_utc": at(48 * n + 48),
            "kept": True,
        }
        for n, amount in enumerate(tokens or ())
    ]
    activity = {"a": [(0, 48, before), (48, 96, after)]}
    return keep(folder, {"a": "n1"}, 96, held("j", ["a"], 0, 96, team="t"), activity, progress=progress)


def test_a_lever_that_did_nothing_is_told(tmp_path: Path) -> None:
    """With the same work before and after nothing was saved, whatever was promised."""
    (found,) = follow_levers(
        two_halves(tmp_path, 0.5, 0.5), [DoneLever(lever="reclaim_idle", done=DONE, promised=Decimal(500))]
    )
    assert found.verdict.startswith("did nothing")
    assert found.saved_per_month == pytest.approx(0.0)
    assert found.promised_per_month == 500.0
    assert found.days == 2.0


@pytest.mark.parametrize("lever", ["larger_batch", "mixed_precision", "spot", "committed_base"])
def test_levers_of_diagnoses_and_of_prices_are_followed_up(tmp_path: Path, lever: str) -> None:
    """Every name that savings prints can be named as done, and did nothing where the work for the same money stayed the same."""
    (found,) = follow_levers(two_halves(tmp_path, 0.5, 0.5), [DoneLever(lever=lever, done=DONE)])
    assert found.verdict.startswith("did nothing")


def test_saved_is_what_the_work_would_have_cost_before(tmp_path: Path) -> None:
    """Half as much work again for $96: it would have cost $144, so $48 were saved, $730 a month, half of what was promised."""
    (found,) = follow_levers(
        two_halves(tmp_path, 0.4, 0.6), [DoneLever(lever="reclaim_idle", done=DONE, promised=Decimal(1460))]
    )
    assert found.saved_per_month == pytest.approx(48 * 730 / 48)
    assert found.judged_by == "effective GPU-hour"
    assert found.verdict == "works: 50.0% more effective GPU-hour for the same money, 50% of what was promised"


def test_work_counts_and_not_utilization(tmp_path: Path) -> None:
    """Activity rose and tokens fell: tokens are what was wanted, so it became worse."""
    books = two_halves(tmp_path, 0.4, 0.8, (1e6, 0.9e6))
    (found,) = follow_levers(books, [DoneLever(lever="cap_retries", done=DONE, team="t")])
    assert found.judged_by == "train_token"
    assert found.verdict.startswith("made it worse")
    assert {of.unit: round(of.change, 3) for of in found.work} == {"train_token": -0.1, "effective GPU-hour": 1.0}


def test_too_little_is_known_of_yesterday(tmp_path: Path) -> None:
    """Less than a day on one side tells nothing, and a mistyped lever gets the nearest name."""
    books = two_halves(tmp_path, 0.4, 0.6)
    (found,) = follow_levers(books, [DoneLever(lever="cap_retries", done=date(2026, 1, 5))])
    assert (found.saved_per_month, found.verdict[:14]) == (None, "cannot be told")
    with pytest.raises(InputError, match="reclaim_idle"):
        follow_levers(books, [DoneLever(lever="reclaim_idel", done=DONE)])
