"""Deliveries: the transitions that are pending for each receiver, what a silence holds back, and what came of sending."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from loadfactor.base.units import MS_PER_S
from loadfactor.insight.alerts.alert import Alert, Transition, read_alert
from loadfactor.insight.alerts.delivery.outbox import LONGEST_PAUSE_MS, DeliveryState, Outbox
from loadfactor.insight.alerts.delivery.silence import find_silence, list_silences

FIRST_WAIT_S: Final = 2.0
LONGEST_WAIT_S: Final = 300.0
_MOST_DOUBLINGS: Final = 20
MOST_AT_ONCE: Final = 5_000
_SILENCED: Final = "it was silenced until it was over"
_HIDDEN: Final = (DeliveryState.HELD, DeliveryState.DROPPED)


@dataclass(frozen=True)
class Pending:
    """A transition that a receiver has yet to be sent: `number` and `key` name it, those of one `batch` are sent together."""

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
class Backlog:
    """The status of a receiver: transitions that wait, that a silence holds back, that were given up, and what went wrong last."""

    pending: int = 0
    held: int = 0
    given_up: int = 0
    why: str = ""


def take(outbox: Outbox, receiver: str, now_ms: int, takes_all: bool = False) -> list[Pending]:
    """The transitions to send to a receiver now: one batch, or all there is where `takes_all`; nothing where nothing is due.

    What a silence hides is held back until the silence ends, and dropped where the alert ended before. An end is sent after its
    beginning, and only where the beginning was sent. What was given up is tried again now and then while it is still news.
    """
    with outbox.change() as connection:
        _renew_given_up(connection, receiver, now_ms)
        expiry_ms = outbox.find_expiry_ms(now_ms)
        silences = [silence for silence in list_silences(connection) if silence.is_active(expiry_ms)]
        for item, is_over in list(_list_held(connection, receiver)):
            if is_over:
                _set(connection, receiver, [item], DeliveryState.DROPPED, _SILENCED)
            elif find_silence(item.alert, silences, expiry_ms) is None:
                connection.execute(
                    "UPDATE deliveries SET state = ?, batch = ?, since_ms = ?, next_ms = ?, why = ''"
                    " WHERE receiver = ? AND transition = ?",
                    (DeliveryState.PENDING, f"{item.batch}-{now_ms}", now_ms, now_ms, receiver, item.number),
                )
        due: dict[int, Pending] = {}
        for item in list(_list_due(connection, receiver, now_ms)):
            if item.alert.state == "firing":
                if find_silence(item.alert, silences, expiry_ms) is not None:
                    _set(connection, receiver, [item], DeliveryState.HELD, "silenced")
                    continue
            elif (begun := _find_beginning(connection, receiver, item)) is None or begun[1] in _HIDDEN:
                _set(connection, receiver, [item], DeliveryState.DROPPED, _SILENCED)
                continue
            elif begun[1] == DeliveryState.PENDING and begun[0] not in due:
                # Not before an instant.
                connection.execute(
                    "UPDATE deliveries SET next_ms = ? WHERE receiver = ? AND transition = ?",
                    ((begun[2]), receiver, item.number),
                )
                continue
            due[item.number] = item
    found = list(due.values())
    return found if takes_all else [item for item in found if item.batch == found[0].batch]


def settle(outbox: Outbox, receiver: str, items: Sequence[Pending], now_ms: int) -> None:
    """A receiver has these; as it answers again, what was given up is due."""
    with outbox.change() as connection:
        _set(connection, receiver, items, DeliveryState.DONE, "", now_ms)
        connection.execute(
            "UPDATE deliveries SET next_ms = ? WHERE receiver = ? AND state = ? AND next_ms > ?",
            (now_ms, receiver, DeliveryState.GIVEN_UP, now_ms),
        )


def give_up(outbox: Outbox, receiver: str, items: Sequence[Pending], why: str, now_ms: int) -> None:
    """A receiver was tried for long enough: it is sent these only if they are still news when it answers again."""
    with outbox.change() as connection:
        _set(connection, receiver, items, DeliveryState.GIVEN_UP, why)
        connection.executemany(
            "UPDATE deliveries SET next_ms = ? WHERE receiver = ? AND transition = ?",
            [(now_ms + LONGEST_PAUSE_MS, receiver, item.number) for item in items],
        )


def refuse(outbox: Outbox, receiver: str, items: Sequence[Pending], why: str) -> None:
    """A receiver will not take these, whenever they come."""
    with outbox.change() as connection:
        _set(connection, receiver, items, DeliveryState.REFUSED, why)


def put_off(outbox: Outbox, receiver: str, items: Sequence[Pending], why: str, next_ms: int) -> None:
    """Sending did not work: again at an instant."""
    with outbox.change() as connection:
        connection.executemany(
            "UPDATE deliveries SET attempts = attempts + 1, next_ms = ?, why = ? WHERE receiver = ? AND transition = ?",
            [(next_ms, why, receiver, item.number) for item in items],
        )


def list_delivered(outbox: Outbox, receiver: str) -> list[Alert]:
    """The alerts that fire, as far as a receiver knows of them or did not take them in time."""
    with outbox.change() as connection:
        rows = connection.execute(
            "SELECT t.body FROM deliveries d JOIN transitions t ON t.number = d.transition"
            " JOIN alerts a USING (fingerprint) WHERE d.receiver = ? AND d.state IN (?, ?, ?)"
            " AND t.state = 'firing' AND a.state = 'firing' ORDER BY t.number",
            (receiver, DeliveryState.DONE, *_LEFT),
        ).fetchall()
    return list({alert.fingerprint: alert for (body,) in rows for alert in [read_alert(body)]}.values())


_LEFT: Final = (DeliveryState.GIVEN_UP, DeliveryState.REFUSED)


def count_backlogs(connection: sqlite3.Connection) -> Mapping[str, Backlog]:
    """The status of each receiver, by name."""
    found: dict[str, Backlog] = {}
    rows = connection.execute(
        "SELECT receiver, count(*) FILTER (WHERE state = ?), count(*) FILTER (WHERE state = ?),"
        " count(*) FILTER (WHERE state IN (?, ?)) FROM deliveries GROUP BY receiver",
        (DeliveryState.PENDING, DeliveryState.HELD, *_LEFT),
    )
    for receiver, pending, held, given_up in rows.fetchall():
        last = connection.execute(
            "SELECT why FROM deliveries WHERE receiver = ? AND why != '' AND state IN (?, ?, ?)"
            " ORDER BY transition DESC LIMIT 1",
            (receiver, DeliveryState.PENDING, *_LEFT),
        ).fetchone()
        found[receiver] = Backlog(pending, held, given_up, last[0] if last else "")
    return found


def wait_ms(attempts: int, luck: float) -> int:
    """How long to wait after so many attempts that failed: twice as long each time, less up to half of it by `luck` in [0, 1).

    >>> wait_ms(1, 0.0), wait_ms(2, 0.0), wait_ms(2, 0.5), wait_ms(50, 0.0)
    (2000, 4000, 3000, 300000)
    """
    longest: float = min(FIRST_WAIT_S * 2 ** min(attempts - 1, _MOST_DOUBLINGS), LONGEST_WAIT_S)
    return round(longest * (1 - luck / 2) * MS_PER_S)


_COLUMNS: Final = "t.number, t.key, t.body, t.at_ms, d.batch, d.attempts, d.since_ms"


def _list_due(connection: sqlite3.Connection, receiver: str, now_ms: int) -> Iterator[Pending]:
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM deliveries d JOIN transitions t ON t.number = d.transition"
        " WHERE d.receiver = ? AND d.state = ? AND d.next_ms <= ? ORDER BY t.number LIMIT ?",
        (receiver, DeliveryState.PENDING, now_ms, MOST_AT_ONCE),
    )
    return map(_read, rows.fetchall())


def _renew_given_up(connection: sqlite3.Connection, receiver: str, now_ms: int) -> None:
    """Let what was given up be pending where it is due and still news: it fires still, or ended and its beginning was sent."""
    connection.execute(
        "UPDATE deliveries AS d SET state = :pending WHERE receiver = :receiver AND state = :given_up AND next_ms <= :now"
        " AND EXISTS (SELECT 1 FROM transitions t JOIN alerts a USING (fingerprint) WHERE t.number = d.transition"
        "   AND t.state = a.state AND t.number = (SELECT max(number) FROM transitions WHERE fingerprint = t.fingerprint)"
        "   AND (t.state = 'firing' OR EXISTS (SELECT 1 FROM deliveries b JOIN transitions f ON f.number = b.transition"
        "     WHERE b.receiver = d.receiver AND b.state = :done AND f.fingerprint = t.fingerprint AND f.state = 'firing')))",
        {
            "pending": DeliveryState.PENDING,
            "given_up": DeliveryState.GIVEN_UP,
            "done": DeliveryState.DONE,
            "receiver": receiver,
            "now": now_ms,
        },
    )


def _list_held(connection: sqlite3.Connection, receiver: str) -> Iterator[tuple[Pending, bool]]:
    """Transitions that a silence holds back, and whether it is over."""
    rows = connection.execute(
        f"SELECT {_COLUMNS}, coalesce(a.state, 'resolved') != 'firing' FROM deliveries d"
        " JOIN transitions t ON t.number = d.transition LEFT JOIN alerts a USING (fingerprint)"
        " WHERE d.receiver = ? AND d.state = ? ORDER BY t.number",
        (receiver, DeliveryState.HELD),
    )
    return ((_read(row[:-1]), bool(row[-1])) for row in rows.fetchall())


def _find_beginning(connection: sqlite3.Connection, receiver: str, item: Pending) -> tuple[int, str, int] | None:
    """The delivery that says that the alert fired: number, state, next try. None where a receiver was never to be sent it."""
    found: tuple[int, str, int] | None = connection.execute(
        "SELECT t.number, d.state, d.next_ms FROM deliveries d JOIN transitions t ON t.number = d.transition"
        " WHERE d.receiver = ? AND t.fingerprint = ? AND t.state = 'firing' AND t.number < ?"
        " ORDER BY t.number DESC LIMIT 1",
        (receiver, item.alert.fingerprint, item.number),
    ).fetchone()
    return found


def _set(
    connection: sqlite3.Connection,
    receiver: str,
    items: Sequence[Pending],
    state: DeliveryState,
    why: str,
    done_ms: int | None = None,
) -> None:
    connection.executemany(
        "UPDATE deliveries SET state = ?, why = ?, done_ms = ? WHERE receiver = ? AND transition = ?",
        [(state, why, done_ms, receiver, item.number) for item in items],
    )


def _read(row: Sequence[Any]) -> Pending:
    number, key, body, at_ms, batch, attempts, since_ms = row
    return Pending(number, key, Transition(read_alert(body), at_ms), batch, attempts, since_ms)
