"""Rules of money: budgets that are spent or will be, and prices that ended."""

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.books.watched import EndedPrice
from loadfactor.insight.alerts.rule import Compound, Evidence, Limit, Limits, Rule, Verdicts, show
from loadfactor.money.spending import BudgetStatus

if TYPE_CHECKING:
    from loadfactor.books.budgets import BudgetReview


def find_burning(evidence: Evidence, limits: Limits) -> Verdicts:
    """Budgets that are spent, or will be by the forecast, as they stood at the end of the day before."""
    days = (evidence.at_ms - evidence.step_ms) // MS_PER_DAY
    firsts = np.flatnonzero(np.diff(days, prepend=days[0] - 1)).tolist()
    found = [_judge_day(evidence.records.budgets(int(days[step]) * MS_PER_DAY), limits) for step in firsts]
    names = list(dict.fromkeys(name for day in found for name in day))
    shape = len(days), len(names)
    value, is_bad, is_clear = np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    is_gone = np.ones(shape, dtype=np.bool_)
    for step, day in zip(firsts, found, strict=True):  # each holds until the next one
        for place, name in enumerate(names):
            of = day.get(name)
            is_gone[step:, place] = of is None
            if of is not None:
                value[step:, place], is_bad[step:, place], is_clear[step:, place] = of.value, of.is_bad, of.is_clear

    def explain(step: int, place: int) -> tuple[str, ...]:
        day = found[bisect_right(firsts, step) - 1][names[place]]
        of, currency = day.status, day.currency
        spent_of = f"{show(day.spent, 'share')} of {of.budget.amount:.2f} {currency} spent"
        facts = [f"{spent_of} after {of.complete_days} days of the {of.budget.period}"]
        if of.forecast is not None:
            facts.append(
                f"forecast {of.forecast.total:.2f} {currency}, {show(_share(of, float(of.forecast.total)), 'share')} of it"
            )
        return tuple(facts)

    return Verdicts([(name,) for name in names], is_bad, is_clear, value, "share", explain, is_gone)


@dataclass(frozen=True)
class _BudgetDay:
    """Where a budget stood at the end of a day."""

    status: BudgetStatus
    currency: str
    spent: float
    value: float
    is_bad: bool
    is_clear: bool


def _judge_day(review: "BudgetReview | None", limits: Limits) -> dict[str, _BudgetDay]:
    """The budgets of a day by name."""
    statuses = review.statuses if review else ()
    count = Counter(status.budget.label for status in statuses)
    days = {}
    for of in statuses:
        name = of.budget.label
        if count[name] > 1:
            name = f"{name} ({of.budget.period}, {of.budget.column})"
        spent = _share(of, float(of.spent))
        is_known = of.forecast is not None and of.complete_days >= limits["days"]  # else too few days are
        forecast = _share(of, float(of.forecast.total)) if of.forecast is not None and is_known else np.nan
        days[name] = _BudgetDay(
            of,
            review.currency if review else "",
            spent,
            spent if spent >= 1 else forecast,
            spent >= 1 or forecast > limits["forecast"],
            spent < 1 and forecast <= limits["clears_at"],
        )
    return days


def _share(status: BudgetStatus, amount: float) -> float:
    """A part of a budget."""
    return amount / float(status.budget.amount)


def find_ended_prices(evidence: Evidence, _limits: Limits) -> Verdicts:
    """Prices that ended, of GPUs that are still there."""
    at_ms, ended = evidence.at_ms[:, np.newaxis], evidence.records.ended_prices
    until, gone = (np.array([getattr(of, name) for of in ended], dtype=np.int64) for name in ("to_ms", "gone_ms"))
    is_bad = (until < at_ms) & (at_ms <= gone)
    since = (at_ms - until) / MS_PER_DAY

    def explain(_step: int, place: int) -> tuple[str, ...]:
        until = np.datetime_as_string(np.datetime64(ended[place].to_ms // MS_PER_S, "s"))
        return (
            f"valid until {until}Z, and none after it in this or a better basis; its hours have no such cost since then",
        )

    return Verdicts([(_name(of),) for of in ended], is_bad, np.zeros_like(is_bad), since, "days", explain, ~is_bad)


def _name(price: EndedPrice) -> str:
    """The GPUs that a price was of, in words.

    >>> _name(EndedPrice("h100-sxm", "a", None, "contracted", 0, 0)), _name(EndedPrice(None, None, None, "list", 0, 0))
    ('h100-sxm in pool a, contracted', 'all GPUs, list')
    """
    what = price.device or price.accelerator or ("" if price.pool else "all GPUs")
    where = f"pool {price.pool}" if price.pool else ""
    return f"{' in '.join(of for of in (what, where) if of)}, {price.basis}"


MONEY: Final = (
    Rule(
        "budget_burn",
        Compound(
            find_burning, (),
            {
                "forecast": Limit(1.0, "share", "the part of the budget that the forecast passes", 0.01, 1),
                "clears_at": Limit(0.95, "share", "the part at which it is back", 0.01, 1),
                "days": Limit(2, "days", "how many days of the period must be complete for its forecast to count", 1, 366),
            },
        ),
        ("budget",), 0.0, "warning", "user error",
        "A budget is spent, or will be before its period ends.",
        "Is it one large job, one unusual day, or the usual use: was the budget too small?",
        "`loadfactor budget` shows days that stand out and the forecast; `loadfactor chargeback` whose cost it is.",
    ),
    Rule(
        "price_ended", Compound(find_ended_prices), ("price",), 0.0, "warning", "user error",
        "A price ended and no other one follows, while the GPUs it was the price of are still there.",
        "Was a contract renewed and its price not imported, or did it end?",
        "`loadfactor doctor` names the hours without a price; import the new price (docs/bring-your-own-data.md).",
    ),
)  # fmt: skip
