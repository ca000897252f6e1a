"""The page of `loadfactor alerts`: what fires and why, what is about to, and what is silenced."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from loadfactor.base.errors import no_such
from loadfactor.base.units import MS_PER_MIN, MS_PER_S
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.delivery.courier import now_ms
from loadfactor.insight.alerts.delivery.listed import (
    LIVING,
    STATES,
    AlertBoard,
    ListedAlert,
    belongs_to,
    describe_listed,
    read_board,
)
from loadfactor.insight.alerts.rule import Rule
from loadfactor.insight.alerts.rules import RULES
from loadfactor.interfaces.document import DataTable, Document, Section, Suggestion, TableColumn
from loadfactor.interfaces.formats import counted, duration, instant
from loadfactor.interfaces.pages.alerts import name_group
from loadfactor.metrics.query.calendar import instant as moment
from loadfactor.metrics.query.reading import iso
from loadfactor.settings.config import settings

MOST_ROWS = 12
LONG_AGO_MS = 10 * MS_PER_MIN
"""Where nothing was judged for so long, the page says so."""


@dataclass(frozen=True)
class FiringAlerts:
    """Alerts as their JSON has them, and up to when was judged."""

    judged: str | None
    alerts: Sequence[Mapping[str, Any]]


def build_board(folder: Path, rule_names: Sequence[str], team: str | None, with_ended: bool) -> Document:
    """What fires now, by rule. Raises InputError for a rule that is none, StoreError and DamageError."""
    now, rules = now_ms(), configure(RULES, settings().alert)
    names = [rule.name for rule in rules]
    for name in rule_names:
        if name not in names:
            raise no_such("rule", name, names)
    board = read_board(folder, now, STATES if with_ended else LIVING)
    found = [
        listed
        for listed in board.alerts
        if belongs_to(listed.alert, team) and (not rule_names or listed.alert.rule in rule_names)
    ]
    judged = None if board.judged_ms is None else iso(moment(board.judged_ms))
    data = FiringAlerts(judged, [describe_listed(listed, rules) for listed in found])
    told = [listed for listed in found if listed.alert.state == "firing"]
    in_order = list(dict.fromkeys(listed.alert.rule for listed in found if listed.alert.state != "pending"))
    by_name = {rule.name: rule for rule in rules}
    sections = [
        _list_rule([a for a in found if a.alert.rule == name and a.alert.state != "pending"], by_name.get(name), now)
        for name in in_order
    ]
    waiting = Counter(listed.alert.rule for listed in found if listed.alert.state == "pending")
    sections += [_list_pending(waiting, by_name)] if waiting else []
    sections += [_suggest(told[0], folder)] if told and told[0].silence is None else []
    sections += [Section("Not told yet", said)] if (said := _say_receivers(board)) else []
    return Document(_say(told, board), sections, _say_judged(board, now), data=data)


def _say(told: Sequence[ListedAlert], board: AlertBoard) -> str:
    if board.judged_ms is None:
        return "Nothing was judged yet: `loadfactor up` judges these books as data arrives."
    if not told:
        return "Nothing fires."
    silenced = sum(listed.silence is not None for listed in told)
    critical = sum(listed.alert.severity == "critical" for listed in told)
    parts = [f"{critical} critical"] if critical else []
    parts += [f"{silenced} silenced"] if silenced else []
    one = "alert fires" if len(told) == 1 else "alerts fire"
    return f"{len(told):,} {one}{', ' if parts else ''}{', '.join(parts)}."


def _say_judged(board: AlertBoard, now: int) -> str:
    if board.judged_ms is None:
        return ""
    until = instant(moment(board.judged_ms))
    ago = now - board.judged_ms
    late = f", {duration(ago / MS_PER_S)} ago: is `loadfactor up` running?" if ago > LONG_AGO_MS else "."
    return f"Judged through {until}{late}"


def _list_rule(found: Sequence[ListedAlert], rule: Rule | None, now: int) -> Section:
    """The alerts of a rule, with what to ask and what to look at."""
    columns = tuple(TableColumn(name) for name in ("of", "since", "lasts", "evidence"))
    rows = [
        (name_group(a.alert), _say_start(a), _say_length(a, now), "; ".join(a.alert.evidence))
        for a in found[:MOST_ROWS]
    ]
    more = len(found) - len(rows)
    note = f"and {more:,} more; --format json has all" if more else ""
    lead = f"{rule.meaning} {rule.ask_first} {rule.look_next}" if rule else ""
    severity = found[0].alert.severity
    return Section(f"{found[0].alert.rule} ({severity})", lead, tables=(DataTable(columns, rows, note=note),))


def _list_pending(waiting: Counter[str], rules: Mapping[str, Rule]) -> Section:
    """Rules whose condition holds and has not held for long enough."""
    columns = (TableColumn("rule"), TableColumn("alerts", "number", digits=9), TableColumn("fires after", "duration"))
    rows = [(name, count, rules[name].for_s if name in rules else None) for name, count in waiting.most_common()]
    return Section("Pending", tables=(DataTable(columns, rows),))


def _suggest(listed: ListedAlert, folder: Path) -> Section:
    alert = listed.alert
    by = f" --by {quote(','.join(f'{name}={value}' for name, value in alert.by.items()))}" if alert.by else ""
    command = f"loadfactor alerts silence {alert.rule}{by} --for 2h --reason WHY --store {quote(str(folder))}"
    return Section(suggestions=(Suggestion(command, "have the first of them told to nobody for two hours"),))


def _say_start(listed: ListedAlert) -> str:
    return instant(moment(listed.alert.start_ms))


def _say_length(listed: ListedAlert, now: int) -> str:
    alert = listed.alert
    length = duration(((now if alert.end_ms is None else alert.end_ms) - alert.start_ms) / MS_PER_S)
    if alert.end_ms is not None:
        return f"{length}, ended"
    return f"{length}, silenced" if listed.silence else length


def _say_receivers(board: AlertBoard) -> str:
    """What receivers do not know."""
    return "\n".join(
        f"{name} lacks {counted(a.pending + a.given_up, 'transition')}: {a.why}"
        for name, a in (board.receivers or {}).items()
        if (a.pending or a.given_up) and a.why
    )
