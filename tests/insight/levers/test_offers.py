"""Levers of price on small fleets, checked by hand: spot for jobs with checkpoints, and a committed base under the demand."""

from pathlib import Path

import pytest
from tests.insight.levers.fleet import START, held, keep
from tests.ledger.fleets import HOUR, MINUTE

from loadfactor.books.books import Books
from loadfactor.insight.levers.lever import PriceSaving
from loadfactor.insight.levers.offers import PriceOffers
from loadfactor.insight.savings import find_savings
from loadfactor.planner.economics.renting import SpotOffer, cost_spot

HOURS = 10


def make_books(folder: Path) -> Books:
    """Two GPUs: one held all the time by a job that reports checkpoints of 60 s, the other for four of ten hours by one without."""
    return keep(
        folder,
        {"a": "n", "b": "n"},
        HOURS,
        [*held("safe", ["a"], 0, HOURS), *held("short", ["b"], 0, 4)],
        {"a": [(0, HOURS, 1.0)], "b": [(0, 4, 1.0)]},
        job_sections=[
            {
                "job_id": "safe",
                "kind": "checkpoint",
                "from_utc": START + hour * HOUR,
                "to_utc": START + hour * HOUR + MINUTE,
            }
            for hour in range(1, HOURS)
        ],
    )


def find(books: Books, offers: PriceOffers) -> dict[str, PriceSaving]:
    savings = find_savings(books, offers=offers)
    assert savings.saved_at_most == sum(lever.saved or 0 for lever in savings.levers)  # prices are apart
    return {lever.lever: lever for lever in savings.price_levers}


def test_spot_is_for_jobs_with_checkpoints(tmp_path: Path) -> None:
    """Ten hours at 2 dollars cost the spot price over the share of kept work; the job without checkpoints stays."""
    books = make_books(tmp_path)
    found = find(books, PriceOffers(1.0, 12.0))
    useful = cost_spot(SpotOffer(1.0, 12.0, 60.0)).cost_per_useful_gpu_hour
    assert {*found} == {"spot"}
    assert found["spot"].saved == pytest.approx(10 * (2 - useful))
    assert found["spot"].gpu_hours == pytest.approx(10)
    assert find(books, PriceOffers(1.95, 1.0)) == {}  # interruptions cost more than the lower price saves
    assert find(books, PriceOffers()) == {}


def test_the_base_is_committed_and_the_peak_rented(tmp_path: Path) -> None:
    """At 1.5 of 2 dollars one GPU is worth a commitment, used all the time; the other, 40 % of the time, is not, but at 0.7 is."""
    books = make_books(tmp_path)
    found = find(books, PriceOffers(committed_per_gpu_hour=1.5))
    assert found["committed_base"].saved == pytest.approx(10 * 0.5)
    assert found["committed_base"].gpu_hours == pytest.approx(10)
    found = find(books, PriceOffers(committed_per_gpu_hour=0.7))
    assert found["committed_base"].saved == pytest.approx(14 * 2 - 20 * 0.7)
    assert find(books, PriceOffers(committed_per_gpu_hour=2.1)) == {}


def test_the_base_lies_under_what_spot_leaves(tmp_path: Path) -> None:
    """Where spot takes ten of fourteen hours, the base is chosen for the rest, and nothing is saved twice."""
    found = find(make_books(tmp_path), PriceOffers(1.0, 12.0, 0.1))
    assert {*found} == {"spot", "committed_base"}
    assert found["spot"].saved + found["committed_base"].saved < 14 * 2
