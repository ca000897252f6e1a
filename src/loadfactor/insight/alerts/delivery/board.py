"""Alerts and silences as they are listed: by the server and the command line, from the outbox beside the books."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadfactor.base.paths import is_joint, list_folders
from loadfactor.insight.alerts.alert import Alert, read_alert
from loadfactor.insight.alerts.delivery.outbox import read_outbox
from loadfactor.insight.alerts.delivery.pending import Backlog, count_backlogs
from loadfactor.insight.alerts.delivery.silence import Silence, find_silence, list_silences
from loadfactor.insight.alerts.rule import Rule, describe_alert
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.query.reading import iso

STATES = ("firing", "pending", "resolved")
LIVING = ("firing", "pending")
_ORDER = {"critical": 0, "warning": 1, "info": 2}


@dataclass(frozen=True)
class ListedAlert:
    """An alert, and the silence that hides it, if any."""

    alert: Alert
    silence: Silence | None


@dataclass(frozen=True)
class AlertBoard:
    """Alerts as they are known: up to which instant was judged (None: nothing yet), alerts, silences and receivers."""

    judged_ms: int | None
    alerts: tuple[ListedAlert, ...] = ()
    silences: tuple[Silence, ...] = ()
    receivers: Mapping[str, Backlog] | None = None


def read_board(folder: Path, expiry_ms: int, states: Collection[str] = LIVING) -> AlertBoard:
    """The alerts of a store that are in one of some states, the most severe first, the latest of them first.

    `expiry_ms`: the time that silences end by.

    Raises StoreError and DamageError where it cannot be read. Changes nothing on the disk.
    """
    if is_joint(folder):
        return _join([read_board(of, expiry_ms, states) for of in list_folders(folder)])
    with read_outbox(folder) as connection:
        if connection is None:
            return AlertBoard(None)
        connection.execute("BEGIN")
        judged = connection.execute("SELECT judged_ms FROM judge").fetchone()
        silences = tuple(list_silences(connection))
        placeholders = ", ".join("?" * len(states))
        rows = connection.execute(f"SELECT body FROM alerts WHERE state IN ({placeholders})", tuple(states)).fetchall()
        alerts = sorted((read_alert(body) for (body,) in rows), key=_order)
        listed = tuple(ListedAlert(alert, find_silence(alert, silences, expiry_ms)) for alert in alerts)
        return AlertBoard(judged[0] if judged else None, listed, silences, count_backlogs(connection))


def _join(boards: Sequence[AlertBoard]) -> AlertBoard:
    """Boards of several stores as one: judged up to where all are, with what waits for the receivers of each."""
    judged = [of.judged_ms for of in boards if of.judged_ms is not None]
    receivers: dict[str, Backlog] = {}
    for of in boards:
        for name, own in (of.receivers or {}).items():
            other = receivers.get(name, Backlog())
            counts = (own.pending + other.pending, own.held + other.held, own.given_up + other.given_up)
            receivers[name] = Backlog(*counts, own.why or other.why)
    return AlertBoard(
        min(judged, default=None),
        tuple(sorted((alert for of in boards for alert in of.alerts), key=lambda listed: _order(listed.alert))),
        tuple(silence for of in boards for silence in of.silences),
        receivers if any(of.receivers is not None for of in boards) else None,
    )


def belongs_to(alert: Alert, team: str | None) -> bool:
    """Whether an alert is of a team's own: None is everybody."""
    return team is None or alert.by.get("team", alert.holder.get("team")) == team


def describe_listed(listed: ListedAlert, rules: Iterable[Rule]) -> dict[str, Any]:
    """An alert of a list as JSON has it."""
    return {
        "id": listed.alert.fingerprint,
        **describe_alert(listed.alert, rules),
        "silenced": listed.silence is not None,
        "silence": listed.silence and listed.silence.id,
    }


def describe_silence(silence: Silence, expiry_ms: int) -> dict[str, Any]:
    """A silence as JSON has it, active or not at `expiry_ms`."""
    end_ms = silence.until_ms if silence.ended_ms is None else silence.ended_ms
    return {
        "id": silence.id,
        "rule": silence.rule or None,
        "by": dict(silence.by),
        "from": iso(instant(silence.created_ms)),
        "until": iso(instant(end_ms)),
        "reason": silence.reason,
        "who": silence.who,
        "active": silence.is_active(expiry_ms),
    }


def _order(alert: Alert) -> tuple[int, int, int, str, str]:
    return STATES.index(alert.state), _ORDER[alert.severity], -alert.start_ms, alert.rule, repr(alert.group)
