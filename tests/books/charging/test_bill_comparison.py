"""What bills and the books disagree about: each kind of difference with its amount, and nothing where they agree."""

from pathlib import Path

import pytest
from tests.books.charging.gpu_bills import line
from tests.books.charging.test_billed_prices import bill, make_books

from loadfactor.base.errors import InputError
from loadfactor.books.bill_comparison import HOURS, NEVER_BILLED, NEVER_SEEN, PRICE, UNSAID
from loadfactor.books.books import Books


def test_every_difference_has_its_amount(tmp_path: Path) -> None:
    """Billed and never seen, seen and never billed, hours, prices and unknown types are told apart, the largest amount first."""
    prices = [{"basis": "contracted", "price_per_gpu_hour": 1.0}]
    books = make_books(
        tmp_path, {"same": (8, 0, 24), "late": (8, 4, 24), "dear": (8, 0, 24), "own": (4, 0, 24)}, {"prices": prices}
    )
    lines = [line("same", hour, 1, "8") for hour in range(24)]
    lines += [line("late", 0, 24, "192"), line("dear", 0, 24, "240"), line("ghost", 0, 24, "500")]
    lines += [line("new", 0, 24, "70", kind="p99.48xlarge"), line("late", 0, 24, "9", kind="m5.large")]
    lines += [
        line("same", 0, 24, "99", CommitmentDiscountStatus="Unused"),
        line("same", 0, 24, "9", ChargeCategory="Tax"),
    ]
    bill(books, tmp_path, lines)
    found = books.compare_bills()
    assert [(d.kind, d.of, d.amount and round(d.amount, 9)) for d in found.differences] == [
        (NEVER_SEEN, "ghost", 500),
        (NEVER_BILLED, "own", 4 * 24 * 1.0),
        (UNSAID, "new", 70),
        (PRICE, "dear", 240 - 192),
        (HOURS, "late", 8 * 4 * 1.0),
    ]
    assert found.billed_gpu_hours == pytest.approx(4 * 192)
    assert found.seen_gpu_hours == pytest.approx(192 + 160 + 192 + 96)
    said = {f.what.split(":")[0]: (f.gpu_hours, f.cost) for f in books.check().findings}
    assert said[NEVER_SEEN] == (pytest.approx(192), pytest.approx(500))
    assert said[HOURS] == (pytest.approx(32), pytest.approx(32))
    assert said[PRICE] == (pytest.approx(192), pytest.approx(48))


def test_books_without_bills_have_nothing_to_compare(tmp_path: Path) -> None:
    """Without a bill, or one of another time, a line says what is missing; doctor has nothing to say."""
    books = make_books(tmp_path, {"n": (8, 0, 24)})
    with pytest.raises(InputError, match="hold no bills"):
        books.compare_bills()
    bill(books, tmp_path, [line("n", 100, 24, "8")])
    with pytest.raises(InputError, match="no bill charges for GPUs in time"):
        Books(tmp_path / "store").compare_bills()
    assert not any("billed" in f.what for f in books.check().findings)
