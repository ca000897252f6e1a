"""Gauges of what rules of alerts watch, so that a Prometheus can alert on the same numbers: see `interfaces/prometheus_rules`.

A rule with a threshold has the value that is compared with it; one with a condition of its own has whether that holds. What
is not known has no line: a group that has not been there for the whole window, or of which too little is known.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from loadfactor.base.units import MS_PER_HOUR, MS_PER_MIN, MS_PER_S
from loadfactor.books.books import Books
from loadfactor.insight.alerts.judge import STEP_MS, Judge
from loadfactor.insight.alerts.rule import Rule, Threshold, Verdicts
from loadfactor.interfaces.gauges.exposition import MetricFamily, name_gauge, name_window
from loadfactor.metrics import metric
from loadfactor.tables.schema import DIMENSIONS

CONDITION: Final = "loadfactor_rule_condition"
HOLDS, NEITHER = 1.0, 0.5
"""Values of a condition: it holds, or is neither that nor clear of it."""
MOST_GROUPS: Final = 1000
"""Lines of one rule: of a threshold the worst."""
OLD_MS: Final = 10 * MS_PER_MIN
LATE_S: Final = 60.0
"""So long the samples of a minute may take to come in."""
Sample = tuple[dict[str, str], float]


@dataclass(frozen=True)
class RuleVerdicts:
    """Verdicts of the conditions of rules at the end of a minute: arrays of one step."""

    rules: Sequence[Rule]
    verdicts: Mapping[str, Verdicts]
    judged_ms: int

    def tell(self, currency: str, now_s: float) -> list[MetricFamily]:
        """The gauges; none where that was long ago."""
        is_old = now_s * MS_PER_S - self.judged_ms > OLD_MS
        return [] if is_old else tell_rules(self.rules, self.verdicts, currency)


class RuleGauges:
    """Judges the conditions of rules minute by minute, where no alerts are judged that say. For one thread at a time."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._judge: Judge | None = None
        self._began_ms = 0

    def measure(self, rules: Sequence[Rule], now_s: float) -> list[MetricFamily]:
        """The gauges of the last minute whose samples are in. What came later counts when all is judged anew, every hour."""
        until_ms = int((now_s - LATE_S) * MS_PER_S)
        until_ms -= until_ms % STEP_MS
        judge, self._judge = self._judge, None  # a step that fails half way would count minutes twice
        is_usable = judge is not None and judge.rules == tuple(rules) and judge.judged_ms <= until_ms
        if judge is None or not is_usable or until_ms - self._began_ms >= MS_PER_HOUR:
            judge, self._began_ms = Judge(rules, until_ms - STEP_MS), until_ms
        with self._books.watch() as watched:
            judge.step(watched, until_ms)
        self._judge = judge
        return tell_rules(judge.rules, judge.verdicts, self._books.store.currency)


def tell_rules(rules: Sequence[Rule], verdicts: Mapping[str, Verdicts], currency: str) -> list[MetricFamily]:
    """Verdicts as gauges: one family for each metric that is watched, and one for all other conditions."""
    families: dict[str, MetricFamily] = {}
    about = (
        "1 where the condition of a rule holds; 0.5 where it neither holds nor is clear, and an alert that fires stays."
    )
    for rule in rules:
        if rule.name not in verdicts:
            continue
        if isinstance(rule.condition, Threshold):
            name, meaning = name_watched(rule, currency), metric(rule.condition.metric).meaning
            samples = list(_list_values(rule, rule.condition, verdicts[rule.name]))
        else:
            name, meaning = CONDITION, about
            samples = list(_list_conditions(rule, verdicts[rule.name]))
        before = families.get(name)
        families[name] = MetricFamily(name, meaning, "gauge", [*(before.samples if before else ()), *samples])
    return list(families.values())


def name_watched(rule: Rule, currency: str) -> str:
    """The gauge of the value that a rule compares with its threshold.

    >>> from loadfactor.insight.alerts.rules.jobs import UTILIZATION
    >>> name_watched(UTILIZATION[1], "USD")
    'loadfactor_watched_30m_team_utilization_ratio'
    """
    condition = rule.condition
    assert isinstance(condition, Threshold)
    window = name_window(condition.window_s) or "1h"
    return name_gauge(metric(condition.metric), currency, rule.by, f"watched_{window}")


def name_labels(rule: Rule) -> list[str]:
    """Labels that tell the groups of a rule apart: job_id for jobs, as other gauges have it; budget for budgets."""
    return [DIMENSIONS.get(by, by) for by in rule.by]


def _list_values(rule: Rule, condition: Threshold, found: Verdicts) -> Iterator[Sample]:
    """The values that are known, of the groups that are there; the worst where there are many."""
    (value,) = found.value
    known = np.flatnonzero(~np.isnan(value) & ~_gone(found))
    order = known[np.argsort(value[known] * (1 if condition.side == "below" else -1), kind="stable")]
    for place in order[:MOST_GROUPS].tolist():
        yield _label(rule, found, place), float(value[place])


def _list_conditions(rule: Rule, found: Verdicts) -> Iterator[Sample]:
    """Where the condition holds, then where it is neither that nor clear and something is known of it."""
    there, (is_bad,), (is_clear,), (value,) = ~_gone(found), found.is_bad, found.is_clear, found.value
    holds = np.flatnonzero(is_bad & there)
    neither = np.flatnonzero(~is_bad & ~is_clear & ~np.isnan(value) & there)
    for place in holds[:MOST_GROUPS].tolist():
        yield _label(rule, found, place), HOLDS
    for place in neither[:MOST_GROUPS].tolist():
        yield _label(rule, found, place), NEITHER


def _gone(found: Verdicts) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    return np.zeros(len(found.groups), dtype=np.bool_) if found.is_gone is None else found.is_gone[-1]


def _label(rule: Rule, found: Verdicts, place: int) -> dict[str, str]:
    return {"rule": rule.name, **dict(zip(name_labels(rule), found.groups[place], strict=True))}
