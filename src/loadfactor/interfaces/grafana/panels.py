"""What a dashboard is made of, before Grafana's builders write it: pages of rows of panels, each with its queries and unit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from loadfactor.insight.alerts.rule import Threshold
from loadfactor.insight.alerts.rules import RULES

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
    """One panel. All its queries have one unit; `is_now`: only the last value is asked for; `matrix`: row and column of a table."""

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
        """What it says, once for each meaning, and the rule that its limit is from."""
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
    """What a page is about: the label whose values can be chosen, and the gauge that has them."""

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
