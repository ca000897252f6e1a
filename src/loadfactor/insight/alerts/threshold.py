"""Judging a condition on a metric: which side of its limit each group is on, where enough is known."""

from collections.abc import Iterable

import numpy as np

from loadfactor.base.units import MS_PER_S, S_PER_HOUR, S_PER_MIN
from loadfactor.insight.alerts.evidence import Evidence, Verdicts
from loadfactor.insight.alerts.rule import Threshold
from loadfactor.metrics import metric

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
    return f"{value:.0%}".replace("%", " %") if unit == "share" else f"{value:.3g} {unit}"


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
