"""Deliveries: who has yet to be told of which transition, what a silence holds back, and what came of telling."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from loadfactor.insight.alerts.alert import Alert, Transition
from loadfactor.insight.alerts.delivery.alert_text import read_alert
from loadfactor.insight.alerts.delivery.outbox import Outbox
from loadfactor.insight.alerts.delivery.silence import find_silence
from loadfactor.insight.alerts.delivery.silences import list_silences

MOST_AT_ONCE: Final = 5_000
_UNTOLD: Final = "it was silenced until it was over"


@dataclass(frozen=True)
class Owed:
    """A transition that a receiver has yet to be told of: `number` and `key` name it, those of one `batch` are told together."""

    number: int
    key: str
    transition: Transition
    batch: str
    attempts: int
    since_ms: int

    @property
    def alert(self) -> Alert:
        """The alert as it was when it changed."""
        return self.transition.alert


@dataclass(frozen=True)
class Arrears:
    """How a receiver fares: transitions that wait, that a silence holds back, that were given up, and what went wrong last."""

    pending: int = 0
    held: int = 0
    given_up: int = 0
    why: str = ""


def take(outbox: Outbox, receiver: str, now_ms: int, takes_all: bool = False) -> list[Owed]:
    """What a receiver is to be told now: one batch, or all there is where `takes_all`; nothing where nothing is due.

    What a silence hides is held back until the silence ends, and dropped where the alert ended before. An end is told after its
    beginning, and only where the beginning was told.
    """
    with outbox.change() as connection:
        silences = [silence for silence in list_silences(connection) if silence.is_active(now_ms)]
        for owed, is_over in list(_list_held(connection, receiver)):
            if is_over:
                _set(connection, receiver, [owed], "dropped", _UNTOLD)
            elif find_silence(owed.alert, silences, now_ms) is None:
                connection.execute(
                    "UPDATE deliveries SET state = 'pending', batch = ?, since_ms = ?, next_ms = ?, why = ''"
                    " WHERE receiver = ? AND transition = ?",
                    (f"{owed.batch}-{now_ms}", now_ms, now_ms, receiver, owed.number),
                )
        due: dict[int, Owed] = {}
        for owed in list(_list_due(connection, receiver, now_ms)):
            if owed.alert.state == "firing":
                if find_silence(owed.alert, silences, now_ms) is not None:
                    _set(connection, receiver, [owed], "held", "silenced")
                    continue
            elif (begun := _find_beginning(connection, receiver, owed)) is None or begun[1] in ("held", "dropped"):
                _set(connection, receiver, [owed], "dropped", _UNTOLD)
                continue
            elif begun[1] == "pending" and begun[0] not in due:
                _put_back(connection, receiver, owed, begun[2])
                continue
            due[owed.number] = owed
    found = list(due.values())
    return found if takes_all else [owed for owed in found if owed.batch == found[0].batch]


def settle(outbox: Outbox, receiver: str, told: Sequence[Owed], now_ms: int) -> None:
    """A receiver has these."""
    with outbox.change() as connection:
        _set(connection, receiver, told, "done", "", now_ms)


def give_up(outbox: Outbox, receiver: str, owed: Sequence[Owed], why: str) -> None:
    """A receiver will not be told of these."""
    with outbox.change() as connection:
        _set(connection, receiver, owed, "given up", why)


def put_off(outbox: Outbox, receiver: str, owed: Sequence[Owed], why: str, next_ms: int) -> None:
    """Telling a receiver did not work: again at an instant."""
    with outbox.change() as connection:
        connection.executemany(
            "UPDATE deliveries SET attempts = attempts + 1, next_ms = ?, why = ? WHERE receiver = ? AND transition = ?",
            [(next_ms, why, receiver, one.number) for one in owed],
        )


def list_told(outbox: Outbox, receiver: str) -> list[Alert]:
    """The alerts that fire, as far as a receiver knows of them."""
    with outbox.change() as connection:
        rows = connection.execute(
            "SELECT t.body FROM deliveries d JOIN transitions t ON t.number = d.transition"
            " JOIN alerts a USING (fingerprint) WHERE d.receiver = ? AND d.state IN ('done', 'given_up')"
            " AND t.state = 'firing' AND a.state = 'firing' ORDER BY t.number",
            (receiver,),
        ).fetchall()
    return list({alert.fingerprint: alert for (body,) in rows for alert in [read_alert(body)]}.values())


def count_arrears(connection: sqlite3.Connection) -> Mapping[str, Arrears]:
    """How each receiver fares, by name."""
    found: dict[str, Arrears] = {}
    rows = connection.execute(
        "SELECT receiver, count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE state = 'held'),"
        " count(*) FILTER (WHERE state = 'given up') FROM deliveries GROUP BY receiver"
    )
    for receiver, pending, held, given_up in rows.fetchall():
        last = connection.execute(
            "SELECT why FROM deliveries WHERE receiver = ? AND why != '' AND state IN ('pending', 'given up')"
            " ORDER BY transition DESC LIMIT 1",
            (receiver,),
        ).fetchone()
        found[receiver] = Arrears(pending, held, given_up, last[0] if last else "")
    return found


_COLUMNS: Final = "t.number, t.key, t.body, t.at_ms, d.batch, d.attempts, d.since_ms"


def _list_due(connection: sqlite3.Connection, receiver: str, now_ms: int) -> Iterator[Owed]:
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM deliveries d JOIN transitions t ON t.number = d.transition"
        " WHERE d.receiver = ? AND d.state = 'pending' AND d.next_ms <= ? ORDER BY t.number LIMIT ?",
        (receiver, now_ms, MOST_AT_ONCE),
    )
    return map(_read, rows.fetchall())


def _list_held(connection: sqlite3.Connection, receiver: str) -> Iterator[tuple[Owed, bool]]:
    """What a silence holds back, and whether it is over."""
    rows = connection.execute(
        f"SELECT {_COLUMNS}, coalesce(a.state, 'resolved') != 'firing' FROM deliveries d"
        " JOIN transitions t ON t.number = d.transition LEFT JOIN alerts a USING (fingerprint)"
        " WHERE d.receiver = ? AND d.state = 'held' ORDER BY t.number",
        (receiver,),
    )
    return ((_read(row[:-1]), bool(row[-1])) for row in rows.fetchall())


def _find_beginning(connection: sqlite3.Connection, receiver: str, owed: Owed) -> tuple[int, str, int] | None:
    """The delivery that says that the alert fired: number, state, next try. None where a receiver was never to hear it."""
    found: tuple[int, str, int] | None = connection.execute(
        "SELECT t.number, d.state, d.next_ms FROM deliveries d JOIN transitions t ON t.number = d.transition"
        " WHERE d.receiver = ? AND t.fingerprint = ? AND t.state = 'firing' AND t.number < ?"
        " ORDER BY t.number DESC LIMIT 1",
        (receiver, owed.alert.fingerprint, owed.number),
    ).fetchone()
    return found


def _put_back(connection: sqlite3.Connection, receiver: str, owed: Owed, next_ms: int) -> None:
    """Not before an instant."""
    connection.execute(
        "UPDATE deliveries SET next_ms = ? WHERE receiver = ? AND transition = ?", (next_ms, receiver, owed.number)
    )


def _set(
    connection: sqlite3.Connection,
    receiver: str,
    owed: Sequence[Owed],
    state: str,
    why: str,
    done_ms: int | None = None,
) -> None:
    connection.executemany(
        "UPDATE deliveries SET state = ?, why = ?, done_ms = ? WHERE receiver = ? AND transition = ?",
        [(state, why, done_ms, receiver, one.number) for one in owed],
    )


def _read(row: Sequence[Any]) -> Owed:
    number, key, body, at_ms, batch, attempts, since_ms = row
    return Owed(number, key, Transition(read_alert(body), at_ms), batch, attempts, since_ms)
