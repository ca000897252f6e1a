"""An alert as JSON has it: in lists, in replays, and in what receivers are sent."""

from collections.abc import Iterable
from math import isfinite
from typing import Any

from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.rule import Rule
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.query.reading import iso


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
