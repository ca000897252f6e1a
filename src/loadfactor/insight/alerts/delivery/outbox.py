"""The outbox: what was judged, the transitions that came of it, and the deliveries that are pending, each kept before it counts.

The state of the judge and the transitions that it gave are kept in one transaction, so a kill neither loses nor repeats one.
"""

import json
import secrets
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from loadfactor.base.clock import LARGEST_SKEW_MS
from loadfactor.base.errors import DamageError, InputError, StoreError
from loadfactor.base.units import MS_PER_DAY, MS_PER_MIN
from loadfactor.insight.alerts.alert import Alert, Transition, read_alert, write_alert
from loadfactor.insight.alerts.delivery.silence import SILENCE_COLUMNS, Silence, list_silences, matches
from loadfactor.settings.alerts import AlertReceiver, EmailReceiver, SlackReceiver, TeamsReceiver


def is_for(receiver: AlertReceiver, alert: Alert) -> bool:
    """Whether a receiver is notified of an alert: by its rule, its severity, and the team it is of."""
    team = alert.by.get("team", alert.holder.get("team"))
    return (
        (not receiver.rules or any(matches(alert.rule, rule) for rule in receiver.rules))
        and (not receiver.severities or alert.severity in receiver.severities)
        and (not receiver.teams or team in receiver.teams)
    )


class DeliveryState(StrEnum):
    """The state of a transition on its way to one receiver, as the outbox keeps it."""

    PENDING = "pending"
    HELD = "held"
    """A silence hides it."""
    DONE = "done"
    GIVEN_UP = "given up"
    """It was tried for long enough; while it is still news it is tried again now and then."""
    REFUSED = "refused"
    """The receiver will not take it, whenever it comes."""
    DROPPED = "dropped"
    """It is no news to the receiver: it ended under a silence, or the receiver is no longer configured."""


GONE = "its rule is no longer judged"


def find_changes(
    known: Mapping[str, Alert], transitions: Sequence[Transition], alive: Iterable[Alert], at_ms: int
) -> list[Transition]:
    """The transitions to keep, in order. `known`: alerts that fire as they were kept, by fingerprint; `alive`: those of the judge.

    What fires already does not fire again, what was never sent is not resolved; afterwards those that fire are those of the judge.
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
            holder = firing.pop(mark).holder  # as it was sent: receivers know the alert by it
            changes.append(replace(transition, alert=replace(alert, holder=holder)))

    for transition in transitions:
        change(transition)
    still = {alert.fingerprint: alert for alert in alive if alert.state == "firing"}
    for mark in [mark for mark in firing if mark not in still]:
        ended = replace(firing[mark], state="resolved", end_ms=at_ms, ended_because=GONE)
        change(Transition(ended, at_ms))
    for alert in still.values():
        change(Transition(alert, at_ms))
    return changes


NAME: Final = "alerts.sqlite"
FORMAT: Final = 1
BUSY_S: Final = 20.0
"""So long one process waits for another that writes."""
_TABLES: Final = """
CREATE TABLE judge (one INTEGER PRIMARY KEY CHECK (one = 1), judged_ms INTEGER NOT NULL, state BLOB NOT NULL);
CREATE TABLE late (one INTEGER PRIMARY KEY CHECK (one = 1), changed_ms INTEGER NOT NULL);
CREATE TABLE alerts (
  fingerprint TEXT PRIMARY KEY, state TEXT NOT NULL, end_ms INTEGER, body TEXT NOT NULL
);
CREATE INDEX alerts_by_state ON alerts (state, end_ms);
CREATE TABLE transitions (
  number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, fingerprint TEXT NOT NULL, state TEXT NOT NULL,
  at_ms INTEGER NOT NULL, kept_ms INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE INDEX transitions_of_alert ON transitions (fingerprint);
CREATE TABLE deliveries (
  receiver TEXT NOT NULL, transition INTEGER NOT NULL, batch TEXT NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL,
  since_ms INTEGER NOT NULL, next_ms INTEGER NOT NULL, done_ms INTEGER, why TEXT NOT NULL,
  PRIMARY KEY (receiver, transition)
);
CREATE INDEX deliveries_open ON deliveries (receiver, state, next_ms);
CREATE TABLE silences (
  id TEXT PRIMARY KEY, rule TEXT NOT NULL, by TEXT NOT NULL, created_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL,
  reason TEXT NOT NULL, who TEXT NOT NULL, ended_ms INTEGER
);
"""


def open_outbox(folder: Path) -> sqlite3.Connection:
    """The database open for writing, made where there is none; what is committed outlasts a power loss.

    Raises StoreError where it cannot be written or is newer, DamageError where it is no such database.
    """
    path = folder / NAME
    try:
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be opened ({error}); check its permissions") from error
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        if _read_format(connection, path) == 0:
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise explain(path, error) from error
        raise
    return connection


@contextmanager
def read_outbox(folder: Path) -> Iterator[sqlite3.Connection | None]:
    """The database as it is now, for reading alone; None where there is none. Raises as `open_outbox`."""
    path = folder / NAME
    if not path.exists():
        yield None
        return
    has_log = path.with_name(f"{NAME}-wal").exists()  # else nobody writes, and nothing is to be made beside it
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?{'mode=ro' if has_log else 'immutable=1'}", BUSY_S, uri=True)
        ) as connection:
            _read_format(connection, path)
            yield connection
    except sqlite3.Error as error:
        raise explain(path, error) from error


def explain(path: Path, error: sqlite3.Error) -> StoreError | DamageError:
    """The error of the database, and what to do."""
    if isinstance(error, sqlite3.OperationalError):
        return StoreError(f"{path} cannot be read or written ({error}); check the disk and its permissions")
    return DamageError(
        f"{path} is damaged ({error}); move it aside, and alerts and silences begin anew: mv {path} {path}.damaged"
    )


def _read_format(connection: sqlite3.Connection, path: Path) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > FORMAT:
        raise StoreError(f"{path} has format {version}, this version reads {FORMAT}; install the newest version")
    return int(version)


LONGEST_PAUSE_MS: Final = 10 * MS_PER_MIN
"""No delivery is put off for longer: what was given up, and is still news, is tried again so seldom."""
KEPT_MS: Final = 30 * MS_PER_DAY
"""So long an alert that ended, and what was sent of it, is kept."""
MOST_ENDED: Final = 100_000


@dataclass(frozen=True)
class Judged:
    """The judge at an instant: its state, and the alerts that live."""

    judged_ms: int
    state: Mapping[str, Any]
    alive: Sequence[Alert]


class Outbox:
    """The outbox of one store. Any thread may use it; other processes may silence meanwhile."""

    def __init__(self, folder: Path, find_expiry_ms: Callable[[int], int] = int) -> None:
        """`find_expiry_ms`: the time by which silences end, of the time that the clock says; by default the clock's.

        Raises StoreError where it cannot be written, DamageError where it is damaged.
        """
        self.find_expiry_ms = find_expiry_ms
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

    def keep(
        self, judged: Judged, transitions: Sequence[Transition], receivers: Sequence[AlertReceiver], now_ms: int
    ) -> int:
        """Keep what was judged and what came of it, with a delivery for each receiver that it is for; how many transitions.

        `now_ms` is when that is, by the clock.
        """
        state = zlib.compress(json.dumps(judged.state).encode(), 1)
        with self.change() as connection:
            rows = connection.execute("SELECT fingerprint, body FROM alerts WHERE state = 'firing' ORDER BY rowid")
            changes = find_changes(
                ({fingerprint: read_alert(body) for fingerprint, body in rows}),
                transitions,
                judged.alive,
                judged.judged_ms,
            )
            for transition in changes:
                _add(connection, transition, receivers, judged.judged_ms, now_ms)
            connection.execute("DELETE FROM alerts WHERE state = 'pending'")
            _put_alerts(connection, (alert for alert in judged.alive if alert.state == "pending"))
            connection.execute("INSERT OR REPLACE INTO judge VALUES (1, ?, ?)", (judged.judged_ms, state))
        return len(changes)

    def forget_old(self, now_ms: int) -> None:
        """Forget alerts that ended a month ago, and what was sent of them."""
        with self.change() as connection:
            _forget_old(connection, self.find_expiry_ms(now_ms) - KEPT_MS)

    def list_ended(self, since_ms: int) -> list[Alert]:
        """The alerts that ended since an instant, as receivers were sent them."""
        with self.change() as connection:
            rows = connection.execute("SELECT body FROM alerts WHERE state = 'resolved' AND end_ms >= ?", (since_ms,))
            return [read_alert(body) for (body,) in rows.fetchall()]

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
        """Forget late data since this instant, which was judged again; what came meanwhile was not."""
        with self.change() as connection:
            connection.execute("DELETE FROM late WHERE changed_ms >= ?", (changed_ms,))

    def begin(self, receivers: Sequence[AlertReceiver], now_ms: int) -> None:
        """Add deliveries of what fires that receivers do not know; drop those of receivers that are no longer configured."""
        with self.change() as connection:
            labels = [receiver.label for receiver in receivers]
            open_states = (DeliveryState.PENDING, DeliveryState.HELD, DeliveryState.GIVEN_UP)
            connection.execute(
                "UPDATE deliveries SET state = ?, why = 'the receiver is no longer configured'"
                f" WHERE state IN (?, ?, ?) AND receiver NOT IN ({', '.join('?' * len(labels))})",
                (DeliveryState.DROPPED, *open_states, *labels),
            )
            fired = connection.execute(
                "SELECT max(t.number), t.body FROM transitions t JOIN alerts a USING (fingerprint)"
                " WHERE t.state = 'firing' AND a.state = 'firing' GROUP BY t.fingerprint ORDER BY 1"
            ).fetchall()
            for number, body in fired:
                _add_deliveries(connection, number, Transition(read_alert(body), now_ms), receivers, now_ms, now_ms)

    def mend_times(self, now_ms: int) -> None:
        """Let nothing wait for a time that a clock which was ahead wrote: deliveries are tried from now on, silences last as
        long as they were made for, from now on. A clock that is behind shortens no silence."""
        ahead_ms = now_ms + LARGEST_SKEW_MS
        latest_ms = max(now_ms, self.find_expiry_ms(now_ms))
        with self.change() as connection:
            connection.execute(
                "UPDATE deliveries SET since_ms = ?, next_ms = ? WHERE since_ms > ? AND state IN (?, ?, ?)",
                (now_ms, now_ms, ahead_ms, DeliveryState.PENDING, DeliveryState.HELD, DeliveryState.GIVEN_UP),
            )
            connection.execute(
                "UPDATE deliveries SET next_ms = ? WHERE next_ms > ? AND state IN (?, ?)",
                (now_ms, now_ms + LONGEST_PAUSE_MS, DeliveryState.PENDING, DeliveryState.GIVEN_UP),
            )
            connection.execute(
                "UPDATE silences SET until_ms = until_ms - created_ms + ?, created_ms = ?,"
                " ended_ms = CASE WHEN ended_ms IS NULL THEN NULL ELSE ? END WHERE created_ms > ?",
                (latest_ms, latest_ms, latest_ms, latest_ms + LARGEST_SKEW_MS),
            )
            connection.execute(
                "UPDATE silences SET ended_ms = ? WHERE ended_ms > ?", (latest_ms, latest_ms + LARGEST_SKEW_MS)
            )

    def close(self) -> None:
        """Leave it."""
        with self._lock:
            self._connection.close()


def _add(
    connection: sqlite3.Connection,
    transition: Transition,
    receivers: Sequence[AlertReceiver],
    step_ms: int,
    now_ms: int,
) -> None:
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
    _add_deliveries(connection, number, transition, receivers, step_ms, now_ms)


def _add_deliveries(
    connection: sqlite3.Connection, number: int, transition: Transition, receivers: Sequence[AlertReceiver], step_ms: int,
    now_ms: int,
) -> None:  # fmt: skip
    """A delivery for each receiver that it is for. Transitions of a rule in one judgement are one message where people read it."""
    alert = transition.alert
    for receiver in receivers:
        if not is_for(receiver, alert):
            continue
        is_read = isinstance(receiver, EmailReceiver | SlackReceiver | TeamsReceiver)
        batch = f"{alert.rule}-{step_ms}" if is_read else str(number)
        connection.execute(
            "INSERT OR IGNORE INTO deliveries VALUES (?, ?, ?, ?, 0, ?, ?, NULL, '')",
            (receiver.label, number, batch, DeliveryState.PENDING, now_ms, now_ms),
        )


def _put_alerts(connection: sqlite3.Connection, alerts: Iterable[Alert]) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO alerts VALUES (?, ?, ?, ?)",
        ((alert.fingerprint, alert.state, alert.end_ms, write_alert(alert)) for alert in alerts),
    )


def _forget_old(connection: sqlite3.Connection, before_ms: int) -> None:
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


MOST_SILENCES: Final = 10_000


def name_silence() -> str:
    """A new id."""
    return secrets.token_hex(4)


def add_silence(folder: Path, silence: Silence) -> None:
    """Keep a silence; running servers follow it within seconds. Raises InputError where there are too many, StoreError."""
    with closing(Outbox(folder)) as outbox, outbox.change() as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM silences WHERE ended_ms IS NULL AND until_ms > ?", (silence.created_ms,)
        ).fetchone()
        if count >= MOST_SILENCES:
            raise InputError(f"there are {count:,} silences, as many as there may be; lift some, or use patterns")
        _put_silence(connection, silence)


def adopt_silences(folder: Path, silences: Sequence[Silence]) -> None:
    """Keep silences that another server knows of; what was lifted there is lifted here."""
    if not silences:
        return
    with read_outbox(folder) as connection:
        known = {silence.id: silence for silence in ([] if connection is None else list_silences(connection))}
    new = [of for of in silences if of.id not in known or (of.ended_ms is not None and known[of.id].ended_ms is None)]
    if not new:
        return
    with closing(Outbox(folder)) as outbox, outbox.change() as connection:
        for of in new:
            connection.execute("DELETE FROM silences WHERE id = ?", (of.id,))
            _put_silence(connection, of)


def _put_silence(connection: sqlite3.Connection, of: Silence) -> None:
    row = (of.id, of.rule, json.dumps(dict(of.by)), of.created_ms, of.until_ms, of.reason, of.who, of.ended_ms)
    connection.execute(f"INSERT INTO silences ({SILENCE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def lift_silence(folder: Path, silence_id: str, now_ms: int, expiry_ms: int) -> Silence:
    """End a silence now; one that is over at `expiry_ms` stays as it is. Raises InputError where there is none of this id."""
    with closing(Outbox(folder)) as outbox, outbox.change() as connection:
        connection.execute(
            "UPDATE silences SET ended_ms = ? WHERE id = ? AND ended_ms IS NULL AND until_ms > ?",
            (now_ms, silence_id, expiry_ms),
        )
        found = [silence for silence in list_silences(connection) if silence.id == silence_id]
    if not found:
        raise InputError(f"no silence {silence_id!r}; `loadfactor alerts silences` shows their ids")
    return found[0]
