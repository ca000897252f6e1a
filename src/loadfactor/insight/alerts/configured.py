"""The rules as settings have them: shipped ones, changed or switched off, and those that were added."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.units import PERCENT, S_PER_HOUR, S_PER_MIN, S_PER_WEEK
from loadfactor.insight.alerts.rule import Compound, Limit, Rule, Threshold
from loadfactor.insight.causes import CAUSES, Cause, class_of_metric
from loadfactor.metrics import METRICS, metric
from loadfactor.metrics.metric import Ratio, Sum
from loadfactor.metrics.query.question import check_dimensions
from loadfactor.settings.alerts import AlertTable
from loadfactor.settings.alerts import Threshold as GivenThreshold
from loadfactor.tables.schema import DIMENSIONS

SPLIT_BY = tuple(name for name in DIMENSIONS if name not in ("tenant", "state", "hour", "day", "week", "month"))
LONGEST_S = S_PER_WEEK
HYSTERESIS = 0.1
"""A rule that does not say where it clears does so this share of its threshold beyond it."""
_NUMBER = re.compile(r"\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(.*?)\s*")


def configure(shipped: Sequence[Rule], tables: Sequence[AlertTable]) -> tuple[Rule, ...]:
    """The rules in their order, new ones last. Raises InputError naming the table and what is wrong with it."""
    rules = {rule.name: rule for rule in shipped}
    for table in tables:
        try:
            rules |= {table.label: _change(rules, table) if table.rule else _make(rules, table)}
        except InputError as error:
            raise InputError(f"[[alert]] of {table.label!r}: {error}") from error
        if not table.enabled:
            del rules[table.label]
    return tuple(rules.values())


def _make(rules: dict[str, Rule], table: AlertTable) -> Rule:
    name, by = table.name or "", check_dimensions(table.by or ())
    if name in rules:
        raise InputError("a shipped rule has this name; change that one with `rule`, or choose another name")
    if wrong := [of for of in by if of not in SPLIT_BY]:
        raise InputError(f"a rule cannot be split by {wrong[0]}; choose from {', '.join(SPLIT_BY)}")
    of = metric(table.metric or "")
    if not isinstance(of.kind, Sum | Ratio) or (isinstance(of.kind, Sum) and of.kind.each):
        known = ", ".join(m.name for m in METRICS if isinstance(m.kind, Ratio))
        raise InputError(f"{of.name} cannot be watched minute by minute; choose one of {known}")
    below = table.below is not None
    unit = of.unit
    limit = read_amount(table.below if table.below is not None else table.above, unit)  # one of both is given
    clears_at = limit * (1 + HYSTERESIS if below else 1 - HYSTERESIS)
    condition = Threshold(of.name, "below" if below else "above", limit, clears_at, 15.0 * S_PER_MIN)
    meaning = table.meaning or f"{of.title} is {condition.side} {table.below if below else table.above}."
    rule = Rule(
        name,
        condition,
        by,
        S_PER_HOUR,
        "warning",
        class_of_metric(of.name, of.topic),
        meaning,
        table.ask_first,
        table.look_next,
        is_shipped=False,
    )
    return _adjust(rule, table, unit)


def _change(rules: dict[str, Rule], table: AlertTable) -> Rule:
    rule = rules.get(table.rule or "")
    if rule is None:
        raise no_such("rule", table.rule or "", rules)
    if table.by is not None and table.by != rule.by:
        raise InputError("what a shipped rule is split by stays; give a rule by something else a `name` of its own")
    unit = metric(rule.condition.metric).unit if isinstance(rule.condition, Threshold) else ""
    return _adjust(rule, table, unit)


def _adjust(rule: Rule, table: AlertTable, unit: str) -> Rule:
    changed: dict[str, Any] = {
        name: value
        for name, value in (
            ("for_s", None if table.hold is None else table.hold.s), ("severity", table.severity),
            ("meaning", table.meaning or None), ("cause", _read_class(table.cause)), ("ask_first", table.ask_first or None),
            ("look_next", table.look_next or None),
        )
        if value is not None
    }  # fmt: skip
    if isinstance(rule.condition, Threshold):
        changed["condition"] = _adjust_threshold(rule.condition, table, unit)
    else:
        changed["condition"] = _adjust_limits(rule.condition, table)
    if changed.get("for_s", 0.0) > LONGEST_S:
        raise InputError(f"`for` is {table.hold}; a rule waits a week at most")
    return replace(rule, **changed)


def _read_class(name: str | None) -> Cause | None:
    """The class of this name. Raises InputError where there is none."""
    found: Cause | None = next((cause for cause in CAUSES if cause == name), None)
    if name is not None and found is None:
        raise no_such("cause", name, CAUSES)
    return found


def _adjust_threshold(condition: Threshold, table: AlertTable, unit: str) -> Threshold:
    if table.limits:
        raise InputError("its threshold is given by `below` or `above`; it has no `limits`")
    given = table.below if table.below is not None else table.above
    if given is not None:
        side = "below" if table.below is not None else "above"
        if side != condition.side:
            raise InputError(f"it fires {condition.side} its threshold; say `{condition.side}`")
        limit = read_amount(given, unit)
        distance = condition.clears_at - condition.limit
        condition = replace(condition, limit=limit, clears_at=limit + distance)
    if table.clears_at is not None:
        condition = replace(condition, clears_at=read_amount(table.clears_at, unit))
    if table.window is not None:
        if not S_PER_MIN <= table.window.s <= LONGEST_S:
            raise InputError(f"`window` is {table.window}; give one between a minute and a week")
        condition = replace(condition, window_s=table.window.s)
    if table.least_coverage is not None:
        condition = replace(condition, least_coverage=table.least_coverage)
    wrong_way = (
        condition.clears_at < condition.limit if condition.side == "below" else condition.clears_at > condition.limit
    )
    if wrong_way:
        raise InputError(f"`clears_at` lies {condition.side} the threshold, where it fires; give one beyond it")
    return condition


def _adjust_limits(condition: Compound, table: AlertTable) -> Compound:
    if table.below is not None or table.above is not None or table.clears_at is not None or table.window is not None:
        raise InputError(f"it has thresholds by name; write limits = {{ {_name_limits(condition)} }}")
    limits = dict(condition.limits)
    for name, amount in table.limits.items():
        if name not in limits:
            raise no_such("limit", name, limits)
        limits[name] = _adjust_limit(name, limits[name], amount)
    return replace(condition, limits=limits)


def _adjust_limit(name: str, limit: Limit, amount: GivenThreshold) -> Limit:
    value = read_amount(amount, limit.unit)
    if not limit.low <= value <= limit.high:
        raise InputError(
            f"the limit {name} is {value:g}; {limit.meaning} lies between {limit.low:g} and {limit.high:g}"
        )
    return replace(limit, value=value)


def _name_limits(condition: Compound) -> str:
    return ", ".join(f"{name} = {limit.value:g}" for name, limit in condition.limits.items())


def read_amount(written: GivenThreshold | None, unit: str) -> float:
    """A threshold in a unit; a text may name the unit. Raises InputError for another unit, and for shares that are percents.

    >>> read_amount("40 %", "share"), read_amount("85 °C", "°C"), read_amount(0.5, "share")
    (0.4, 85.0, 0.5)
    """
    found = _NUMBER.fullmatch(str(written))
    if found is None:
        raise InputError(f'the threshold {written!r} is no number; write 0.5, or a text with the unit: "50 %"')
    value, given_unit = float(found[1]), found[2]
    if unit == "share" and given_unit == "%":
        value, given_unit = value / PERCENT, ""
    if given_unit not in ("", unit):
        raise InputError(f"the threshold {written!r} is in {given_unit}; what it limits is in {unit}")
    if unit == "share" and not 0 <= value <= 1:
        raise InputError(f'the threshold {written!r} is no share of one; write 0.5 or "50 %"')
    return value
