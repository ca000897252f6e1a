"""Rules of money: budgets that are spent or will be, and prices that ended."""

from collections import Counter
from typing import Final

import numpy as np

from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.books.watched import EndedPrice
from loadfactor.insight.alerts.rule import Compound, Evidence, Floats, Limit, Limits, Rule, Verdicts, show
from loadfactor.money.spending import BudgetStatus


def find_burning(evidence: Evidence, limits: Limits) -> Verdicts:
    """Budgets that are spent, or will be by the forecast, as they stood at the end of the day before."""
    review = evidence.records.budgets(evidence.at_ms - evidence.step_ms)
    statuses = review.statuses if review else ()
    count = Counter(status.budget.label for status in statuses)
    names = [
        f"{of.budget.label} ({of.budget.period}, {of.budget.column})" if count[of.budget.label] > 1 else of.budget.label
        for of in statuses
    ]
    spent = np.array([_share(status, float(status.spent)) for status in statuses], dtype=np.float64)
    forecast = _read_forecasts(statuses, limits)
    value = np.where(spent >= 1, spent, forecast)
    is_bad = (spent >= 1) | (forecast > limits["forecast"])
    is_clear = (spent < 1) & (forecast <= limits["clears_at"])

    def explain(place: int) -> tuple[str, ...]:
        of, currency = statuses[place], review.currency if review else ""
        spent_of = f"{show(spent[place], 'share')} of {of.budget.amount:.2f} {currency} spent"
        facts = [f"{spent_of} after {of.complete_days} days of the {of.budget.period}"]
        if of.forecast is not None:
            facts.append(
                f"forecast {of.forecast.total:.2f} {currency}, {show(_share(of, float(of.forecast.total)), 'share')} of it"
            )
        return tuple(facts)

    return Verdicts([(name,) for name in names], is_bad, is_clear, value, "share", explain)


def _share(status: BudgetStatus, amount: float) -> float:
    """A part of a budget."""
    return amount / float(status.budget.amount)


def _read_forecasts(statuses: tuple[BudgetStatus, ...], limits: Limits) -> Floats:
    """The forecasts of periods as parts of the budgets; NaN where too few days are known."""
    return np.array(
        [
            _share(of, float(of.forecast.total)) if of.forecast and of.complete_days >= limits["days"] else np.nan
            for of in statuses
        ],
        dtype=np.float64,
    )


def find_ended_prices(evidence: Evidence, _limits: Limits) -> Verdicts:
    """Prices that ended, of GPUs that are still there."""
    at_ms = evidence.at_ms
    ended = [of for of in evidence.records.ended_prices if of.to_ms < at_ms <= of.gone_ms]
    since = np.array([(at_ms - of.to_ms) / MS_PER_DAY for of in ended], dtype=np.float64)

    def explain(place: int) -> tuple[str, ...]:
        until = np.datetime_as_string(np.datetime64(ended[place].to_ms // MS_PER_S, "s"))
        return (
            f"valid until {until}Z, and none after it in this or a better basis; its hours have no such cost since then",
        )

    is_bad = np.ones(len(ended), dtype=np.bool_)
    return Verdicts([(_name(of),) for of in ended], is_bad, ~is_bad, since, "days", explain)


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
