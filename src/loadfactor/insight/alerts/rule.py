"""A rule as it is declared, the evidence that its condition reads of the books, and the verdicts that it gives."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.quantities import write_share
from loadfactor.base.units import MS_PER_DAY, MS_PER_S, S_PER_HOUR, S_PER_MIN
from loadfactor.books.kept_holdings import KeptHoldings
from loadfactor.books.watched import EndedPrice, Watched, WatchedEvent, WatchedOutage
from loadfactor.books.watched_waits import QueuedJobs, UsualWait, WatchedWaits
from loadfactor.insight.alerts.alert import Alert, Severity
from loadfactor.insight.causes import Cause
from loadfactor.metrics import metric
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.query.reading import iso
from loadfactor.tables.schema import Span

if TYPE_CHECKING:
    from loadfactor.books.budgets import BudgetReview

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
Group = tuple[str, ...]
"""The values of the dimensions that a rule is split by."""
SINCE_START = float("inf")
"""As a window: since the job began."""


@dataclass(frozen=True)
class Need:
    """A metric that a condition reads: by which dimensions, over which window, and how long ago the window ended, in seconds."""

    metric: str
    by: tuple[str, ...]
    window_s: float
    ago_s: float = 0.0


@dataclass(frozen=True)
class RolledMetric:
    """A metric by group. `value` is NaN where it is not known; `is_there`: whether the group had GPUs in the last step.

    `coverage` is the share of what the value speaks of that was known.
    """

    value: Floats
    coverage: Floats
    is_there: Flags


@dataclass(frozen=True)
class Verdicts:
    """The verdict of a condition on each group: that it holds, that it is clear of it, or neither, which is to stay as it was.

    Where too little is known it is neither, and `value` is NaN. `explain` gives the facts, in sentences, of a group.
    `is_gone`: groups that are no more, whose alerts end; a group that is not named is gone, too.
    """

    groups: Sequence[Group]
    is_bad: Flags
    is_clear: Flags
    value: Floats
    unit: str
    explain: Callable[[int], tuple[str, ...]]
    is_gone: Flags | None = None


@dataclass
class KeptRecords:
    """Records that stay true from call to call, until data comes late."""

    waits: WatchedWaits = field(default_factory=WatchedWaits)
    budgets: dict[int, "BudgetReview | None"] = field(default_factory=dict)
    holdings: KeptHoldings = field(default_factory=KeptHoldings)


class Records:
    """The records of a span of steps, and of the time before it. Read them while the session of `watched` is open."""

    def __init__(self, watched: Watched, span: Span, kept: KeptRecords) -> None:
        self._watched, self._span, self._kept = watched, span, kept

    @cached_property
    def events(self) -> Sequence[WatchedEvent]:
        """The events of GPUs, in order."""
        return self._watched.list_events(self._span)

    @cached_property
    def outages(self) -> Sequence[WatchedOutage]:
        """The outages of nodes."""
        return self._watched.list_outages(self._span)

    @cached_property
    def waits(self) -> QueuedJobs:
        """The waits that last in the span, or ended not long before it."""
        return self._watched.list_waits(self._span, self._kept.waits)

    @cached_property
    def ended_prices(self) -> Sequence[EndedPrice]:
        """Prices that ended before the end of the span, with none after them."""
        return self._watched.list_ended_prices(self._span[1])

    def usual_waits(self, at_ms: int) -> Mapping[str, UsualWait]:
        """How long jobs usually wait, by queue, as it follows from the UTC days before that of an instant."""
        return self._watched.list_usual_waits(at_ms - at_ms % MS_PER_DAY, self._kept.waits)

    def budgets(self, at_ms: int) -> "BudgetReview | None":
        """Where budgets stood when the UTC day before that of an instant was complete; None where there are none."""
        day_ms, kept = at_ms - at_ms % MS_PER_DAY, self._kept.budgets
        if day_ms not in kept:
            before = datetime.fromtimestamp(day_ms / MS_PER_S, UTC).date() - timedelta(1)
            self._kept.budgets = {day_ms: self._watched.review_budgets(before)}
        return self._kept.budgets[day_ms]


@dataclass(frozen=True)
class Evidence:
    """The books at the end of a step, `at_ms`, as far as rules declare that they read them.

    Arrays of a split have an item for every group that `groups(by)` names, in this order; groups that were there once stay.
    `starts(by)`: since when, in milliseconds, each group has had GPUs, a job since its allocation began. `names(by, dimension)`:
    the name of each group in this step, its team for instance: one of them where there are several.
    `parents(by, of)`: for each group of `by`, the position of what it is part of among the groups of `of`; −1: it is not there now.
    `name_holder(by, group)`: node, job, user and team of a group now, each where there is one alone and it is not in `by`.
    """

    at_ms: int
    step_ms: int
    records: Records
    read: Callable[[Need], RolledMetric]
    groups: Callable[[tuple[str, ...]], Sequence[Group]]
    starts: Callable[[tuple[str, ...]], Floats]
    names: Callable[[tuple[str, ...], str], Sequence[str | None]]
    parents: Callable[[tuple[str, ...], tuple[str, ...]], Ints]
    name_holder: Callable[[tuple[str, ...], Group], Mapping[str, str]]


Limits = Mapping[str, float]
"""The thresholds of a rule by name, in the units that its declaration says."""


@dataclass(frozen=True)
class Limit:
    """A threshold, which settings may change: its value and unit, what it limits, and the range that makes sense."""

    value: float
    unit: str
    meaning: str
    low: float = 0.0
    high: float = float("inf")


@dataclass(frozen=True)
class Threshold:
    """A condition on a metric over a window that ends with the step: it lies on this side of `limit`.

    It is clear again only at `clears_at`, so that a value near the limit does not fire again and again. Where less than
    `least_coverage` of what the metric speaks of was known, nothing is judged.
    """

    metric: str
    side: Literal["below", "above"]
    limit: float
    clears_at: float
    window_s: float
    least_coverage: float = 0.5

    def needs(self, by: tuple[str, ...]) -> tuple[Need, ...]:
        return (Need(self.metric, by, self.window_s),)


@dataclass(frozen=True)
class Compound:
    """A condition that is no single metric: what it reads by steps, its thresholds, and what says of which groups it holds."""

    find: Callable[[Evidence, Limits], Verdicts]
    reads: tuple[Need, ...] = ()
    limits: Mapping[str, Limit] = field(default_factory=dict)

    def needs(self, _by: tuple[str, ...]) -> tuple[Need, ...]:
        return self.reads


@dataclass(frozen=True)
class Rule:
    """One rule. `by`: the dimensions of its groups, none for the fleet. `for_s`: how long the condition holds before it fires.

    `meaning` is one sentence; `ask_first` the question to ask first; `look_next` what to look at then.
    """

    name: str
    condition: Threshold | Compound
    by: tuple[str, ...]
    for_s: float
    severity: Severity
    cause: Cause
    meaning: str
    ask_first: str
    look_next: str
    is_shipped: bool = True

    @property
    def needs(self) -> tuple[Need, ...]:
        """The metrics that its condition reads."""
        return self.condition.needs(self.by)

    @property
    def runbook(self) -> str:
        """Where the documentation says what to do: of a rule that settings add, how such a rule is written."""
        return f"docs/alerts.md#{self.name if self.is_shipped else 'rules-of-your-own'}"


MOST_NAMED = 8


def judge_threshold(condition: Threshold, by: tuple[str, ...], evidence: Evidence) -> Verdicts:
    """The verdicts of a step. A group is judged when it has been there for the whole window."""
    (need,) = condition.needs(by)
    found, of = evidence.read(need), metric(condition.metric)
    is_whole = evidence.starts(by) <= evidence.at_ms - condition.window_s * MS_PER_S
    is_known = found.is_there & is_whole & (found.coverage >= condition.least_coverage) & ~np.isnan(found.value)
    value = np.where(is_known, found.value, np.nan)
    below = condition.side == "below"
    is_bad = value < condition.limit if below else value > condition.limit
    is_clear = value >= condition.clears_at if below else value <= condition.clears_at

    def explain(group: int) -> tuple[str, ...]:
        side = f"{condition.side} {show(condition.limit, of.unit)}"
        window = f"over the last {show_duration(condition.window_s)}"
        known = f"{show(found.coverage[group], 'share')} of that is known"
        return (f"{of.title.lower()} {show(value[group], of.unit)} {window}, {side}", known)

    return Verdicts(evidence.groups(by), is_bad, is_clear, value, of.unit, explain, ~found.is_there)


def show(value: float, unit: str) -> str:
    """A value with its unit, for a sentence.

    >>> show(0.314, "share"), show(82.04, "°C")
    ('31 %', '82 °C')
    """
    return write_share(value) if unit == "share" else f"{value:.3g} {unit}"


def show_duration(seconds: float) -> str:
    """A length of time, for a sentence.

    >>> show_duration(1800), show_duration(3600), show_duration(5400), show_duration(45)
    ('30 min', '1 h', '1.5 h', '45 s')
    """
    for factor, unit in ((S_PER_HOUR, "h"), (S_PER_MIN, "min")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def show_names(names: Iterable[str]) -> str:
    """Names in order, of many the first ones, for a sentence.

    >>> show_names(["g1", "g0"]), show_names(f"g{n}" for n in range(10))
    ('g0, g1', 'g0, g1, g2, g3, g4, g5, g6, g7 and 2 more')
    """
    listed = sorted(names)
    more = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
    return ", ".join(listed[:MOST_NAMED]) + more


LEAST_COVERAGE: Final = 0.5
"""Where less of what a value speaks of was known, nothing is judged."""


def read_known(evidence: Evidence, need: Need) -> Floats:
    """The metric of each group that is there and has been for the whole window; NaN where too little is known."""
    found = evidence.read(need)
    since = evidence.at_ms - (need.window_s + need.ago_s) * MS_PER_S
    is_known = found.is_there & (evidence.starts(need.by) <= since) & (found.coverage >= LEAST_COVERAGE)
    return np.where(is_known, found.value, np.nan)


def list_recent(events: Sequence[WatchedEvent], until_ms: int, for_s: float) -> Iterator[WatchedEvent]:
    """The events, which are in order, of so many seconds before an instant; the latest first."""
    last = bisect_right(events, until_ms, key=attrgetter("at_ms"))
    for place in range(last - 1, -1, -1):
        if events[place].at_ms <= until_ms - for_s * MS_PER_S:
            return
        yield events[place]


def describe_alert(alert: Alert, rules: Iterable[Rule]) -> dict[str, Any]:
    """An alert as JSON has it; instants in UTC, `to` null while it lasts."""
    rule = next((rule for rule in rules if rule.name == alert.rule), None)
    return {
        "rule": alert.rule,
        "by": dict(alert.by),
        "from": iso(instant(alert.start_ms)),
        "fired": None if alert.fired_ms is None else iso(instant(alert.fired_ms)),
        "to": None if alert.end_ms is None else iso(instant(alert.end_ms)),
        "state": alert.state,
        "severity": alert.severity,
        "cause": alert.cause,
        "value": alert.value if alert.value is not None and isfinite(alert.value) else None,
        "unit": alert.unit,
        "evidence": list(alert.evidence),
        "holder": dict(alert.holder),
        "ended_because": alert.ended_because,
        "meaning": rule.meaning if rule else "",
        "ask_first": rule.ask_first if rule else "",
        "look_next": rule.look_next if rule else "",
        "runbook": rule.runbook if rule else "",
    }
