"""The outbox: what was judged, the transitions that came of it, and who has yet to be told, each kept before it counts.

The state of the judge and the transitions that it gave are kept in one transaction, so a kill neither loses nor repeats one.
"""

import json
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loadfactor.base.units import MS_PER_DAY
from loadfactor.insight.alerts.alert import Alert, Transition
from loadfactor.insight.alerts.delivery.alert_text import read_alert, write_alert
from loadfactor.insight.alerts.delivery.changes import find_changes
from loadfactor.insight.alerts.delivery.outbox_file import NAME, explain, open_outbox
from loadfactor.insight.alerts.delivery.routing import wants
from loadfactor.settings.alerts import AlertReceiver, EmailReceiver, SlackReceiver

KEPT_MS: Final = 30 * MS_PER_DAY
"""So long an alert that ended, and what was told of it, is kept."""
MOST_ENDED: Final = 100_000


@dataclass(frozen=True)
class Judged:
    """What a judge did up to an instant: its state, and the alerts that live."""

    judged_ms: int
    state: Mapping[str, Any]
    alive: Sequence[Alert]


class Outbox:
    """The outbox of one store. Any thread may use it; other processes may silence meanwhile."""

    def __init__(self, folder: Path) -> None:
        """Raises StoreError where it cannot be written, DamageError where it is damaged."""
        self._path = folder / NAME
        self._connection = open_outbox(folder)
        self._lock = threading.Lock()

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it or nothing. Raises StoreError and DamageError."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise explain(self._path, error) from error
                raise

    def read_state(self) -> Mapping[str, Any] | None:
        """The state of the judge as it was kept last; None where nothing was judged yet."""
        with self.change() as connection:
            found = connection.execute("SELECT state FROM judge").fetchone()
        return None if found is None else json.loads(zlib.decompress(found[0]))

    def keep(self, judged: Judged, told: Sequence[Transition], receivers: Sequence[AlertReceiver], now_ms: int) -> int:
        """Keep what was judged and what came of it, with a delivery for each receiver that wants it; how many transitions.

        `now_ms` is when that is, by the clock.
        """
        state = zlib.compress(json.dumps(judged.state).encode(), 1)
        with self.change() as connection:
            changes = find_changes(_read_firing(connection), told, judged.alive, judged.judged_ms)
            for transition in changes:
                _add(connection, transition, receivers, judged.judged_ms, now_ms)
            connection.execute("DELETE FROM alerts WHERE state = 'pending'")
            _put_alerts(connection, (alert for alert in judged.alive if alert.state == "pending"))
            connection.execute("INSERT OR REPLACE INTO judge VALUES (1, ?, ?)", (judged.judged_ms, state))
            _forget_old(connection, now_ms - KEPT_MS)
        return len(changes)

    def note_late(self, changed_ms: int) -> None:
        """Keep that data came which belongs to minutes since an instant, some of which were judged."""
        with self.change() as connection:
            known = connection.execute("SELECT changed_ms FROM late").fetchone()
            if known is None or changed_ms < known[0]:
                connection.execute("INSERT OR REPLACE INTO late VALUES (1, ?)", (changed_ms,))

    def read_late(self) -> int | None:
        """Since when data came late that was not judged again yet."""
        with self.change() as connection:
            found = connection.execute("SELECT changed_ms FROM late").fetchone()
        return None if found is None else int(found[0])

    def end_late(self, changed_ms: int) -> None:
        """What came late since this instant was judged again; what came meanwhile was not."""
        with self.change() as connection:
            connection.execute("DELETE FROM late WHERE changed_ms >= ?", (changed_ms,))

    def begin(self, receivers: Sequence[AlertReceiver], now_ms: int) -> None:
        """Owe receivers what fires and they were not told; owe nothing to those that there are no longer."""
        with self.change() as connection:
            labels = [receiver.label for receiver in receivers]
            connection.execute(
                "UPDATE deliveries SET state = 'dropped', why = 'the receiver is no longer configured'"
                f" WHERE state IN ('pending', 'held') AND receiver NOT IN ({', '.join('?' * len(labels))})",
                labels,
            )
            fired = connection.execute(
                "SELECT max(t.number), t.body FROM transitions t JOIN alerts a USING (fingerprint)"
                " WHERE t.state = 'firing' AND a.state = 'firing' GROUP BY t.fingerprint ORDER BY 1"
            ).fetchall()
            for number, body in fired:
                _owe(connection, number, Transition(read_alert(body), now_ms), receivers, now_ms, now_ms)

    def close(self) -> None:
        """Leave it."""
        with self._lock:
            self._connection.close()


def _read_firing(connection: sqlite3.Connection) -> dict[str, Alert]:
    rows = connection.execute("SELECT fingerprint, body FROM alerts WHERE state = 'firing' ORDER BY rowid")
    return {fingerprint: read_alert(body) for fingerprint, body in rows}


def _add(
    connection: sqlite3.Connection,
    transition: Transition,
    receivers: Sequence[AlertReceiver],
    step_ms: int,
    now_ms: int,
) -> None:
    """Keep a transition, the alert as it is now, and the deliveries."""
    alert = transition.alert
    _put_alerts(connection, [alert])
    like = f"{transition.key}-%"
    (before,) = connection.execute(
        "SELECT count(*) FROM transitions WHERE key = ? OR key LIKE ?", (transition.key, like)
    ).fetchone()
    key = transition.key if not before else f"{transition.key}-{before + 1}"  # late data made it fire again
    number = connection.execute(
        "INSERT INTO transitions (key, fingerprint, state, at_ms, kept_ms, body) VALUES (?, ?, ?, ?, ?, ?)",
        (key, alert.fingerprint, alert.state, transition.at_ms, now_ms, write_alert(alert)),
    ).lastrowid
    assert number is not None
    _owe(connection, number, transition, receivers, step_ms, now_ms)


def _owe(
    connection: sqlite3.Connection, number: int, transition: Transition, receivers: Sequence[AlertReceiver], step_ms: int,
    now_ms: int,
) -> None:  # fmt: skip
    """A delivery for each receiver that wants it. Transitions of a rule in one judgement are one message where people read it."""
    alert = transition.alert
    for receiver in receivers:
        if not wants(receiver, alert):
            continue
        is_read = isinstance(receiver, EmailReceiver | SlackReceiver)
        batch = f"{alert.rule}-{step_ms}" if is_read else str(number)
        connection.execute(
            "INSERT OR IGNORE INTO deliveries VALUES (?, ?, ?, 'pending', 0, ?, ?, NULL, '')",
            (receiver.label, number, batch, now_ms, now_ms),
        )


def _put_alerts(connection: sqlite3.Connection, alerts: Iterable[Alert]) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO alerts VALUES (?, ?, ?, ?)",
        ((alert.fingerprint, alert.state, alert.end_ms, write_alert(alert)) for alert in alerts),
    )


def _forget_old(connection: sqlite3.Connection, before_ms: int) -> None:
    """Remove what ended long ago, and the oldest of very many."""
    last = connection.execute(
        "SELECT end_ms FROM alerts WHERE state = 'resolved' ORDER BY end_ms DESC LIMIT 1 OFFSET ?", (MOST_ENDED,)
    ).fetchone()
    before_ms = max(before_ms, last[0] if last else before_ms)
    gone = connection.execute("DELETE FROM alerts WHERE state = 'resolved' AND end_ms < ?", (before_ms,)).rowcount
    if gone:
        connection.execute(
            "DELETE FROM transitions WHERE kept_ms < ? AND fingerprint NOT IN (SELECT fingerprint FROM alerts)",
            (before_ms,),
        )
        connection.execute("DELETE FROM deliveries WHERE transition NOT IN (SELECT number FROM transitions)")
        connection.execute("DELETE FROM silences WHERE until_ms < ?", (before_ms,))
