"""Judging rules step by step as data arrives: what was judged is kept, and judged again where late data changes it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_MIN
from loadfactor.books.watched import Watched
from loadfactor.insight.alerts.alert import Alert, Transition
from loadfactor.insight.alerts.evidence import Evidence, Verdicts
from loadfactor.insight.alerts.follow import Follower
from loadfactor.insight.alerts.observed import Observed
from loadfactor.insight.alerts.records import KeptRecords, Records
from loadfactor.insight.alerts.rule import Compound, Rule
from loadfactor.insight.alerts.threshold import judge_threshold
from loadfactor.tables.schema import ALWAYS, Span

STEP_MS: Final = MS_PER_MIN
ROWS_AT_ONCE: Final = 250_000
"""About so many rows of the ledger are read at once."""
MOST_STEPS: Final = 240
REMEMBERED_MS: Final = MS_PER_DAY
"""Data that is later than this changes no alert any longer."""


class Judge:
    """The rules, what lives of them, and up to which instant the books were judged."""

    def __init__(self, rules: Sequence[Rule], judged_ms: int, step_ms: int = STEP_MS) -> None:
        self.rules = tuple(rules)
        self.verdicts: dict[str, Verdicts] = {}
        """What the conditions said at the end of the last step, by the names of rules."""
        self.judged_ms = judged_ms - judged_ms % step_ms
        self._step_ms = step_ms
        self._followers = [Follower(rule) for rule in self.rules]
        self._observed: Observed | None = None
        self._forget_ms = 0  # when groups that are no more are forgotten, by beginning anew
        self._rows_of_a_step = 0
        self._kept = KeptRecords()
        self._marks: dict[int, list[Alert]] = {}  # what lived at full hours, and at the beginning
        self._ended: list[Alert] = []

    @property
    def alive(self) -> list[Alert]:
        """Pending and firing alerts."""
        return [alert for follower in self._followers for alert in follower.alive]

    def step(self, watched: Watched, until_ms: int, changed_ms: int | None = None) -> list[Transition]:
        """Judge the steps that ended up to an instant. `changed_ms`: since when data came that belongs to judged steps.

        What late data changes is told, too: alerts that would not have fired are resolved, and those that should have fired do.
        """
        told: list[Transition] = []
        if changed_ms is not None and changed_ms < self.judged_ms:
            told = self._judge_again(watched, changed_ms)
        told += self._go_on(watched, until_ms - until_ms % self._step_ms)
        return told

    def dump(self) -> dict[str, Any]:
        """All that has to be kept to go on after a restart, as JSON has it."""
        return {
            "judged_ms": self.judged_ms,
            "alive": [asdict(alert) for alert in self.alive],
            "marks": {str(at): [asdict(alert) for alert in alerts] for at, alerts in self._marks.items()},
            "ended": [asdict(alert) for alert in self._ended],
        }

    @classmethod
    def load(cls, rules: Sequence[Rule], state: Mapping[str, Any], step_ms: int = STEP_MS) -> "Judge":
        """The judge as it was when it was dumped; alerts of rules that are no more are left out."""
        judge = cls(rules, state["judged_ms"], step_ms)
        judge._live(_read_alerts(state["alive"]))
        judge._marks = {int(at): _read_alerts(alerts) for at, alerts in state["marks"].items()}
        judge._ended = _read_alerts(state["ended"])
        return judge

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _go_on(self, watched: Watched, until_ms: int) -> list[Transition]:
        """Judge the steps from where it stands."""
        told: list[Transition] = []
        if until_ms <= self.judged_ms:
            return told
        if self._observed is None or self.judged_ms >= self._forget_ms:
            self._observed = self._look_back(watched)
            self._forget_ms = self.judged_ms + MS_PER_DAY
        for records, span in self._divide(watched, (self.judged_ms, until_ms)):
            for evidence in self._read(watched, self._observed, span, records):
                told += self._judge(evidence, self._observed)
        self._ended += [t.alert for t in told if t.alert.state == "resolved"]
        oldest = self.judged_ms - REMEMBERED_MS
        self._ended = [alert for alert in self._ended if (alert.end_ms or 0) >= oldest]
        self._marks = {at: alerts for at, alerts in self._marks.items() if at >= oldest}
        return told

    def _judge(self, evidence: Evidence, observed: Observed) -> Iterator[Transition]:
        """Judge one step."""
        if self.judged_ms % MS_PER_HOUR == 0 or not self._marks:
            self._marks[self.judged_ms] = self.alive
        for follower in self._followers:
            verdicts = self.verdicts[follower.rule.name] = judge_rule(follower.rule, evidence)
            yield from follower.step(verdicts, evidence.at_ms, self._step_ms, observed.name_holder)
        self.judged_ms = evidence.at_ms

    def _look_back(self, watched: Watched) -> Observed:
        """What rules read of the time before the first step that is judged."""
        observed = Observed([need for rule in self.rules for need in rule.needs], self._step_ms)
        first = watched.span[0]
        start = max(self.judged_ms - observed.longest_ms, first - first % self._step_ms)
        start = min(start, self.judged_ms)
        observed.begin(watched, start)
        for records, span in self._divide(watched, (start, self.judged_ms)):
            for _ in self._read(watched, observed, span, records):
                pass
        return observed

    def _divide(self, watched: Watched, span: Span) -> Iterator[tuple[Records, Span]]:
        """The records of a span, and parts of it whose rows fit into memory."""
        start, end = span
        if start >= end:
            return
        records = Records(watched, span, self._kept)
        while start < end:
            steps = ROWS_AT_ONCE // self._rows_of_a_step if self._rows_of_a_step else 1
            after = min(end, start + min(max(steps, 1), MOST_STEPS) * self._step_ms)
            yield records, (start, after)
            start = after

    def _read(self, watched: Watched, observed: Observed, span: Span, records: Records) -> Iterator[Evidence]:
        """Read steps, and what rules read after each of them."""
        steps = watched.read_steps(observed.metrics, observed.by, span, self._step_ms, self._kept.holdings)
        begun = watched.find_begun_jobs(span, self._step_ms)
        for rows in steps:
            self._rows_of_a_step = max(rows.count, 1)
            observed.add(rows, {job: at for at, job in begun if rows.start_ms <= at < rows.end_ms})
            yield observed.show(records)

    # -- late data -----------------------------------------------------------------------------------------------------

    def _judge_again(self, watched: Watched, changed_ms: int) -> list[Transition]:
        """Judge again what late data may have changed, and say what is otherwise now."""
        until_ms, before = self.judged_ms, self.alive
        marks = [at for at in self._marks if at <= changed_ms]
        self.judged_ms = max(marks, default=min(self._marks, default=until_ms))
        known = [alert for alert in (*before, *self._ended) if alert.state != "pending"]
        self._live(self._marks.get(self.judged_ms, before))
        self._observed, self._kept = None, KeptRecords()
        self._ended = []
        again = self._go_on(watched, until_ms)
        told = list(self._reconcile(before, again, known))
        self._ended = [alert for alert in (*known, *(t.alert for t in told)) if alert.state == "resolved"]
        return told

    def _reconcile(
        self, before: Sequence[Alert], again: Sequence[Transition], known: list[Alert]
    ) -> Iterator[Transition]:
        """What to tell after steps were judged again: what fired and fires still stays the alert that it was."""
        fired = {alert.group: alert for alert in before if alert.state == "firing"}
        firing = {alert.group: alert for alert in self.alive if alert.state == "firing"}
        ends = {t.alert.group: t.alert for t in again if t.alert.state == "resolved"}
        for group, alert in fired.items():
            if group not in firing:
                end = ends.get(group)
                at = end.end_ms if end and end.end_ms else self.judged_ms
                because = end.ended_because if end else "data that came late says that the condition did not hold"
                yield Transition(replace(alert, state="resolved", end_ms=at, ended_because=because), self.judged_ms)
        ended = {t.alert.fingerprint for t in again if t.alert.state == "resolved"}
        for told in again:
            alert = told.alert
            was_told = any(alert.group == of.group and _meet(alert, of) for of in known)
            if alert.group not in fired and not (was_told and alert.fingerprint in ended):
                yield told
        for follower in self._followers:
            follower.keep_identity(fired)

    def _live(self, alerts: Sequence[Alert]) -> None:
        """Begin with these alerts."""
        self._followers = [
            Follower(rule, [alert for alert in alerts if alert.rule == rule.name and {*alert.by} == {*rule.by}])
            for rule in self.rules
        ]


def judge_rule(rule: Rule, evidence: Evidence) -> Verdicts:
    """The verdicts of a rule at the end of a step."""
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
