"""Money in the books: one reporting currency, foreign prices only through exchange rates that the user gives."""

from pathlib import Path

import pytest
from tests.ledger.fleets import HOUR, Row, add, batch

import loadfactor.settings.config
from loadfactor.base.errors import InputError, SourceError
from loadfactor.books.books import Books
from loadfactor.interfaces.pages.books import build_document

START = 1_767_225_600_000


def books_of(folder: Path, prices: list[Row], rates: list[Row] | None = None, currency: str | None = None) -> Books:
    """One H100 for four hours."""
    folder.mkdir(exist_ok=True)
    books = Books(folder / "store", currency=currency)
    time = {"from_utc": START, "to_utc": START + 4 * HOUR}
    tables = {
        "devices": [{"device_id": "g", "accelerator": "h100-sxm", **time}],
        "prices": [{"basis": "contracted", **price} for price in prices],
        "exchange_rates": rates or [],
    }
    add(books, [batch(name, rows) for name, rows in tables.items() if rows], "all", folder)
    return books


def test_amounts_say_their_currency(tmp_path: Path) -> None:
    """Readings of money are in the currency of the books, others have none; it is kept with the books."""
    books_of(tmp_path, [{"price_per_gpu_hour": 3.0}], currency="EUR")
    cost, each, hours = Books(tmp_path / "store").show(["cost", "cost_per_token", "paid_gpu_hours"])
    assert (cost.value, cost.unit, cost.currency, cost.cost_basis) == (12.0, "EUR", "EUR", "contracted")
    assert (each.unit, each.currency) == ("EUR per token", "EUR")
    assert (hours.unit, hours.currency, hours.cost_basis) == ("GPU-hours", None, None)


def test_another_currency_than_the_books_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting cannot change what the amounts of a store mean."""
    books_of(tmp_path, [{"price_per_gpu_hour": 3.0}])
    monkeypatch.setenv("LOADFACTOR_CURRENCY", "EUR")
    loadfactor.settings.config.settings.cache_clear()
    with pytest.raises(InputError, match="kept in USD, not in EUR"):
        Books(tmp_path / "store")
    monkeypatch.undo()
    loadfactor.settings.config.settings.cache_clear()


def test_foreign_prices_are_worth_what_the_rate_of_the_time_says(tmp_path: Path) -> None:
    """A rate holds until the next one; before the first the price is unknown, and coverage and doctor say so."""
    rates = [
        {"currency": "EUR", "from_utc": START + HOUR, "rate": 1.1},
        {"currency": "EUR", "from_utc": START + 3 * HOUR, "rate": 1.2},
    ]
    books = books_of(tmp_path, [{"price_per_gpu_hour": 2.0, "currency": "EUR"}], rates)
    (cost,) = books.show(["cost"])
    assert cost.value == pytest.approx(2 * 2.2 + 2.4)
    assert cost.coverage == pytest.approx(3 / 4)
    assert any("prices in EUR have no exchange rate to USD" in f.what for f in books.check().findings)


def test_an_unknown_price_is_not_replaced_by_a_less_specific_one(tmp_path: Path) -> None:
    """The GPU's own price counts, known or not; a price for all does not stand in for it."""
    prices = [{"price_per_gpu_hour": 1.0}, {"price_per_gpu_hour": 2.0, "currency": "GBP", "device_id": "g"}]
    (cost,) = books_of(tmp_path, prices).show(["cost"])
    assert (cost.value, cost.coverage) == (None, 0.0)


def test_the_catalogs_estimates_are_in_dollars(tmp_path: Path) -> None:
    """In books kept in euros they are unknown until a rate is given."""
    (cost,) = books_of(tmp_path / "none", [], currency="EUR").show(["cost"])
    assert (cost.value, cost.cost_basis) == (None, "estimate")
    rates = [{"currency": "USD", "rate": 0.9}]
    (cost,) = books_of(tmp_path / "rate", [], rates, currency="EUR").show(["cost"])
    assert cost.value == pytest.approx(4 * 2.95 * 0.9)


def test_a_currency_is_three_capital_letters(tmp_path: Path) -> None:
    """Anything else stops the import."""
    with pytest.raises(SourceError, match=r"prices\.currency 'euro' is no currency; write three capital letters"):
        books_of(tmp_path, [{"price_per_gpu_hour": 2.0, "currency": "euro"}])


def test_prices_may_come_first(tmp_path: Path) -> None:
    """A store of prices alone covers no time and says so; what comes later is priced."""
    books = Books(tmp_path / "store")
    add(books, [batch("prices", [{"basis": "contracted", "price_per_gpu_hour": 2.0}])], "prices", tmp_path)
    with pytest.raises(InputError, match="hold prices and no GPUs yet"):
        books.show(["cost"])
    add(books, [batch("devices", [{"device_id": "g", "from_utc": START, "to_utc": START + HOUR}])], "devices", tmp_path)
    assert books.show(["cost"])[0].value == 2.0


def test_a_rate_is_above_zero(tmp_path: Path) -> None:
    """A rate of 0 would make bills vanish; what is not known is left out."""
    with pytest.raises(SourceError, match=r"rate 0\.0 is not above 0"):
        books_of(tmp_path, [{"price_per_gpu_hour": 2.0}], [{"currency": "EUR", "rate": 0.0}])


def test_doctor_says_the_currency_of_the_books(tmp_path: Path) -> None:
    """The headline and the data of the check have the reporting currency, not dollars."""
    document = build_document(books_of(tmp_path, [{"price_per_gpu_hour": 3.0}], currency="EUR"))
    assert "€12.00 of €12.00" in document.headline
    assert document.data.currency == "EUR"


def test_a_setting_that_is_no_currency_is_refused_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three capital letters are asked for, no pattern is shown."""
    monkeypatch.setenv("LOADFACTOR_CURRENCY", "eur")
    loadfactor.settings.config.settings.cache_clear()
    with pytest.raises(InputError, match="'eur' is no currency; write three capital letters, like EUR"):
        loadfactor.settings.config.settings()
    monkeypatch.undo()
    loadfactor.settings.config.settings.cache_clear()
