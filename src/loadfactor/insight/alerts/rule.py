"""A rule as it is declared, the evidence that its condition reads of the books, and the verdicts that it gives."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from math import isfinite
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
    """A metric by step and group. `value` is NaN where it is not known; `is_there`: whether the group had GPUs in the step.

    `coverage` is the share of what the value speaks of that was known.
    """

    value: Floats
    coverage: Floats
    is_there: Flags


@dataclass(frozen=True)
class Verdicts:
    """The verdict of a condition on each group at the end of each step, in arrays of steps × groups.

    It holds, the group is clear of it, or neither, which is to stay as it was. Where too little is known it is neither, and `value`
    is NaN. `explain` gives the facts, in sentences, of a group in a step, both by their places.
    `is_gone`: groups that are no more, whose alerts end; a group that is not named is gone, too.
    """

    groups: Sequence[Group]
    is_bad: Flags
    is_clear: Flags
    value: Floats
    unit: str
    explain: Callable[[int, int], tuple[str, ...]]
    is_gone: Flags | None = None

    def pick(self, step: int) -> "Verdicts":
        """Those of one step alone."""
        one = slice(step, step + 1)
        return Verdicts(
            self.groups,
            self.is_bad[one].copy(),
            self.is_clear[one].copy(),
            self.value[one].copy(),
            self.unit,
            lambda _step, group: self.explain(step, group),
            None if self.is_gone is None else self.is_gone[one].copy(),
        )


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
class Names:
    """Which of `names` each group has in each step: steps × groups; −1 where it has none."""

    codes: Ints
    names: Sequence[str]

    def at(self, step: int, group: int) -> str | None:
        """The name of a group in a step."""
        code = int(self.codes[step, group])
        return self.names[code] if code >= 0 else None

    def find(self, is_meant: Callable[[str | None], bool]) -> Flags:
        """Where the name is one that is meant: each that is there is looked at once."""
        flags = np.zeros(len(self.names) + 1, dtype=np.bool_)
        for code in np.unique(self.codes).tolist():
            flags[code] = is_meant(self.names[code] if code >= 0 else None)
        return flags[self.codes]


@dataclass(frozen=True)
class Evidence:
    """The books at the ends of some steps, `at_ms`, as far as rules declare that they read them.

    Arrays of a split are of steps × groups, with all groups that `groups(by)` names, in this order.
    `starts(by)`: since when, in milliseconds, each group has had GPUs, a job since its allocation began; NaN before it came.
    `names(by, dimension)`: the name of each group in each step, its team for instance: one of them where there are several.
    `parents(by, of)`: for each group of `by`, the position of what it is part of among the groups of `of`; −1: it is not there.
    `name_holder(step, by, group)`: node, job, user and team of a group then, each where there is one alone and it is not in `by`.
    """

    at_ms: Ints
    step_ms: int
    records: Records
    read: Callable[[Need], RolledMetric]
    groups: Callable[[tuple[str, ...]], Sequence[Group]]
    starts: Callable[[tuple[str, ...]], Floats]
    names: Callable[[tuple[str, ...], str], Names]
    parents: Callable[[tuple[str, ...], tuple[str, ...]], Ints]
    name_holder: Callable[[int, tuple[str, ...], Group], Mapping[str, str]]

    def has_lasted(self, by: tuple[str, ...], seconds: float) -> Flags:
        """Which groups have been there for so long."""
        return self.starts(by) <= (self.at_ms - seconds * MS_PER_S)[:, np.newaxis]

    def find_steps(self, from_ms: float, to_ms: float) -> slice:
        """The steps that end in an interval, its first instant included."""
        first, after = np.searchsorted(self.at_ms, (from_ms, to_ms))
        return slice(int(first), int(after))


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
    """The verdicts of some steps. A group is judged when it has been there for the whole window."""
    (need,) = condition.needs(by)
    found, of = evidence.read(need), metric(condition.metric)
    value = _know(evidence, found, need, condition.least_coverage)
    below = condition.side == "below"
    is_bad = value < condition.limit if below else value > condition.limit
    is_clear = value >= condition.clears_at if below else value <= condition.clears_at

    def explain(step: int, group: int) -> tuple[str, ...]:
        side = f"{condition.side} {show(condition.limit, of.unit)}"
        window = f"over the last {show_duration(condition.window_s)}"
        known = f"{show(found.coverage[step, group], 'share')} of that is known"
        return (f"{of.title.lower()} {show(value[step, group], of.unit)} {window}, {side}", known)

    return Verdicts(evidence.groups(by), is_bad, is_clear, value, of.unit, explain, ~found.is_there)


def _know(evidence: Evidence, found: RolledMetric, need: Need, least_coverage: float) -> Floats:
    is_known = found.is_there & (found.coverage >= least_coverage)
    is_known &= evidence.has_lasted(need.by, need.window_s + need.ago_s)
    return np.where(is_known, found.value, np.nan)


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
    return _know(evidence, evidence.read(need), need, LEAST_COVERAGE)


def count_by(parents: Ints, among: int, weights: Floats | Flags | Ints) -> Floats:
    """Add weights of groups up by what they are part of: steps × `among`. `parents`: positions, −1 for none."""
    of = flatten(parents, among)
    inside = np.flatnonzero((parents >= 0).ravel())
    total: Floats = np.bincount(of[inside], weights.ravel()[inside], len(parents) * among).astype(
        np.float64, copy=False
    )
    return total.reshape(len(parents), among)


def flatten(parents: Ints, among: int) -> Ints:
    """Positions among so many groups of each step as positions in all steps one after the other."""
    flat: Ints = (parents + np.arange(len(parents))[:, np.newaxis] * among).ravel()
    return flat


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
