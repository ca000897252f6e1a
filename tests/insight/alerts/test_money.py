"""Is it told that a budget is spent or will be, and that a price ended, and only then?"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.insight.alerts.small_fleet import make_books
from tests.ledger.fleets import Tables

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.replay import replay
from loadfactor.insight.alerts.rules.money import MONEY
from loadfactor.settings.config import CHOSEN, choose_file, settings

DAY0 = 1_790_812_800_000  # 1 October 2026
BURN, ENDED = MONEY


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    before = CHOSEN.path
    yield
    CHOSEN.path = before
    settings.cache_clear()


def tables(days: int = 6, **price: object) -> Tables:
    """One GPU for some days, held by the team red, at 1 dollar an hour: 24 a day."""
    end = DAY0 + days * MS_PER_DAY
    return {
        "devices": [
            {
                "device_id": "g",
                "node": "n",
                "accelerator": "h100-sxm",
                "from_utc": DAY0,
                "to_utc": end,
                "known_from": "list",
            }
        ],
        "allocations": [{"job_id": "j", "device_id": "g", "team": "red", "from_utc": DAY0, "to_utc": end}],
        "prices": [
            {"accelerator": "h100-sxm", "basis": "contracted", "price_per_gpu_hour": 1.0, "currency": "USD", **price}
        ],
    }


def judge(folder: Path, of: Tables, rule: object, *budgets: str, span: tuple[int, int] | None = None) -> list[Alert]:
    file = folder / "loadfactor.toml"
    file.write_text("".join(f"[[budget]]\n{budget}\n" for budget in budgets))
    choose_file(file)
    return replay(make_books(folder, of), [rule], span)  # type: ignore[list-item]


def hours(at_ms: int | None) -> float | None:
    return None if at_ms is None else (at_ms - DAY0) / MS_PER_HOUR


def test_a_budget_that_will_not_last_is_told_when_two_days_are_complete(tmp_path: Path) -> None:
    """24 a day are 744 in October: over 600 and not over 800; a team without costs spends nothing."""
    (alert,) = judge(
        tmp_path, tables(), BURN, 'team = "red"\namount = 600', "amount = 800", 'team = "blue"\namount = 1'
    )
    assert (dict(alert.by), hours(alert.fired_ms), alert.value) == (
        {"budget": "red"},
        pytest.approx(48, abs=0.1),
        pytest.approx(1.24),
    )
    assert alert.evidence == ("8 % of 600.00 USD spent after 2 days of the month", "forecast 744.00 USD, 124 % of it")


def test_a_budget_that_is_spent_is_told_though_nothing_more_is_spent(tmp_path: Path) -> None:
    """30 are spent on the second day: told when that day is over."""
    (alert,) = judge(tmp_path, tables(), BURN, "amount = 30")
    assert hours(alert.fired_ms) == pytest.approx(48, abs=0.1)


def test_without_prices_nothing_is_known_of_a_budget(tmp_path: Path) -> None:
    """An unknown cost is not nothing, and not too much."""
    of = tables()
    of["prices"], of["devices"][0]["accelerator"] = [], None
    assert judge(tmp_path, of, BURN, "amount = 30") == []


def test_a_price_that_ends_is_told_while_its_gpu_is_there(tmp_path: Path) -> None:
    """The contract ends after three days, and the GPU stays."""
    at = DAY0 + 3 * MS_PER_DAY
    (alert,) = judge(tmp_path, tables(to_utc=at), ENDED)
    assert (dict(alert.by), hours(alert.start_ms), hours(alert.fired_ms)) == (
        {"price": "h100-sxm, contracted"}, 72, pytest.approx(72, abs=0.1),
    )  # fmt: skip
    assert alert.evidence[0].startswith("valid until 2026-10-04T00:00:00Z")


@pytest.mark.parametrize(
    "more",
    [
        {"accelerator": "h100-sxm", "basis": "contracted"},
        {"accelerator": None, "basis": "contracted"},  # of everything
        {"accelerator": "h100-sxm", "basis": "effective"},  # a better basis
    ],
)
def test_a_price_that_another_one_follows_is_no_alert(tmp_path: Path, more: dict[str, object]) -> None:
    """The next contract begins when the last one ends."""
    at = DAY0 + 3 * MS_PER_DAY
    of = tables(to_utc=at)
    of["prices"].append({"price_per_gpu_hour": 2.0, "currency": "USD", "from_utc": at, **more})
    assert judge(tmp_path, of, ENDED) == []


def test_a_price_that_ends_with_its_gpus_is_no_alert(tmp_path: Path) -> None:
    """What is no longer there needs no price."""
    assert judge(tmp_path, tables(days=3, to_utc=DAY0 + 3 * MS_PER_DAY), ENDED) == []
