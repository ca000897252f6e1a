"""What people are told: transitions of one rule in one judgement as one message, in plain words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from loadfactor.base.units import MIN_PER_HOUR, MS_PER_MIN
from loadfactor.insight.alerts.alert import Alert, Transition
from loadfactor.insight.alerts.rule import Rule
from loadfactor.metrics.query.calendar import instant

MOST_LISTED: Final = 15
"""Of more alerts in one message the others are counted."""
LONGEST_NAME: Final = 120
RUNBOOKS: Final = "docs/alerts.md"
STATES: Final = ("firing", "resolved")


@dataclass(frozen=True)
class Links:
    """Where links lead: to the address of the server, and to where people read docs/alerts.md; empty where none is known."""

    server: str = ""
    runbooks: str = ""

    def to_alert(self, alert: Alert) -> str:
        """What the server knows of an alert."""
        return f"{self.server.rstrip('/')}/api/v1/alerts?id={quote(alert.fingerprint)}" if self.server else ""

    def to_runbook(self, rule: Rule) -> str:
        """What to do, where that is written down: an address, or a place in the documentation."""
        return rule.runbook.replace(RUNBOOKS, self.runbooks, 1) if self.runbooks else rule.runbook


@dataclass(frozen=True)
class Item:
    """One alert of a message: whom it is of, its facts, and where to read on."""

    state: str
    of: str
    when: str
    facts: tuple[str, ...]
    link: str


@dataclass(frozen=True)
class Message:
    """A message about one rule. `counts` is "2 firing, 1 resolved"; `more` says how many are not listed."""

    rule: str
    severity: str
    counts: str
    items: tuple[Item, ...]
    more: str = ""
    meaning: str = ""
    ask_first: str = ""
    look_next: str = ""
    runbook: str = ""


def compose(told: Sequence[Transition], rules: Mapping[str, Rule], links: Links) -> Message:
    """The message of transitions of one rule, of which there is at least one."""
    first = told[0].alert
    rule = rules.get(first.rule)
    in_order = sorted(told, key=lambda t: STATES.index(t.alert.state))
    states = [t.alert.state for t in told]
    more = len(told) - MOST_LISTED
    return Message(
        first.rule,
        first.severity,
        ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states),
        tuple(_describe(t.alert, links) for t in in_order[:MOST_LISTED]),
        f"and {more:,} more" if more > 0 else "",
        *((rule.meaning, rule.ask_first, rule.look_next, links.to_runbook(rule)) if rule else ()),
    )


def name_alert(alert: Alert) -> str:
    """Whom an alert is of: its group, and in whose name."""
    group = ", ".join(f"{name} {_shorten(value)}" for name, value in alert.by.items()) or "the fleet"
    holder = [f"{name} {_shorten(alert.holder[name])}" for name in ("job", "user", "team") if alert.holder.get(name)]
    return f"{group} ({', '.join(holder)})" if holder else group


def _describe(alert: Alert, links: Links) -> Item:
    if alert.state == "resolved":
        lasted = max((alert.end_ms or 0) - alert.start_ms, 0)
        facts: tuple[str, ...] = (alert.ended_because,) if alert.ended_because else ()
        return Item("resolved", name_alert(alert), f"after {_say_length(lasted)}", facts, links.to_alert(alert))
    when = f"since {instant(alert.start_ms):%Y-%m-%d %H:%M} UTC"
    return Item("firing", name_alert(alert), when, alert.evidence, links.to_alert(alert))


def _say_length(ms: int) -> str:
    """A length of time.

    >>> _say_length(35 * MS_PER_MIN), _say_length(150 * MS_PER_MIN)
    ('35 min', '2 h 30 min')
    """
    hours, minutes = divmod(round(ms / MS_PER_MIN), MIN_PER_HOUR)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _shorten(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
