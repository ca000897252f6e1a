"""Charts: one declaration each, which `terminal` draws in characters and `image` as SVG or PNG.

    Chart(
        title="Cost of a token falls as the fleet fills",
        kind="line",
        x=(0.2, 0.4, 0.6, 0.8),
        series=(Series("self-hosted", (5.0, 2.5, 1.7, 1.25)), Series("API", (2.0, 2.0, 2.0, 2.0))),
        x_label="utilization (share)",
        y_label="USD per million tokens",
        marks=(Mark(0.5, 2.0, "break-even 50 %"),),
        references=(Reference(0.35, "today", axis="x"),),
    )

Kinds: `line`, `step` (a value holds until the next x), `scatter` for numeric or datetime x, and these may be mixed by giving
a series its own kind; `histogram` (x holds the edges, one more than each series has counts); `bar`, `stacked bar` and
`waterfall` for named x, drawn horizontally so that long names stay readable. A waterfall has one series of changes, each drawn
from where the last one ended; `total` names a closing bar. None in a series is a gap, never zero. A `heat map` has a row a
series: its y are shares of one, its x where columns begin, and `states` say what a cell is in that has no share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Kind = Literal["line", "step", "scatter", "histogram", "bar", "stacked bar", "waterfall", "heat map"]
State = Literal["idle", "free", "down", "unobserved"]
"""What a cell of a heat map is in that has no share; one of None is of nothing that was there."""
X = float | str | datetime
NAMED_KINDS = ("bar", "stacked bar", "waterfall")
MIXABLE_KINDS = ("line", "step", "scatter")


@dataclass(frozen=True)
class Series:
    """One named row of values; `x` and `kind` are the chart's own where they are not given. `dashed` for a prediction."""

    name: str
    y: Sequence[float | None]
    x: Sequence[X] = ()
    kind: Kind | None = None
    dashed: bool = False
    states: Sequence[State | None] = ()


@dataclass(frozen=True)
class Mark:
    """One point a person should look at, with a few words."""

    x: float | datetime
    y: float
    label: str


@dataclass(frozen=True)
class Reference:
    """A thin line across the chart: at an x for axis "x", at a y for axis "y"."""

    value: float | datetime
    label: str
    axis: Literal["x", "y"] = "y"


@dataclass(frozen=True)
class Chart:
    """One picture. Axis labels carry their units: "queue wait (hours)". ValueError when the declaration contradicts itself."""

    title: str
    kind: Kind
    x: Sequence[X]
    series: Sequence[Series]
    x_label: str = ""
    y_label: str = ""
    x_log: bool = False
    y_log: bool = False
    marks: Sequence[Mark] = ()
    references: Sequence[Reference] = ()
    total: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not self.series:
            raise ValueError(f"chart {self.title!r} has no series")
        if self.kind == "waterfall" and len(self.series) != 1:
            raise ValueError(f"chart {self.title!r}: a waterfall has one series, got {len(self.series)}")
        for series in self.series:
            if self.kind_of(series) != self.kind and not {self.kind, self.kind_of(series)} <= set(MIXABLE_KINDS):
                raise ValueError(f"chart {self.title!r}: a {self.kind} chart cannot hold a {series.kind} series")
            expected = len(series.y) + (self.kind == "histogram")
            if len(self.x_of(series)) != expected:
                raise ValueError(
                    f"chart {self.title!r}: series {series.name!r} needs {expected} x, got {len(self.x_of(series))}"
                )

    def kind_of(self, series: Series) -> Kind:
        """How this series is drawn."""
        return series.kind or self.kind

    def x_of(self, series: Series) -> Sequence[X]:
        """Where this series' values stand."""
        return series.x if len(series.x) else self.x


def running(changes: Sequence[float | None]) -> list[tuple[float, float]]:
    """(start, end) of each bar of a waterfall.

    >>> running([100, -30, -20])
    [(0.0, 100.0), (100.0, 70.0), (70.0, 50.0)]
    """
    spans = []
    level = 0.0
    for change in changes:
        spans.append((level, level + (change or 0.0)))
        level += change or 0.0
    return spans
