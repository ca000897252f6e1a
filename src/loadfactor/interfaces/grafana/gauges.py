"""Queries of the gauges that `/metrics` tells, made from the declarations of metrics: name, unit and meaning are theirs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loadfactor.interfaces.grafana.panels import Query
from loadfactor.interfaces.server.exposition import name_coverage, name_gauge
from loadfactor.metrics import metric
from loadfactor.metrics.metric import CURRENCY

DAY: Final = "24h"
UNITS: Final = {
    "share": "percentunit",
    "GPU-hours": "suffix: GPU-hours",
    "W": "watt",
    "°C": "celsius",
    "kWh": "kwatth",
    "s": "s",
    "jobs": "suffix: jobs",
    "FLOP": "suffix: FLOP",
    "tokens/s": "suffix: tokens/s",
}
"""Grafana's names of the units of metrics."""
CURRENCIES: Final = frozenset(
    ("USD", "GBP", "EUR", "JPY", "RUB", "UAH", "BRL", "DKK", "ISK", "NOK", "SEK", "CZK", "CHF", "PLN", "ZAR", "INR", "KRW",
     "IDR", "PHP", "VND", "TRY", "MYR", "XPF", "BGN", "PYG", "UYU", "ILS")
)  # fmt: skip
"""Those that Grafana has signs for."""


@dataclass(frozen=True)
class Gauges:
    """Makes queries over books that are kept in a currency."""

    currency: str

    @property
    def money(self) -> str:
        """Grafana's unit of an amount of money."""
        return f"currency{self.currency}" if self.currency in CURRENCIES else f"currency:{self.currency} "

    def ask(
        self,
        name: str,
        by: Sequence[str] = (),
        window: str = "",
        where: str = "",
        legend: str = "",
        template: str = "{}",
        unit: str = "",
    ) -> Query:
        """A metric's gauge, by dimensions, over a window, of the series that `where` matches.

        `template` puts its selector into PromQL; `unit` is Grafana's, where that changes the metric's.
        """
        declared = metric(name)
        selector = self.select(name, by, window, where)
        own = self.money if declared.unit.startswith(CURRENCY) else UNITS[declared.unit]
        return Query(template.format(selector), unit or own, legend or declared.title, declared.meaning)

    def select(self, name: str, by: Sequence[str] = (), window: str = "", where: str = "") -> str:
        """The selector of a metric's gauge."""
        return f"{name_gauge(metric(name), self.currency, by, window)}{{{where}}}"

    def cover(self, by: Sequence[str] = (), window: str = "", where: str = "", legend: str = "") -> Query:
        """How much was known of metrics."""
        about = "The share that was known of what a metric speaks of."
        return Query(f"{name_coverage(by, window)}{{{where}}}", "percentunit", legend or "{{metric}}", about)

    def unit_costs(self, by: Sequence[str] = (), window: str = "", where: str = "") -> Query:
        """What one of each unit cost, whichever there are."""
        parts = "_".join(part for part in ("loadfactor", window, *by, "cost_per") if part)
        others = f"{parts}_effective_gpu_hour_{self.currency.lower()}"
        names = f'__name__=~"{parts}_.+",__name__!="{others}"'
        about = "Cost of the jobs that worked on it, idle time and lost work included, ÷ how many were made and kept."
        return Query(f"{{{names}{',' if where else ''}{where}}}", self.money, "{{__name__}}", about)
