"""Prices of owned GPUs by the equations of `plan own`, and one reporting currency with exchange rates that the user gives."""

from pathlib import Path

import pytest
from tests.books.conftest import Write
from tests.ledger.fleets import HOUR, Row, add, batch

import loadfactor.settings.config
from loadfactor.base.errors import InputError, SourceError
from loadfactor.books.books import Books
from loadfactor.interfaces.pages.books import build_document
from loadfactor.planner.economics.ownership import OwnedServer, compute_owned_cost
from loadfactor.settings.config import settings

GOLDEN_PRICE = 1.8028433997750832
"""tco.per_gpu_hour of the golden values: the server of $300,000 with every default."""
OWNED = '[[owned]]\npool = "ours"\naccelerator = "h100-sxm"\nserver_price = 300_000\n'
DEVICES = "device_id,pool,accelerator,from_utc,to_utc\n"


def books_of(folder: Path, rows: str, **tables: str) -> Books:
    """Books of these devices, and of other tables as CSV."""
    folder.mkdir()
    for name, text in {"devices": DEVICES + rows, **tables}.items():
        (folder / f"{name}.csv").write_text(text)
    books = Books(folder / "store")
    books.add("tables", [folder])
    return books


TWO = "a,ours,h100-sxm,2026-01-31T20:00:00Z,2026-02-01T04:00:00Z\nb,theirs,h100-sxm,2026-01-31T20:00:00Z,2026-02-01T04:00:00Z\n"


@pytest.mark.long
def test_hours_of_an_owned_pool_cost_what_the_planner_says(tmp_path: Path, write: Write) -> None:
    """The price is that of an installed GPU-hour of the golden server; hours of other pools have none in this basis."""
    write(OWNED)
    books = books_of(tmp_path / "b", TWO)
    by_pool = {r.by["pool"]: r for r in books.show("cost", "pool")}
    assert by_pool["ours"].value == pytest.approx(8 * GOLDEN_PRICE, rel=1e-12)
    assert (by_pool["ours"].cost_basis, by_pool["theirs"].value) == ("owned", None)
    assert books.check().balance.holds


@pytest.mark.long
def test_without_owned_pools_nothing_is_otherwise(tmp_path: Path, write: Write) -> None:
    """The manifest's keys and the readings are those of books that never heard of owned pools."""
    write("")
    before = books_of(tmp_path / "b", TWO)
    kept, cost = before.store.manifest, before.show("cost")[0].value
    write(OWNED)
    assert Books(tmp_path / "b" / "store").show("cost")[0].cost_basis == "owned"
    write("")
    after = Books(tmp_path / "b" / "store")
    after.compact()
    assert (after.store.manifest.sources_key, after.show("cost")[0].value) == (kept.sources_key, cost)
    assert {f.name for f in after.store.manifest.of("ledger")} == {f.name for f in kept.of("ledger")}


@pytest.mark.long
def test_changed_settings_touch_the_hours_of_their_gpus_alone(tmp_path: Path, write: Write) -> None:
    """A reader answers with the new price at once; a writer books again the hours in which such a GPU was there, no others."""
    write(OWNED)
    later = "c,theirs,h100-sxm,2026-02-05T00:00:00Z,2026-02-05T02:00:00Z\n"
    books = books_of(tmp_path / "b", TWO + later)
    before = {f.name: f for f in books.store.manifest.of("ledger")}
    write(OWNED.replace("300_000", "600_000") + "staff_cost = 0\n")
    expected = compute_owned_cost(OwnedServer(600_000, staff_cost_per_year=0)).price_per_gpu_hour
    books = Books(tmp_path / "b" / "store")
    read = {r.by["pool"]: r.value for r in books.show("cost", "pool")}
    assert read["ours"] == pytest.approx(8 * expected)
    assert {f.name for f in books.store.manifest.of("ledger")} == set(before)
    books.compact()
    after = {f.name: f for f in books.store.manifest.of("ledger")}
    assert {before[name].day for name in before if name not in after} == {20484, 20485}
    assert [f.day for name, f in after.items() if name in before] == [20489]
    assert {r.by["pool"]: r.value for r in books.show("cost", "pool")} == read
    books.compact()
    assert set(after) == {f.name for f in books.store.manifest.of("ledger")}


@pytest.mark.long
def test_measured_energy_takes_the_place_of_the_assumed_load(tmp_path: Path, write: Write) -> None:
    """A complete month has the load of its mean power over full power, in whole percents; what follows it goes on with that."""
    samples = "device_id,from_utc,to_utc,sm_active_share,power_w\n"
    samples += "a,2026-01-31T20:00:00Z,2026-01-31T22:00:00Z,1,700\na,2026-01-31T22:00:00Z,2026-02-01T00:00:00Z,0,141\n"
    write(OWNED + "measured_load = true\n")
    books = books_of(tmp_path / "b", TWO, samples=samples)
    server = OwnedServer(300_000, load_share=0.6)  # (700 + 141) / 2 / 700, rounded
    expected = 8 * compute_owned_cost(server).price_per_gpu_hour
    (cost,) = books.show("cost", where={"pool": "ours"})
    assert cost.value == pytest.approx(expected, rel=1e-12)
    with books.snapshot() as snapshot:  # readers price as the writer did
        assert snapshot.show("cost", where={"pool": "ours"})[0].value == cost.value
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "devices.csv").write_text(DEVICES + "d,theirs,,2026-01-31T20:00:00Z,2026-02-01T04:00:00Z\n")
    kept = {f.name for f in books.store.manifest.of("ledger")}
    books.compact()
    assert {f.name for f in books.store.manifest.of("ledger")} == kept
    books.add("tables", [tmp_path / "more"])
    assert books.show("cost", where={"pool": "ours"})[0].value == cost.value


def test_books_without_such_gpus_are_priced_as_before(tmp_path: Path, write: Write) -> None:
    """A table of GPUs that these books do not know leaves them at the catalog's estimates."""
    write(OWNED.replace('"ours"', '"elsewhere"'))
    (cost,) = books_of(tmp_path / "b", TWO).show("cost")
    assert (cost.cost_basis, cost.coverage) == ("estimate", 1)


@pytest.mark.long
def test_a_foreign_currency_counts_by_its_rates(tmp_path: Path, write: Write) -> None:
    """Without one the price is unknown, and doctor says so; with one it is worth what the rate says."""
    write(OWNED + 'currency = "EUR"\n')
    books = books_of(tmp_path / "b", TWO)
    assert books.show("cost", where={"pool": "ours"})[0].value is None
    assert any("prices in EUR have no exchange rate to USD" in f.what for f in books.check().findings)
    rated = books_of(tmp_path / "c", TWO, exchange_rates="currency,rate\nEUR,1.5\n")
    assert rated.show("cost", where={"pool": "ours"})[0].value == pytest.approx(8 * GOLDEN_PRICE * 1.5)


def test_mistakes_are_one_line(tmp_path: Path, write: Write) -> None:
    """What is missing, what contradicts itself, what the catalog does not know, and tables of the same GPUs."""
    said = {
        '[[owned]]\npool = "x"\nserver_price = 3\n': "need gpus_per_server and server_kw; or name their accelerator",
        OWNED + OWNED: "two tables are of ours / h100-sxm; keep one",
        OWNED + "measured_load = true\ncolocation_price_per_kw_month = 100\n": "leave one of the two out",
        OWNED + "server_prise = 3\n": "server_price",
        OWNED + "pue = 0.5\n": "greater than or equal to 1",
    }
    for text, words in said.items():
        write(text)
        with pytest.raises(InputError, match="owned") as wrong:
            settings()
        assert words in str(wrong.value), text
    write('[[owned]]\naccelerator = "abacus"\nserver_price = 3\n')
    with pytest.raises(InputError, match="does not know abacus; give gpus_per_server and server_kw"):
        books_of(tmp_path / "b", TWO)


def test_a_gpu_has_the_price_of_its_most_specific_table(tmp_path: Path, write: Write) -> None:
    """Where several tables are of a GPU, its hours and cost stand in one of them; together they are the fleet's."""
    rows = TWO + "c,,a100-sxm-80gb,2026-01-31T20:00:00Z,2026-02-01T04:00:00Z\n"
    rows += "d,ours,a100-sxm-80gb,2026-01-31T20:00:00Z,2026-02-01T04:00:00Z\n"
    rest = "server_price = 80_000\ngpus_per_server = 8\nserver_kw = 6\n"
    write(
        f"[[owned]]\n{rest}" + OWNED + f'[[owned]]\npool = "ours"\n{rest.replace("80", "90")}'
        '[[owned]]\naccelerator = "h100-sxm"\nserver_price = 200_000\n'
    )
    books = books_of(tmp_path / "b", rows)
    owned = {one.label: one for one in books.owned()}
    assert {label: one.installed_gpu_hours for label, one in owned.items()} == {
        "all GPUs": 8, "ours / h100-sxm": 8, "ours": 8, "h100-sxm": 8,
    }  # fmt: skip
    for one in owned.values():
        assert one.cost == pytest.approx(8 * one.assumed.price_per_gpu_hour, rel=1e-12), one.label
    (cost,) = books.show("cost")
    assert cost.value == pytest.approx(sum(one.cost or 0 for one in owned.values()), rel=1e-12)


def test_two_names_of_one_model_are_two_tables_of_the_same_gpus(tmp_path: Path, write: Write) -> None:
    """Which the catalog knows; it is said in one line."""
    write(OWNED + OWNED.replace("h100-sxm", "NVIDIA H100 80GB HBM3"))
    with pytest.raises(InputError, match="are of the same GPUs; keep one"):
        books_of(tmp_path / "b", TWO)


START = 1_767_225_600_000


def books_of_currency(
    folder: Path, prices: list[Row], rates: list[Row] | None = None, currency: str | None = None
) -> Books:
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


@pytest.mark.long
def test_amounts_say_their_currency(tmp_path: Path) -> None:
    """Readings of money are in the currency of the books, others have none; it is kept with the books."""
    books_of_currency(tmp_path, [{"price_per_gpu_hour": 3.0}], currency="EUR")
    cost, each, hours = Books(tmp_path / "store").show(["cost", "cost_per_token", "paid_gpu_hours"])
    assert (cost.value, cost.unit, cost.currency, cost.cost_basis) == (12.0, "EUR", "EUR", "contracted")
    assert (each.unit, each.currency) == ("EUR per token", "EUR")
    assert (hours.unit, hours.currency, hours.cost_basis) == ("GPU-hours", None, None)


def test_another_currency_than_the_books_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting cannot change what the amounts of a store mean."""
    books_of_currency(tmp_path, [{"price_per_gpu_hour": 3.0}])
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
    books = books_of_currency(tmp_path, [{"price_per_gpu_hour": 2.0, "currency": "EUR"}], rates)
    (cost,) = books.show(["cost"])
    assert cost.value == pytest.approx(2 * 2.2 + 2.4)
    assert cost.coverage == pytest.approx(3 / 4)
    assert any("prices in EUR have no exchange rate to USD" in f.what for f in books.check().findings)


def test_an_unknown_price_is_not_replaced_by_a_less_specific_one(tmp_path: Path) -> None:
    """The GPU's own price counts, known or not; a price for all does not stand in for it."""
    prices = [{"price_per_gpu_hour": 1.0}, {"price_per_gpu_hour": 2.0, "currency": "GBP", "device_id": "g"}]
    (cost,) = books_of_currency(tmp_path, prices).show(["cost"])
    assert (cost.value, cost.coverage) == (None, 0.0)


@pytest.mark.long
def test_the_catalogs_estimates_are_in_dollars(tmp_path: Path) -> None:
    """In books kept in euros they are unknown until a rate is given."""
    (cost,) = books_of_currency(tmp_path / "none", [], currency="EUR").show(["cost"])
    assert (cost.value, cost.cost_basis) == (None, "estimate")
    rates = [{"currency": "USD", "rate": 0.9}]
    (cost,) = books_of_currency(tmp_path / "rate", [], rates, currency="EUR").show(["cost"])
    assert cost.value == pytest.approx(4 * 2.95 * 0.9)


def test_a_currency_is_three_capital_letters(tmp_path: Path) -> None:
    """Anything else stops the import."""
    with pytest.raises(SourceError, match=r"prices\.currency 'euro' is no currency; write three capital letters"):
        books_of_currency(tmp_path, [{"price_per_gpu_hour": 2.0, "currency": "euro"}])


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
        books_of_currency(tmp_path, [{"price_per_gpu_hour": 2.0}], [{"currency": "EUR", "rate": 0.0}])


def test_doctor_says_the_currency_of_the_books(tmp_path: Path) -> None:
    """The headline and the data of the check have the reporting currency, not dollars."""
    document = build_document(books_of_currency(tmp_path, [{"price_per_gpu_hour": 3.0}], currency="EUR"))
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
