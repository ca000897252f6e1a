"""What becomes of the verdicts of one rule: an alert is pending while its condition holds, fires after a while, and is resolved."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from loadfactor.base.units import MS_PER_HOUR, MS_PER_MIN, MS_PER_S
from loadfactor.insight.alerts.alert import Alert, Transition
from loadfactor.insight.alerts.evidence import Group, Verdicts
from loadfactor.insight.alerts.rule import Rule

NameHolder = Callable[[tuple[str, ...], Group], Mapping[str, str]]
PENDING_UNKNOWN_MS = 10 * MS_PER_MIN
"""A pending alert of which nothing is known for this long is dropped."""
FIRING_UNKNOWN_MS = MS_PER_HOUR
"""A firing one is resolved then: nobody knows whether it still holds."""


class Follower:
    """The alerts of one rule that live."""

    def __init__(self, rule: Rule, alive: Sequence[Alert] = ()) -> None:
        self.rule = rule
        self._for_ms = rule.for_s * MS_PER_S
        self._alive = {self._group_of(alert): alert for alert in alive}
        self._places: dict[Group, int] = {}
        self._known_ms: dict[Group, int] = {}

    @property
    def alive(self) -> list[Alert]:
        """Pending and firing alerts."""
        return list(self._alive.values())

    def step(self, verdicts: Verdicts, at_ms: int, step_ms: int, name_holder: NameHolder) -> Iterator[Transition]:
        """What the verdicts of the step that ends at an instant change."""
        places = self._find_places(verdicts)
        for group, alert in list(self._alive.items()):
            place = places.get(group)
            if place is None or (verdicts.is_gone is not None and verdicts.is_gone[place]):
                yield from self._end(group, alert, at_ms, "it is no longer there")
            elif verdicts.is_bad[place]:
                self._known_ms[group] = at_ms
            elif verdicts.is_clear[place] or (alert.state == "pending" and not np.isnan(verdicts.value[place])):
                yield from self._end(group, alert, at_ms, "the condition holds no longer")
            elif not np.isnan(verdicts.value[place]):
                self._known_ms[group] = at_ms
            else:
                longest = PENDING_UNKNOWN_MS if alert.state == "pending" else FIRING_UNKNOWN_MS
                if at_ms - self._known_ms.setdefault(group, at_ms) > longest:
                    yield from self._end(group, alert, at_ms, "nothing is known of it any longer")
        for place in np.flatnonzero(verdicts.is_bad).tolist():
            if verdicts.is_gone is not None and verdicts.is_gone[place]:
                continue
            group = verdicts.groups[place]
            alert = self._alive.get(group) or self._begin(group, at_ms - step_ms, verdicts.unit)
            self._places[group] = place
            if alert.state == "pending":
                value = float(verdicts.value[place])
                alert = replace(alert, value=None if np.isnan(value) else value)
                if at_ms - alert.start_ms >= self._for_ms:
                    holder = name_holder(self.rule.by, group)
                    facts = verdicts.explain(place)
                    alert = replace(alert, state="firing", fired_ms=at_ms, evidence=facts, holder=holder)
                    yield Transition(alert, at_ms)
                self._alive[group] = alert

    def keep_identity(self, fired: Mapping[Any, Alert]) -> None:
        """Give alerts that fire the beginnings under which they were told, by `Alert.group`."""
        for group, alert in self._alive.items():
            told = fired.get(alert.group)
            if told is not None and alert.state == "firing":
                self._alive[group] = replace(alert, start_ms=told.start_ms, fired_ms=told.fired_ms)

    def _begin(self, group: Group, start_ms: int, unit: str) -> Alert:
        rule = self.rule
        by = dict(zip(rule.by, group, strict=True))
        return Alert(rule.name, by, rule.severity, rule.cause, "pending", start_ms, unit=unit)

    def _end(self, group: Group, alert: Alert, at_ms: int, because: str) -> Iterator[Transition]:
        del self._alive[group]
        self._known_ms.pop(group, None)
        self._places.pop(group, None)
        if alert.state == "firing":
            yield Transition(replace(alert, state="resolved", end_ms=at_ms, ended_because=because), at_ms)

    def _find_places(self, verdicts: Verdicts) -> Mapping[Group, int]:
        """Where the verdict of each living alert stands: mostly where it stood before, as groups are only added."""
        groups = verdicts.groups
        kept = {g: p for g in self._alive if (p := self._places.get(g, -1)) >= 0 and p < len(groups) and groups[p] == g}
        if len(kept) < len(self._alive):
            kept = {group: place for place, group in enumerate(groups) if group in self._alive}
            self._places = dict(kept)
        return kept

    def _group_of(self, alert: Alert) -> Group:
        return tuple(alert.by[name] for name in self.rule.by)
