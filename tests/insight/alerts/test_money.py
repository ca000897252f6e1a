"""Do alerts fire when a budget is spent or will be, and when a price ended, and only then?"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.insight.alerts.small_fleet import make_books
from tests.ledger.fleets import Row, Tables

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.judge import replay
from loadfactor.insight.alerts.rules.money import MONEY
from loadfactor.settings.config import CHOSEN, choose_file, settings

DAY0 = 1_790_812_800_000  # 1 October 2026
BURN, ENDED = MONEY
AT = DAY0 + 2 * MS_PER_DAY
"""When contracts end."""
FOLLOWED: dict[str, Row] = {
    "a100-sxm": {"accelerator": "a100-sxm", "basis": "contracted"},
    "l4": {"accelerator": "l4", "basis": "effective"},  # a better basis
}


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    before = CHOSEN.path
    yield
    CHOSEN.path = before
    settings.cache_clear()


def make_tables(days: int = 3, accelerator: str = "h100-sxm", **price: object) -> Tables:
    """One GPU for some days, held by the team red, at 1 dollar an hour: 24 a day."""
    gpu, end = f"g of {accelerator}", DAY0 + days * MS_PER_DAY
    listed = {"node": "n", "accelerator": accelerator, "known_from": "list"}
    return {
        "devices": [{"device_id": gpu, "from_utc": DAY0, "to_utc": end, **listed}],
        "allocations": [{"job_id": "j", "device_id": gpu, "team": "red", "from_utc": DAY0, "to_utc": end}],
        "prices": [
            {"accelerator": accelerator, "basis": "contracted", "price_per_gpu_hour": 1.0, "currency": "USD", **price}
        ],
    }


@pytest.fixture(scope="module")
def red_books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    """Three days of one GPU of the team red."""
    return make_books(tmp_path_factory.mktemp("red"), make_tables())


def judge_budgets(folder: Path, books: Books, *budgets: str) -> list[Alert]:
    """The alerts of budgets, as settings give them."""
    file = folder / "loadfactor.toml"
    file.write_text("".join(f"[[budget]]\n{budget}\n" for budget in budgets))
    choose_file(file)
    return replay(books, [BURN])


def hours(at_ms: int | None) -> float | None:
    return None if at_ms is None else (at_ms - DAY0) / MS_PER_HOUR


@pytest.mark.long
def test_a_budget_that_will_not_last_fires_when_two_days_are_complete(tmp_path: Path, red_books: Books) -> None:
    """24 a day are 744 in October: over 600 and not over 800; a team without costs spends nothing."""
    (alert,) = judge_budgets(
        tmp_path, red_books, 'team = "red"\namount = 600', "amount = 800", 'team = "blue"\namount = 1'
    )
    assert (dict(alert.by), hours(alert.fired_ms), alert.value) == (
        {"budget": "red"}, pytest.approx(48, abs=0.1), pytest.approx(1.24),
    )  # fmt: skip
    assert alert.evidence == ("8 % of 600.00 USD spent after 2 days of the month", "forecast 744.00 USD, 124 % of it")


@pytest.mark.long
def test_a_budget_that_is_spent_fires_though_nothing_more_is_spent(tmp_path: Path, red_books: Books) -> None:
    """30 are spent on the second day: it fires when that day is over."""
    (alert,) = judge_budgets(tmp_path, red_books, "amount = 30")
    assert hours(alert.fired_ms) == pytest.approx(48, abs=0.1)


@pytest.mark.long
def test_without_prices_nothing_is_known_of_a_budget(tmp_path: Path) -> None:
    """An unknown cost is not nothing, and not too much."""
    tables = make_tables()
    tables["prices"], tables["devices"][0]["accelerator"] = [], None
    assert judge_budgets(tmp_path, make_books(tmp_path, tables), "amount = 30") == []


def test_a_price_that_ends_fires_while_its_gpu_is_there_and_nothing_follows(tmp_path: Path) -> None:
    """A contract ends after two days, and the GPU stays.

    No alert is one that another price follows, of a basis as good or better, or one that ends with its GPUs.
    """
    fleets = [
        make_tables(to_utc=AT),
        make_tables(2, "a10", to_utc=AT),
        *(make_tables(3, of, to_utc=AT) for of in FOLLOWED),
    ]
    tables = {name: [row for fleet in fleets for row in fleet[name]] for name in fleets[0]}
    tables["prices"] += [
        {"price_per_gpu_hour": 2.0, "currency": "USD", "from_utc": AT, **row} for row in FOLLOWED.values()
    ]
    (alert,) = replay(make_books(tmp_path, tables), [ENDED])
    assert (dict(alert.by), hours(alert.start_ms), hours(alert.fired_ms)) == (
        {"price": "h100-sxm, contracted"}, 48, pytest.approx(48, abs=0.1),
    )  # fmt: skip
    assert alert.evidence[0].startswith("valid until 2026-10-03T00:00:00Z")


def test_a_price_of_everything_follows_one_of_an_accelerator(tmp_path: Path) -> None:
    """The next contract begins when the last one ends, and is of all GPUs."""
    tables = make_tables(to_utc=AT)
    tables["prices"].append({"price_per_gpu_hour": 2.0, "currency": "USD", "from_utc": AT, "basis": "contracted"})
    assert replay(make_books(tmp_path, tables), [ENDED]) == []
