"""Parts of a dashboard, before Grafana's builders write it: pages of rows of panels, each with its queries and unit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from loadfactor.insight.alerts.rule import Threshold
from loadfactor.insight.alerts.rules import RULES
from loadfactor.interfaces.gauges.exposition import name_coverage, name_gauge
from loadfactor.metrics import metric
from loadfactor.metrics.metric import CURRENCY

Kind = Literal["stat", "timeseries", "bargauge", "barchart", "table"]
WIDTH: Final = 24
"""Columns of Grafana's grid."""


@dataclass(frozen=True)
class Query:
    """PromQL and the legend of its series. `unit`: Grafana's name of the unit; `about`: what the number means."""

    expression: str
    unit: str
    legend: str = ""
    about: str = ""


@dataclass(frozen=True)
class PanelLimit:
    """A limit of a rule: values on the bad side of `limit` are red, those short of `clears_at` yellow, others green."""

    rule: str
    limit: float
    clears_at: float

    @property
    def is_floor(self) -> bool:
        """True where low values are bad."""
        return self.clears_at > self.limit


@dataclass(frozen=True)
class Panel:
    """One panel. All its queries have one unit; `is_now`: only the last value is queried; `matrix`: row and column of a table."""

    kind: Kind
    title: str
    queries: Sequence[Query]
    width: int
    limit: PanelLimit | None = None
    about: str = ""
    is_stacked: bool = False
    is_now: bool = False
    matrix: tuple[str, str] | None = None
    opens: str = ""
    """The dashboard that a click on a series opens, as `job:job_id`: its name and the label that it is about."""

    @property
    def unit(self) -> str:
        """The unit of its queries."""
        (unit,) = {query.unit for query in self.queries}
        return unit

    @property
    def description(self) -> str:
        """Its meanings, each once, and the rule that its limit is from."""
        meanings = [self.about] if self.about else list(dict.fromkeys(q.about for q in self.queries if q.about))
        return " ".join([*meanings, *([f"Limit of the rule {self.limit.rule}."] if self.limit else [])])


@dataclass(frozen=True)
class Row:
    """Panels side by side under a title, `height` units high; they fill the width, row after row."""

    title: str
    panels: Sequence[Panel]
    height: int = 8


@dataclass(frozen=True)
class Variable:
    """The subject of a page: the label whose values can be chosen, and the gauge that has them."""

    label: str
    title: str
    gauge: str

    @property
    def matcher(self) -> str:
        """As a label matcher in PromQL: Grafana quotes the value, and escapes quotes in it."""
        return f"{self.label}=${{{self.label}:doublequote}}"


@dataclass(frozen=True)
class GrafanaPage:
    """One dashboard. `name` is a part of its address, which stays."""

    name: str
    title: str
    about: str
    rows: Sequence[Row]
    variables: Sequence[Variable] = field(default_factory=tuple)

    @property
    def uid(self) -> str:
        """By which Grafana knows it."""
        return f"loadfactor-{self.name}"


def find_limit(name: str, limit: str = "") -> PanelLimit | None:
    """The limit of a shipped rule: of its metric, or the one of this name; None where there is no such rule or limit."""
    condition = next((rule.condition for rule in RULES if rule.name == name), None)
    if isinstance(condition, Threshold):
        return PanelLimit(name, condition.limit, condition.clears_at)
    found = condition.limits.get(limit) if condition else None
    return PanelLimit(name, found.value, found.value) if found else None


DAY: Final = "24h"
UNITS: Final = {
    "share": "percentunit",
    "GPU-hours": "suffix: GPU-hours",
    "W": "watt",
    "°C": "celsius",
    "kWh": "kwatth",
    "kgCO2e": "suffix: kgCO2e",
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
        """Costs of one of each unit, whichever there are."""
        parts = "_".join(part for part in ("loadfactor", window, *by, "cost_per") if part)
        others = f"{parts}_effective_gpu_hour_{self.currency.lower()}"
        names = f'__name__=~"{parts}_.+",__name__!="{others}"'
        about = "Cost of the jobs that worked on it, idle time and lost work included, ÷ how many were made and kept."
        return Query(f"{{{names}{',' if where else ''}{where}}}", self.money, "{{__name__}}", about)
