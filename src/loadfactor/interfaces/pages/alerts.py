"""Pages of alerts: what would have fired in a stretch of history."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from loadfactor.base.units import MS_PER_S
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.described import describe_alert
from loadfactor.insight.alerts.rule import Rule
from loadfactor.interfaces.document import DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import counted, duration, instant
from loadfactor.metrics.query.calendar import instant as moment

FLEET = "the fleet"
MOST_ROWS = 8


@dataclass(frozen=True)
class ListedAlerts:
    """Alerts as their JSON has them."""

    alerts: Sequence[Mapping[str, Any]]


def build_replay(alerts: Sequence[Alert], rules: Sequence[Rule], window: tuple[datetime, datetime]) -> Document:
    """What would have fired: how often each rule, and every alert with its evidence."""
    start, end = window
    subtitle = f"{instant(start)} to {instant(end)}, judged minute by minute by {counted(len(rules), 'rule')}."
    data = ListedAlerts([describe_alert(alert, rules) for alert in alerts])
    if not alerts:
        return Document("Nothing would have fired.", subtitle=subtitle, data=data)
    fired = Counter(alert.rule for alert in alerts)
    sections = [_count_rules(alerts, rules, end)]
    sections += [
        _list_alerts([a for a in alerts if a.rule == rule.name], rule, end) for rule in rules if fired[rule.name]
    ]
    return Document(f"{counted(len(alerts), 'alert')} would have fired.", sections, subtitle, data=data)


def name_group(alert: Alert) -> str:
    """Whom an alert is of, in words: its group, and in whose name where that is somebody else."""
    group = ", ".join(f"{name} {value}" for name, value in alert.by.items()) or FLEET
    holder = alert.holder.get("user") or alert.holder.get("team")
    return f"{group} ({holder})" if holder and alert.by else group


def _count_rules(alerts: Sequence[Alert], rules: Sequence[Rule], end: datetime) -> Section:
    counts = Counter(alert.rule for alert in alerts)
    columns = (
        TableColumn("rule"),
        TableColumn("alerts", "number"),
        TableColumn("longest", "duration"),
        TableColumn("severity"),
    )
    rows = [
        (rule.name, counts[rule.name], max(_lasted_s(a, end) for a in alerts if a.rule == rule.name), rule.severity)
        for rule in rules
        if counts[rule.name]
    ]
    return Section("By rule", tables=(DataTable(columns, rows),))


def _list_alerts(alerts: Sequence[Alert], rule: Rule, end: datetime) -> Section:
    """The alerts of a rule, the longest first, with what to ask and what to look at."""
    columns = tuple(TableColumn(name) for name in ("of", "since", "lasted", "evidence"))
    longest = sorted(alerts, key=lambda alert: -_lasted_s(alert, end))[:MOST_ROWS]
    rows = [
        (name_group(a), instant(moment(a.start_ms)), _say_length(a, end), a.evidence[0] if a.evidence else "")
        for a in longest
    ]
    more = len(alerts) - len(rows)
    note = f"and {counted(more, 'shorter one')}; --format json has all" if more else ""
    lead = f"{rule.meaning} {rule.ask_first} {rule.look_next}"
    return Section(rule.name, lead, tables=(DataTable(columns, rows, note=note),))


def _lasted_s(alert: Alert, end: datetime) -> float:
    until = end.timestamp() if alert.end_ms is None else alert.end_ms / MS_PER_S
    return until - alert.start_ms / MS_PER_S


def _say_length(alert: Alert, end: datetime) -> str:
    return duration(_lasted_s(alert, end)) + (" and on" if alert.end_ms is None else "")
