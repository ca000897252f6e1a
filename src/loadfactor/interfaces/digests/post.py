"""The post: makes the letters of a digest once a period, keeps them beside the books, and sends each until its receiver has it.

All letters of a period are kept in one transaction, and with them that the period is made; each is kept as sent when its receiver
took it. So a kill loses none, and repeats at most the one letter that was under way: then with the same Message-ID, key or file.
"""

import asyncio
import fcntl
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from email import message_from_bytes
from email.message import EmailMessage
from pathlib import Path
from typing import Final

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import InputError, LoadfactorError, StoreError, say_why
from loadfactor.base.paths import is_joint
from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.books.books import Books
from loadfactor.collect.http_fetch import RequestPool
from loadfactor.insight.alerts.delivery.outbox import Outbox, read_outbox
from loadfactor.insight.alerts.delivery.pending import wait_ms
from loadfactor.insight.alerts.delivery.sending import DeliveryError, Sender, send_email
from loadfactor.interfaces.digests.letters import POLICY, Letter, write_letters, write_messages
from loadfactor.interfaces.digests.period import Period, find_period
from loadfactor.interfaces.render.present import replacing
from loadfactor.metrics.query.calendar import instant
from loadfactor.settings.alerts import HttpReceiver
from loadfactor.settings.config import Settings, smtp_password, zone
from loadfactor.settings.digests import DigestTable
from loadfactor.store.disk import lock_file
from loadfactor.store.trusted_time import read_clock

LOCK: Final = "digests.lock"
KEPT_MS: Final = 400 * MS_PER_DAY
"""So long it is kept what was sent."""
_TABLE: Final = """CREATE TABLE IF NOT EXISTS digests (
  digest TEXT NOT NULL, period TEXT NOT NULL, of TEXT NOT NULL, kind TEXT NOT NULL, target TEXT NOT NULL, state TEXT NOT NULL,
  attempts INTEGER NOT NULL, since_ms INTEGER NOT NULL, next_ms INTEGER NOT NULL, done_ms INTEGER, why TEXT NOT NULL, payload BLOB,
  PRIMARY KEY (digest, period, of, kind, target)
)"""
_PERIOD: Final = "period"
"""The kind of the row that says that a period was made (or skipped: it was over when the digest was first seen)."""


@dataclass(frozen=True)
class Sent:
    """What became of a letter: its state is pending, sent, refused or given up; `why` it was not taken."""

    digest: str
    period: str
    of: str
    kind: str
    target: str
    state: str
    why: str


def find_due(table: DigestTable, now: datetime, timezone: tzinfo) -> Period:
    """The last period whose digest is due."""
    days, hour, minute = table.due
    period = find_period(table.every, now, timezone).before
    due = datetime.combine(period.end.date() + timedelta(days=days), time(hour, minute), timezone)
    return period if due <= now else period.before


class Post:
    """The post of one store. One process at a time posts; another one waits its turn or leaves it."""

    def __init__(
        self,
        books: Books,
        settings: Settings,
        clock_ms: Callable[[], int] = now_ms,
        address: str = "",
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """`address`: where links lead unless settings say it. Between letters it ends where `is_stopped`.

        Raises InputError where mail has no server.
        """
        self.error = ""
        """Which digests could not be made at the last look, and why."""
        link = settings.alerts.link or address
        self._settings = settings.model_copy(update={"alerts": settings.alerts.model_copy(update={"link": link})})
        self._books, self._clock_ms, self._is_stopped = books, clock_ms, is_stopped
        for table in settings.digest:
            if (table.to or table.addresses) and settings.mail is None:
                raise InputError(f"the digest {table.name!r} is mailed, and no [mail] says through which server")

    def find_zone(self, table: DigestTable) -> tzinfo:
        """The zone of a digest."""
        return zone(table.timezone or self._settings.timezone)

    def look(self) -> list[Sent]:
        """Make what is due, and send what is pending; what became of it. Nothing where another process does it."""
        with open_alone(self._books.store.place.beside, LOCK, _TABLE) as outbox:
            if outbox is None:
                return []
            now, errors = instant(self._clock_ms()), []
            for table in self._settings.digest:
                try:
                    self._make(outbox, table, find_due(table, now, self.find_zone(table)), is_scheduled=True)
                except LoadfactorError as error:  # the others are no worse for it; it is tried again at the next look
                    errors.append(f"{table.name}: {error}")
            self.error = "; ".join(errors)
            return self._send(outbox)

    def send_now(self, table: DigestTable, period: Period) -> list[Sent]:
        """Make the digest of a period unless it is made, and send what is pending; what became of all its letters.

        Raises InputError where another process sends.
        """
        with open_alone(self._books.store.place.beside, LOCK, _TABLE) as outbox:
            if outbox is None:
                raise InputError("another process sends digests of these books; try again in a minute")
            self._make(outbox, table, period)
            self._send(outbox)
            with outbox.change() as connection:
                return [of for of in _list(connection) if (of.digest, of.period) == (table.name, period.name)]

    def _make(self, outbox: Outbox, table: DigestTable, period: Period, is_scheduled: bool = False) -> None:
        """Keep the letters of a period, once. Where it is scheduled, what was over when the digest was first seen is skipped."""
        with outbox.change() as connection:
            rows = connection.execute(
                "SELECT period, state FROM digests WHERE digest = ? AND kind = ?", (table.name, _PERIOD)
            ).fetchall()
        states = dict(rows)
        if states.get(period.name) == "made" or (is_scheduled and states.get(period.name) == "skipped"):
            return
        now, state = self._clock_ms(), "made"
        letters: list[Letter] = []
        if is_scheduled and not states:
            state = "skipped"
        else:
            with self._books.snapshot() as snapshot:
                for message in write_messages(snapshot, table, period, self._settings):
                    if self._is_stopped():
                        return
                    letters += write_letters(message, self._settings.mail, now)
        expiry_ms = read_clock(self._books.store.place, now).expiry_ms
        with outbox.change() as connection:
            connection.execute("DELETE FROM digests WHERE since_ms < ?", (expiry_ms - KEPT_MS,))
            connection.execute(
                "INSERT OR REPLACE INTO digests VALUES (?, ?, '', ?, '', ?, 0, ?, ?, NULL, '', NULL)",
                (table.name, period.name, _PERIOD, state, now, now),
            )
            connection.executemany(
                "INSERT OR IGNORE INTO digests VALUES (?, ?, ?, ?, ?, 'pending', 0, ?, ?, NULL, '', ?)",
                [(of.digest, of.period, of.of, of.kind, of.target, now, now, of.payload) for of in letters],
            )

    def _send(self, outbox: Outbox) -> list[Sent]:
        """Send each letter that is due, and keep what became of it."""
        now = self._clock_ms()
        done: list[Sent] = []
        with outbox.change() as connection:
            rows = connection.execute(
                "SELECT digest, period, of, kind, target, payload, attempts, since_ms FROM digests"
                " WHERE state = 'pending' AND next_ms <= ? ORDER BY rowid",
                (now,),
            ).fetchall()
        tables = {table.name: table for table in self._settings.digest}
        for *names, attempts, since_ms in rows:
            if self._is_stopped():
                break
            letter = Letter(*names)
            table = tables.get(letter.digest)
            state, why = "sent", ""
            if table is None:
                state, why = "dropped", "the digest is no longer configured"
            else:
                try:
                    self._hand_over(letter, table)
                except LoadfactorError as error:
                    why = str(error)
                    is_over = now - since_ms > table.give_up_after.s * MS_PER_S
                    is_final = isinstance(error, DeliveryError) and error.is_final
                    state = "refused" if is_final else "given up" if is_over else "pending"
            again = now + wait_ms(attempts + 1, random.random())
            with outbox.change() as connection:
                connection.execute(
                    "UPDATE digests SET state = ?, attempts = attempts + 1, next_ms = ?, done_ms = ?, why = ?,"
                    " payload = CASE WHEN ? = 'pending' THEN payload END"
                    " WHERE digest = ? AND period = ? AND of = ? AND kind = ? AND target = ?",
                    (state, again, self._clock_ms(), why, state, *names[:5]),
                )
            done.append(Sent(letter.digest, letter.period, letter.of, letter.kind, letter.target, state, why))
        return done

    def _hand_over(self, letter: Letter, table: DigestTable) -> None:
        """Give a letter to its receiver. Raises DeliveryError where it did not take it, InputError for a file that cannot be."""
        if letter.kind == "file":
            with replacing(Path(letter.target), "folder") as beside:
                beside.write_bytes(letter.payload)
        elif letter.kind == "webhook":
            receiver = HttpReceiver(url=table.webhook, url_file=table.webhook_file)
            asyncio.run(Sender(receiver).send(letter.payload, {"Idempotency-Key": letter.key}, RequestPool()))
        else:
            mail = message_from_bytes(letter.payload, policy=POLICY)
            if self._settings.mail is None:
                raise DeliveryError("no [mail] says through which server")
            assert isinstance(mail, EmailMessage)
            send_email(mail, self._settings.mail, smtp_password())


@contextmanager
def open_alone(folder: Path, lock: str, tables: str) -> Iterator[Outbox | None]:
    """The outbox with these tables, for the one process that has a lock beside it; None where another one has it.

    Raises StoreError where it cannot be written.
    """
    if is_joint(folder):
        raise InputError(
            "several stores have no folder that keeps what was sent; name one as local_folder in loadfactor.toml"
        )
    path = folder / lock
    try:
        opened = path.open("a")
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({say_why(error)}); what is sent is kept beside the books"
        ) from error
    with opened as file:
        try:
            lock_file(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB, path)
        except BlockingIOError:
            yield None
            return
        with closing(Outbox(folder)) as outbox:
            with outbox.change() as connection:
                for statement in tables.split(";\n\n"):
                    connection.execute(statement)
            yield outbox


def list_sent(folder: Path) -> list[Sent]:
    """What became of every letter that was made, the oldest first; changes nothing."""
    with read_outbox(folder) as connection:
        if (
            connection is None
            or not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'digests'").fetchone()
        ):
            return []
        return _list(connection)


def _list(connection: sqlite3.Connection) -> list[Sent]:
    rows = connection.execute(
        "SELECT digest, period, of, kind, target, state, why FROM digests WHERE kind != ? ORDER BY rowid", (_PERIOD,)
    ).fetchall()
    return [Sent(*row) for row in rows]
