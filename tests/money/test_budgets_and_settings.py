"""Budgets: pace, forecast, thresholds and unusual days; and what loadfactor.toml says of money."""

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import InputError
from loadfactor.money.spending import (
    BudgetPeriod,
    BudgetStatus,
    DailySpending,
    DaySpend,
    find_anomalies,
    find_period,
    follow_budget,
    forecast_spend,
    robust_z,
)
from loadfactor.settings.config import Settings, read_settings
from loadfactor.settings.money import Budget

SETTINGS = settings(max_examples=100, deadline=None, derandomize=True, database=None)
JUNE = BudgetPeriod(date(2026, 6, 1), date(2026, 6, 30))  # begins on a Monday


def june(day: int) -> date:
    """A day of June; of May where it is 0 or less."""
    return date(2026, 6, 1) + timedelta(days=day - 1)


def spend(amounts: dict[int, int], fixed: dict[int, int] | None = None, through: int = 30) -> DailySpending:
    """Spending by day of June, complete through a day."""
    days = [DaySpend(june(day), Decimal(amount)) for day, amount in amounts.items()]
    days += [DaySpend(june(day), Decimal(0), Decimal(amount)) for day, amount in (fixed or {}).items()]
    return DailySpending(days, june(through))


def follow(spending: DailySpending, amount: int = 12_000, fixed_to_come: int = 0) -> BudgetStatus:
    """Where a budget of June stands."""
    return follow_budget(Budget(amount=Decimal(amount)), spending, JUNE, Decimal(fixed_to_come))


def test_a_commitment_booked_on_the_first_day_is_not_carried_on() -> None:
    """Published: 3,000 fixed and 3,000 variable in 12 of 30 days come to 10,500, not 15,000; the burn rate is 1.25."""
    status = follow(spend(dict.fromkeys(range(1, 13), 250), {1: 3000}, through=12))
    assert (status.spent, status.left, status.burn_rate) == (6000, 6000, Decimal("1.25"))
    assert status.forecast is not None
    assert (status.forecast.fixed, status.forecast.variable, status.forecast.total) == (3000, 7500, 10_500)
    thresholds = [(t.percent, t.reached_on, t.expected_on) for t in status.thresholds]
    assert thresholds == [(50, june(12), None), (80, None, june(27)), (100, None, None)]


def test_days_to_come_cost_what_their_weekday_costs() -> None:
    """A fleet that rests at weekends is not forecast at its rate of working days, whatever one day cost by accident."""
    working = {day: 100 if june(day).weekday() < 5 else 10 for day in range(-27, 13)}
    assert june(12).weekday() == 4
    june_workdays = sum(june(day).weekday() < 5 for day in range(1, 31))
    forecast = forecast_spend(spend(working | {8: 5000}, through=12), JUNE)
    assert forecast is not None
    assert forecast.method == "by weekday"
    assert forecast.total == 100 * june_workdays + 10 * (30 - june_workdays) + 4900


def test_few_days_are_carried_on_at_their_rate() -> None:
    """With too few days to know weekdays by, days to come cost the mean of those that were; with none, nothing is forecast."""
    forecast = forecast_spend(spend({1: 10}, through=1), JUNE)
    assert forecast is not None
    assert (forecast.method, forecast.total) == ("run rate", 300)
    assert forecast_spend(spend({1: 10}, through=0), JUNE) is None
    status = follow(spend({1: 10}, through=0))
    assert (status.spent, status.burn_rate, status.complete_days) == (10, None, 0)
    assert status.thresholds[0].expected_on is None


def test_an_incomplete_day_lowers_no_rate() -> None:
    """What an incomplete day lacks is not taken for savings, and what it has cost beyond the usual counts at once."""
    whole = dict.fromkeys(range(1, 15), 100)
    low, high = (forecast_spend(spend(whole | {15: today}, through=14), JUNE) for today in (20, 700))
    assert low is not None
    assert high is not None
    assert (low.total, high.total) == (3000, 3600)
    assert follow(spend(whole | {15: 20}, through=14), 3000).burn_rate == 1
    assert find_anomalies(spend(whole | {15: 5000}, through=14), JUNE, Decimal(0)) == ()


def test_a_period_that_is_over_is_what_was_spent() -> None:
    """After its last complete day a forecast is the sum; fixed charges still to come are added and may pass a threshold."""
    spending = spend({1: 100, 30: 50}, {2: 7}, through=40)
    forecast = forecast_spend(spending, JUNE)
    assert forecast is not None
    assert (forecast.method, forecast.total, forecast.days) == ("complete", 157, ())
    status = follow(spending, amount=1000, fixed_to_come=800)
    thresholds = [(t.reached_on, t.expected_on) for t in status.thresholds]
    assert thresholds == [(None, june(30)), (None, june(30)), (None, None)]


def test_unusual_days_are_judged_by_days_like_them() -> None:
    """The published z of 40.5; a rise on a day of a kind that always costs much is none; nor is one too small to matter."""
    earlier = [Decimal(x) for x in (100, 102, 98, 101, 99, 100)]
    assert round(robust_z(Decimal(160), earlier) or 0, 1) == Decimal("40.5")
    mondays = {day: (500 if june(day).weekday() == 0 else 100) + day % 3 for day in range(-55, 31)}
    assert find_anomalies(spend(mondays), JUNE, Decimal(10)) == ()
    found = find_anomalies(spend(mondays | {9: 160}), JUNE, Decimal(10))
    assert [(a.day, a.usual, a.impact, a.basis) for a in found] == [(june(9), 101, 59, "same weekday")]
    assert find_anomalies(spend(mondays | {9: 160}), JUNE, Decimal(60)) == ()


def test_days_that_were_all_alike_are_compared_by_their_change() -> None:
    """With no deviation to compare with, half as much again is unusual; after days that cost nothing, any cost that matters is."""
    same = dict.fromkeys(range(-27, 31), 100)
    (found,) = find_anomalies(spend(same | {10: 150}), JUNE, Decimal(1))
    assert (found.day, found.robust_z, found.change_share) == (june(10), None, Decimal("0.5"))
    assert find_anomalies(spend(same | {10: 149}), JUNE, Decimal(1)) == ()
    (first,) = find_anomalies(spend({-27: 0, 10: 30}), JUNE, Decimal(30))
    assert (first.day, first.change_share) == (june(10), None)


def test_a_day_without_a_past_is_not_judged() -> None:
    """Fewer than four earlier days like it say nothing."""
    assert find_anomalies(spend({1: 1, 2: 1, 3: 1, 4: 900}), JUNE, Decimal(0)) == ()
    (found,) = find_anomalies(spend({1: 1, 2: 1, 3: 1, 4: 1, 5: 900}), JUNE, Decimal(0))
    assert (found.day, found.basis) == (june(5), "workdays")


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        ("month", date(2028, 2, 1), date(2028, 2, 29)),
        ("quarter", date(2028, 1, 1), date(2028, 3, 31)),
        ("year", date(2028, 1, 1), date(2028, 12, 31)),
    ],
)
def test_periods(kind: str, first: date, last: date) -> None:
    """Months, quarters and years begin and end with the calendar's, and every day of one lies in it."""
    for day in (first, last, date(2028, 2, 10)):
        assert find_period(day, kind) == BudgetPeriod(first, last)  # type: ignore[arg-type]
        assert day in BudgetPeriod(first, last)
    assert find_period(date(2027, 12, 31), "quarter") == BudgetPeriod(date(2027, 10, 1), date(2027, 12, 31))


DAYS = st.dictionaries(st.integers(-60, 35), st.tuples(st.integers(-50, 500), st.integers(0, 500)), max_size=60)


@SETTINGS
@given(DAYS, st.integers(-5, 35))
def test_what_must_hold_of_any_spending(amounts: dict[int, tuple[int, int]], through: int) -> None:
    """Spent is the sum of charges; the forecast holds all that is booked as fixed, and each day to come once; order is nothing."""
    days = [DaySpend(june(day), Decimal(variable), Decimal(fixed)) for day, (variable, fixed) in amounts.items()]
    status = follow(DailySpending(days, june(through)), 1000)
    assert status == follow(DailySpending(reversed(days), june(through)), 1000)
    inside = [pair for day, pair in amounts.items() if 1 <= day <= 30]
    assert status.spent == sum(sum(pair) for pair in inside)
    if status.forecast:
        assert status.forecast.fixed == sum(fixed for _, fixed in inside)
        assert [day for day, _ in status.forecast.days] == [june(day) for day in range(max(1, through + 1), 31)]
        complete = sum(variable for day, (variable, _) in amounts.items() if 1 <= day <= min(30, through))
        assert status.forecast.variable == complete + sum(amount for _, amount in status.forecast.days)
    for threshold in status.thresholds:
        assert not (threshold.reached_on and threshold.expected_on)
    assert all(anomaly.day <= june(through) for anomaly in status.anomalies)


def test_days_before_the_books_begin_are_not_taken_for_cheap_ones() -> None:
    """Books that begin on the 15th at 50 a day forecast 50 for each day to come; as if from the 1st on it would be less."""
    days = [DaySpend(date(2026, 6, 15), Decimal(50))]
    begun = forecast_spend(DailySpending(days, date(2026, 6, 15), date(2026, 6, 15)), JUNE)
    as_if = forecast_spend(DailySpending(days, date(2026, 6, 15)), JUNE)
    assert begun is not None
    assert as_if is not None
    assert (begun.total, round(as_if.total, 9)) == (50 + 15 * 50, 100)
    assert forecast_spend(DailySpending(days, date(2026, 6, 15), date(2026, 6, 16)), JUNE) is None


def read(folder: Path, text: str) -> Settings:
    file = folder / "loadfactor.toml"
    file.write_text(text)
    return read_settings(file)


def test_policies_and_budgets_are_read(tmp_path: Path) -> None:
    """Words, tables of shares and amounts; what is not written keeps waste in pools of its own and held time with its holder."""
    settings = read(
        tmp_path,
        """
        [chargeback]
        mode = "chargeback"
        unallocated = "held hours"
        storage = "apart"
        [chargeback.shared]
        search = 40.5
        research = "59.5"
        [[budget]]
        team = "research"
        amount = 12000.50
        [[budget]]
        project = "llm"
        amount = "1e6"
        period = "year"
        thresholds_percent = [90, 50]
        """,
    )
    policy = settings.chargeback
    assert policy.words == {
        "mode": "chargeback",
        "idle": "holder",
        "unobserved": "holder",
        "unallocated": "held hours",
        "down": "own pool",
        "shared": "fixed shares (research 59.5, search 40.5)",
        "unused_commitment": "own pool",
        "untagged": "own pool",
        "storage": "apart",
        "network": "included",
        "egress": "included",
        "served": "holder",
    }
    research, llm = settings.budget
    assert (research.label, research.amount) == ("research", Decimal("12000.5"))
    assert research.thresholds_percent == (50, 80, 100)
    assert (llm.label, llm.amount, llm.period, llm.thresholds_percent) == ("llm", 1_000_000, "year", (50, 90))
    assert hash(policy) == hash(read(tmp_path, (tmp_path / "loadfactor.toml").read_text()).chargeback)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[chargeback]\nidel = "holder"', "no setting called 'idel'; did you mean 'idle'?"),
        ('[chargeback]\nidle = "hodler"', "no way to bear a cost called 'hodler'; did you mean 'holder'?"),
        ('[chargeback]\nshared = "holder"', "nobody holds it; choose from own pool, held hours"),
        ("[chargeback]\nshared = 3", "3 says not who bears it"),
        ("[chargeback.shared]\na = -1\nb = 2", "shares are 0 or more"),
        ("[chargeback.shared]\na = 0", "one of them is above 0"),
        ('[chargeback.shared]\na = "x"', "the share of a is 'x', which is no number"),
        ("[chargeback.shared]\na = true", "the share of a is True, which is no number"),
        ('[chargeback]\nstorage = "no"', "'included' or 'apart'"),
        ('[[budget]]\nteam = "a"', "Field required"),
        ('[[budget]]\namount = "1,000"', "'1,000', which is no number"),
        ("[[budget]]\namount = 0", "greater than 0"),
        ('[[budget]]\nteam = ""\namount = 1', "team or project is empty"),
        ("[[budget]]\namount = 1\nthresholds_percent = [0]", "give percents above 0"),
        ("[[budget]]\namount = 1\nthresholds_percent = 50", "a list of percents"),
        ("[[budget]]\namount = 1\n[[budget]]\namount = 2", "two budgets of everybody for a month; keep one"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    """Each mistake is refused in one line that names the setting or the choice."""
    with pytest.raises(InputError) as refused:
        read(tmp_path, text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
