"""Gauges of budgets: amount, spent, forecast and burn rate of each in its period, by its name."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from loadfactor.base.errors import LoadfactorError
from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.server.exposition import MetricFamily
from loadfactor.settings.config import settings

if TYPE_CHECKING:
    from loadfactor.money.budgets import BudgetStatus


def measure_budgets(snapshot: Snapshot) -> list[MetricFamily]:
    """Where each configured budget stands; nothing where there is none, or no cost to compare with."""
    if not settings().budget:
        return []
    try:
        review = snapshot.budgets()
    except LoadfactorError:
        return []
    return list(_list_families(review.statuses, review.currency.lower()))


def _list_families(statuses: Iterable["BudgetStatus"], currency: str) -> Iterable[MetricFamily]:
    amounts, spent, forecasts, coming, burning = [], [], [], [], []
    for status in statuses:
        labels = {"budget": status.budget.label, "period": status.budget.period}
        amounts.append((labels, float(status.budget.amount)))
        spent.append((labels, float(status.spent)))
        if status.forecast is not None:
            forecasts.append((labels, float(status.forecast.total)))
            coming.append((labels, float(status.forecast.total / status.budget.amount)))
        if status.burn_rate is not None:
            burning.append((labels, float(status.burn_rate)))
    yield MetricFamily(f"loadfactor_budget_{currency}", "What may be spent in the period.", "gauge", amounts)
    yield MetricFamily(f"loadfactor_budget_spent_{currency}", "What was spent of it so far.", "gauge", spent)
    yield MetricFamily(f"loadfactor_budget_forecast_{currency}", "What the period will come to.", "gauge", forecasts)
    about = "What the period will come to ÷ the budget."
    yield MetricFamily("loadfactor_budget_forecast_ratio", about, "gauge", coming)
    about = "The part of the budget that is spent ÷ the part of the period that has passed."
    yield MetricFamily("loadfactor_budget_burn_ratio", about, "gauge", burning)
