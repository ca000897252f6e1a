"""What is new of alerts: what a judge says, beside what is known of those that fire, so that nothing is told twice or never."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from loadfactor.insight.alerts.alert import Alert, Transition

GONE = "its rule is no longer judged"


def find_changes(
    known: Mapping[str, Alert], told: Sequence[Transition], alive: Iterable[Alert], at_ms: int
) -> list[Transition]:
    """The transitions to keep, in order. `known`: alerts that fire as far as was told, by fingerprint; `alive`: those of the judge.

    What fires already does not fire again, what was never told is not resolved; afterwards those that fire are those of the judge.
    """
    firing = dict(known)
    changes: list[Transition] = []

    def change(transition: Transition) -> None:
        alert = transition.alert
        mark = alert.fingerprint
        if alert.state == "firing" and mark not in firing:
            firing[mark] = alert
            changes.append(transition)
        elif alert.state == "resolved" and mark in firing:
            holder = firing.pop(mark).holder  # as it was told: receivers know the alert by it
            changes.append(replace(transition, alert=replace(alert, holder=holder)))

    for transition in told:
        change(transition)
    still = {alert.fingerprint: alert for alert in alive if alert.state == "firing"}
    for mark in [mark for mark in firing if mark not in still]:
        ended = replace(firing[mark], state="resolved", end_ms=at_ms, ended_because=GONE)
        change(Transition(ended, at_ms))
    for alert in still.values():
        change(Transition(alert, at_ms))
    return changes
