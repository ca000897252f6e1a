"""Judging rules over some steps at once as data arrives: what was judged is kept, and judged again where late data changes it."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from math import isnan
from operator import itemgetter
from typing import Any, Final

import numpy as np

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_MIN, MS_PER_S
from loadfactor.books.books import Books
from loadfactor.books.step_totals import CutRows
from loadfactor.books.watched import Watched
from loadfactor.insight.alerts.alert import Alert, Transition
from loadfactor.insight.alerts.observed import Observed
from loadfactor.insight.alerts.rule import (
    Compound,
    Evidence,
    Flags,
    Group,
    KeptRecords,
    Records,
    Rule,
    Verdicts,
    judge_threshold,
)
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.tables.schema import ALWAYS, Span

NameHolder = Callable[[int, tuple[str, ...], Group], Mapping[str, str]]
_GONE, _BAD, _CLEAR, _KNOWN, _UNKNOWN = range(5)
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

    @property
    def known_ms(self) -> dict[str, int]:
        """When something was known last of alerts of which nothing is known now, by fingerprint."""
        return {self._alive[group].fingerprint: at_ms for group, at_ms in self._known_ms.items()}

    def keep_known(self, known_ms: Mapping[str, int]) -> None:
        """Go on from there."""
        marks = {alert.fingerprint: group for group, alert in self._alive.items()}
        self._known_ms = {marks[mark]: at_ms for mark, at_ms in known_ms.items() if mark in marks}

    def follow(
        self, verdicts: Verdicts, at_ms: Sequence[int], step_ms: int, name_holder: NameHolder, hours: Sequence[int]
    ) -> tuple[list[tuple[int, Transition]], dict[int, list[Alert]]]:
        """The transitions that the verdicts of steps, which end at `at_ms`, bring, each with the step's place, in order.

        And what lived when these steps began, `hours`: whoever goes on from one of them finds what is found here.
        """
        found: list[tuple[tuple[int, ...], Transition]] = []
        order = {group: (-1, number) for number, group in enumerate(self._alive)}
        places = self._find_places(verdicts)
        lived: dict[int, list[tuple[tuple[int, int], Alert]]] = {hour: [] for hour in hours}
        for group in [group for group in self._alive if group not in places]:
            found += self._end(group, 0, at_ms[0], "it is no longer there", order)
        is_gone = np.zeros_like(verdicts.is_bad) if verdicts.is_gone is None else verdicts.is_gone
        is_bad = verdicts.is_bad & ~is_gone
        followed: Flags = np.any(is_bad, axis=0)
        followed[list(places.values())] = True
        chosen = np.flatnonzero(followed)
        if len(chosen):
            courses = np.select(
                [
                    is_gone[:, chosen],
                    is_bad[:, chosen],
                    verdicts.is_clear[:, chosen],
                    ~np.isnan(verdicts.value[:, chosen]),
                ],
                [_GONE, _BAD, _CLEAR, _KNOWN],
                _UNKNOWN,
            )
            changes = np.ones((len(courses) + 1, len(chosen)), dtype=np.bool_)
            changes[1:-1] = courses[1:] != courses[:-1]
            changes[list(hours)] = True
            for number, place in enumerate(chosen.tolist()):
                group = verdicts.groups[place]
                limits = np.flatnonzero(changes[:, number]).tolist()
                course_of = courses[limits[:-1], number].tolist()
                self._places[group] = place
                for (first, after), course, follows in zip(
                    pairwise(limits), course_of, [*course_of[1:], _UNKNOWN], strict=True
                ):
                    is_alive = group in self._alive
                    if first in lived and is_alive:
                        lived[first].append((order[group], self._alive[group]))
                    run = range(first, after)
                    if course == _BAD:
                        lasted_ms = at_ms[after - 1] - at_ms[first] + step_ms
                        if not is_alive and lasted_ms < self._for_ms and follows != _UNKNOWN and after not in lived:
                            continue  # it pends, and is forgotten at once
                        found += self._hold(group, place, verdicts, run, at_ms, step_ms, name_holder, order)
                    elif is_alive:
                        found += self._go_on(group, course, run, at_ms, order)
                if group not in self._alive:
                    self._places.pop(group, None)
        self._alive = {group: self._alive[group] for group in sorted(self._alive, key=order.__getitem__)}
        transitions = [(key[0], transition) for key, transition in sorted(found, key=itemgetter(0))]
        return transitions, {hour: [alert for _, alert in sorted(of, key=itemgetter(0))] for hour, of in lived.items()}

    def _hold(
        self,
        group: Group,
        place: int,
        verdicts: Verdicts,
        run: range,
        at_ms: Sequence[int],
        step_ms: int,
        name_holder: NameHolder,
        order: dict[Group, tuple[int, int]],
    ) -> Iterator[tuple[tuple[int, ...], Transition]]:
        """The condition holds in a run of steps."""
        alert = self._alive.get(group)
        if alert is not None or len(run) > 1:
            self._known_ms[group] = at_ms[run[-1]]
        if alert is None:
            order[group] = run[0], place
        elif alert.state != "pending":
            return
        start_ms = at_ms[run[0]] - step_ms if alert is None else alert.start_ms
        fires = bisect_left(at_ms, start_ms + self._for_ms, run.start, run.stop)
        step = min(fires, run[-1])
        value = float(verdicts.value[step, place])
        alert = self._begin(group, start_ms, None if isnan(value) else value, verdicts.unit)
        if fires in run:
            holder = name_holder(step, self.rule.by, group)
            facts = verdicts.explain(step, place)
            alert = replace(alert, state="firing", fired_ms=at_ms[step], evidence=facts, holder=holder)
            yield (step, 1, place), Transition(alert, at_ms[step])
        self._alive[group] = alert

    def _go_on(
        self, group: Group, course: int, run: range, at_ms: Sequence[int], order: dict[Group, tuple[int, int]]
    ) -> Iterator[tuple[tuple[int, ...], Transition]]:
        """The condition does not hold, in a run of steps of one course, for a group with an alert."""
        alert = self._alive[group]
        first_ms = at_ms[run[0]]
        if course == _GONE:
            yield from self._end(group, run[0], first_ms, "it is no longer there", order)
        elif course == _CLEAR or (course == _KNOWN and alert.state == "pending"):
            yield from self._end(group, run[0], first_ms, "the condition holds no longer", order)
        elif course == _KNOWN:
            self._known_ms[group] = at_ms[run[-1]]
        else:
            longest = PENDING_UNKNOWN_MS if alert.state == "pending" else FIRING_UNKNOWN_MS
            known_ms = self._known_ms.setdefault(group, first_ms)
            for step in run:
                if at_ms[step] - known_ms > longest:
                    yield from self._end(group, step, at_ms[step], "nothing is known of it any longer", order)
                    break

    def keep_identity(self, fired: Mapping[Any, Alert]) -> None:
        """Give alerts that fire the beginnings under which they were sent, by `Alert.group`."""
        for group, alert in self._alive.items():
            known = fired.get(alert.group)
            if known is not None and alert.state == "firing":
                self._alive[group] = replace(alert, start_ms=known.start_ms, fired_ms=known.fired_ms)

    def _begin(self, group: Group, start_ms: int, value: float | None, unit: str) -> Alert:
        rule = self.rule
        by = dict(zip(rule.by, group, strict=True))
        return Alert(rule.name, by, rule.severity, rule.cause, "pending", start_ms, value=value, unit=unit)

    def _end(
        self, group: Group, step: int, at_ms: int, because: str, order: Mapping[Group, tuple[int, int]]
    ) -> Iterator[tuple[tuple[int, ...], Transition]]:
        alert = self._alive.pop(group)
        self._known_ms.pop(group, None)
        self._places.pop(group, None)
        if alert.state == "firing":
            ended = replace(alert, state="resolved", end_ms=at_ms, ended_because=because)
            yield (step, 0, *order[group]), Transition(ended, at_ms)

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


STEP_MS: Final = MS_PER_MIN
ROWS_AT_ONCE: Final = 400_000
"""About so many rows of the ledger are read at once."""
MOST_STEPS: Final = 1440
JUDGED_AT_ONCE: Final = 480
"""Steps: arrays of more would hold many groups that are long gone."""
FORGET_EVERY_MS: Final = JUDGED_AT_ONCE * STEP_MS
"""So often groups that are no more are forgotten."""
REMEMBERED_MS: Final = MS_PER_DAY
"""Data that is later than this changes no alert any longer."""


class Judge:
    """The rules, what lives of them, and up to which instant the books were judged."""

    def __init__(self, rules: Sequence[Rule], judged_ms: int, step_ms: int = STEP_MS) -> None:
        self.rules = tuple(rules)
        self.verdicts: dict[str, Verdicts] = {}
        """The verdicts at the end of the last step, by the names of rules."""
        self.judged_ms = judged_ms - judged_ms % step_ms
        self._step_ms = step_ms
        self._followers = [Follower(rule) for rule in self.rules]
        self._observed: Observed | None = None
        self._forget_ms = 0  # when groups that are no more are forgotten
        self._rows_of_a_step = 0
        self._kept = KeptRecords()
        self._checkpoints: dict[int, list[Alert]] = {}  # what lived at full hours, and at the beginning
        self._ended: list[Alert] = []

    @property
    def alive(self) -> list[Alert]:
        """Pending and firing alerts."""
        return [alert for follower in self._followers for alert in follower.alive]

    def step(self, watched: Watched, until_ms: int, changed_ms: int | None = None) -> list[Transition]:
        """Judge the steps that ended up to an instant. `changed_ms`: since when data came that belongs to judged steps.

        Late data changes them, too: alerts that would not have fired are resolved, and those that should have fired do.
        """
        transitions: list[Transition] = []
        if changed_ms is not None and changed_ms < self.judged_ms:
            transitions = self._judge_again(watched, changed_ms, self.judged_ms)
        transitions += self._go_on(watched, until_ms - until_ms % self._step_ms)
        return transitions

    def skip_to(self, at_ms: int) -> None:
        """Leave out the steps up to an instant, if there are any: it was away for too long."""
        if at_ms > self.judged_ms:
            self.judged_ms = at_ms - at_ms % self._step_ms
            self._observed, self._kept = None, KeptRecords()

    def go_back(self, watched: Watched, until_ms: int, known: Sequence[Alert] = ()) -> list[Transition]:
        """Judge up to an instant that lies before what was judged: the clock was ahead. Alerts of the time to come end.

        `known`: alerts that receivers know of, which may be more than the judge remembers.
        """
        until_ms -= until_ms % self._step_ms
        self._checkpoints = {at: alerts for at, alerts in self._checkpoints.items() if at <= until_ms}
        if not self._checkpoints:
            longest_ms = round(max((rule.for_s for rule in self.rules), default=0.0) * MS_PER_S) + MS_PER_HOUR
            start_ms = until_ms - min(longest_ms, REMEMBERED_MS)
            self._checkpoints = {start_ms - start_ms % self._step_ms: []}
        self._ended += [alert for alert in known if alert.state == "resolved"]
        return self._judge_again(watched, until_ms, until_ms)

    def dump(self) -> dict[str, Any]:
        """All that has to be kept to go on after a restart, as JSON has it."""
        return {
            "judged_ms": self.judged_ms,
            "alive": [asdict(alert) for alert in self.alive],
            "known_ms": {mark: at_ms for follower in self._followers for mark, at_ms in follower.known_ms.items()},
            "marks": {str(at): [asdict(alert) for alert in alerts] for at, alerts in self._checkpoints.items()},
            "ended": [asdict(alert) for alert in self._ended],
        }

    @classmethod
    def load(cls, rules: Sequence[Rule], state: Mapping[str, Any], step_ms: int = STEP_MS) -> "Judge":
        """The judge as it was when it was dumped; alerts of rules that are no more are left out."""
        judge = cls(rules, state["judged_ms"], step_ms)
        judge._live(_read_alerts(state["alive"]))
        for follower in judge._followers:
            follower.keep_known(state.get("known_ms", {}))
        judge._checkpoints = {int(at): _read_alerts(alerts) for at, alerts in state["marks"].items()}
        judge._ended = _read_alerts(state["ended"])
        return judge

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _go_on(self, watched: Watched, until_ms: int) -> list[Transition]:
        """Judge the steps from where it stands."""
        transitions: list[Transition] = []
        if until_ms <= self.judged_ms:
            return transitions
        if self._observed is None:
            self._observed = self._look_back(watched)
            self._forget_ms = self.judged_ms + FORGET_EVERY_MS
        records = Records(watched, (self.judged_ms, until_ms), self._kept)
        for span in self._divide((self.judged_ms, until_ms)):
            rows, begun = self._read(watched, self._observed, span)
            while self.judged_ms < span[1]:
                if self.judged_ms >= self._forget_ms:
                    self._observed.forget(self.judged_ms)
                    self._forget_ms = self.judged_ms + FORGET_EVERY_MS
                until = min(span[1], self._forget_ms, self.judged_ms + JUDGED_AT_ONCE * self._step_ms)
                part = rows.part((self.judged_ms, until))
                transitions += self._judge(self._observed.show(part, begun, records))
        self._ended += [t.alert for t in transitions if t.alert.state == "resolved"]
        oldest = self.judged_ms - REMEMBERED_MS
        self._ended = [alert for alert in self._ended if (alert.end_ms or 0) >= oldest]
        self._checkpoints = {at: alerts for at, alerts in self._checkpoints.items() if at >= oldest}
        return transitions

    def _judge(self, evidence: Evidence) -> list[Transition]:
        """Judge steps, and follow what comes of it; what lived at full hours is kept."""
        verdicts = [judge_rule(follower.rule, evidence) for follower in self._followers]
        at_ms = evidence.at_ms.tolist()
        hours = [n for n in range(1, len(at_ms)) if at_ms[n - 1] % MS_PER_HOUR == 0]
        if self.judged_ms % MS_PER_HOUR == 0 or not self._checkpoints:
            self._checkpoints[self.judged_ms] = self.alive
        self._checkpoints |= {at_ms[hour - 1]: [] for hour in hours}
        found: list[tuple[int, Transition]] = []
        for follower, of in zip(self._followers, verdicts, strict=True):
            transitions, lived = follower.follow(of, at_ms, self._step_ms, evidence.name_holder, hours)
            found += transitions
            for hour, alerts in lived.items():
                self._checkpoints[at_ms[hour - 1]] += alerts
        self.judged_ms = at_ms[-1]
        self.verdicts = {f.rule.name: of.pick(len(at_ms) - 1) for f, of in zip(self._followers, verdicts, strict=True)}
        return [transition for _, transition in sorted(found, key=itemgetter(0))]

    def _look_back(self, watched: Watched) -> Observed:
        observed = Observed([need for rule in self.rules for need in rule.needs], self._step_ms)
        first = watched.span[0]
        start = max(self.judged_ms - observed.longest_ms, first - first % self._step_ms)
        start = min(start, self.judged_ms)
        observed.begin(watched, start)
        for span in self._divide((start, self.judged_ms)):
            observed.add(*self._read(watched, observed, span))
        return observed

    def _divide(self, span: Span) -> Iterator[Span]:
        """Parts of a span whose rows fit into memory."""
        start, end = span
        while start < end:
            steps = ROWS_AT_ONCE // self._rows_of_a_step if self._rows_of_a_step else 1
            after = min(end, start + min(max(steps, 1), MOST_STEPS) * self._step_ms)
            yield start, after
            start = after

    def _read(self, watched: Watched, observed: Observed, span: Span) -> tuple[CutRows, Sequence[tuple[int, str]]]:
        """The rows of the steps of a span, and when which jobs begin in it."""
        rows = watched.read_steps(observed.metrics, observed.by, span, self._step_ms, self._kept.holdings)
        self._rows_of_a_step = max(1, len(rows.step) // rows.steps)
        return rows, watched.find_begun_jobs(span, self._step_ms)

    # -- late data -----------------------------------------------------------------------------------------------------

    def _judge_again(self, watched: Watched, changed_ms: int, until_ms: int) -> list[Transition]:
        before = self.alive
        earlier = [at for at in self._checkpoints if at <= changed_ms]
        self.judged_ms = max(earlier, default=min(self._checkpoints, default=until_ms))
        known = [alert for alert in (*before, *self._ended) if alert.state != "pending"]
        self._live(self._checkpoints.get(self.judged_ms, before))
        self._observed, self._kept = None, KeptRecords()
        self._ended = []
        again = self._go_on(watched, until_ms)
        transitions = list(self._reconcile(before, again, known))
        self._ended = [alert for alert in (*known, *(t.alert for t in transitions)) if alert.state == "resolved"]
        return transitions

    def _reconcile(
        self, before: Sequence[Alert], again: Sequence[Transition], known: list[Alert]
    ) -> Iterator[Transition]:
        """The transitions after steps were judged again: what fired and fires still stays the alert that it was."""
        fired = {alert.group: alert for alert in before if alert.state == "firing"}
        to_come = {
            group for group, alert in fired.items() if alert.start_ms >= self.judged_ms
        }  # by a clock that was ahead
        firing = {alert.group: alert for alert in self.alive if alert.state == "firing"}
        ends = {t.alert.group: t.alert for t in again if t.alert.state == "resolved"}
        for group, alert in fired.items():
            if group in to_come:
                because = "the clock was ahead when it fired"
                ended_alert = replace(alert, state="resolved", end_ms=self.judged_ms, ended_because=because)
                yield Transition(ended_alert, self.judged_ms)
            elif group not in firing:
                end = ends.get(group)
                at = end.end_ms if end and end.end_ms else self.judged_ms
                because = end.ended_because if end else "data that came late says that the condition did not hold"
                yield Transition(replace(alert, state="resolved", end_ms=at, ended_because=because), self.judged_ms)
        fired = {group: alert for group, alert in fired.items() if group not in to_come}
        ended = {t.alert.fingerprint for t in again if t.alert.state == "resolved"}
        for transition in again:
            alert = transition.alert
            was_known = any(alert.group == of.group and _meet(alert, of) for of in known)
            if alert.group not in fired and not (was_known and alert.fingerprint in ended):
                yield transition
        for follower in self._followers:
            follower.keep_identity(fired)

    def _live(self, alerts: Sequence[Alert]) -> None:
        """Begin with these alerts."""
        self._followers = [
            Follower(rule, [alert for alert in alerts if alert.rule == rule.name and {*alert.by} == {*rule.by}])
            for rule in self.rules
        ]


def judge_rule(rule: Rule, evidence: Evidence) -> Verdicts:
    """The verdicts of a rule at the ends of some steps."""
    if isinstance(rule.condition, Compound):
        limits = {name: limit.value for name, limit in rule.condition.limits.items()}
        return rule.condition.find(evidence, limits)
    return judge_threshold(rule.condition, rule.by, evidence)


def _meet(one: Alert, other: Alert) -> bool:
    """True where two alerts have an instant in common."""
    ends = [alert.end_ms if alert.end_ms is not None else ALWAYS[1] for alert in (one, other)]
    return one.start_ms < ends[1] and other.start_ms < ends[0]


def _read_alerts(rows: Sequence[Mapping[str, Any]]) -> list[Alert]:
    return [Alert(**{**row, "evidence": tuple(row["evidence"])}) for row in rows]


Progress = Callable[[str, float], None]


def _quiet(_what: str, _share: float) -> None:
    """Says nothing of progress."""


def replay(books: Books, rules: Sequence[Rule], span: Span | None = None, progress: Progress = _quiet) -> list[Alert]:
    """The alerts that fired in a span, by default in all that the books know of, in order; those that fire at its end have no end.

    Raises InputError where the books know nothing.
    """
    first, last = (milliseconds(at) for at in books.span)
    start, end = (first, last) if span is None else (max(first, span[0]), min(last, span[1]))
    start, end = start - start % STEP_MS, end - end % STEP_MS
    judge, fired = Judge(rules, start), dict[str, Alert]()
    with books.watch() as watched:
        while judge.judged_ms < end:
            for transition in judge.step(watched, min(end, judge.judged_ms + MOST_STEPS * STEP_MS)):
                fired[transition.alert.fingerprint] = transition.alert
            progress("judging", (judge.judged_ms - start) / (end - start))
    return sorted(fired.values(), key=lambda alert: (alert.start_ms, alert.rule, alert.group))
