"""The log of enforcement: steps that were begun and done, only ever added to; the last one of a holder is where it stands.

Each step is kept before what it speaks of begins, and another one when that is done: a kill loses none and repeats at most the mail
or the act that was under way, which then is the same mail, or does nothing more.
"""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from loadfactor.insight.alerts.delivery.outbox import Outbox, read_outbox
from loadfactor.metrics.query.calendar import instant, milliseconds

LOCK: Final = "enforcement.lock"
WARNING, WARNED, LET_GO = "warning", "warned", "let go"
ACTING, ACTED, FAILED = "acting", "acted", "failed"
TABLE: Final = """CREATE TABLE IF NOT EXISTS enforcement (
  number INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, policy TEXT NOT NULL, holder TEXT NOT NULL,
  began_ms INTEGER NOT NULL, step TEXT NOT NULL, facts TEXT NOT NULL
);

CREATE TRIGGER IF NOT EXISTS enforcement_is_kept BEFORE DELETE ON enforcement
BEGIN SELECT RAISE(ABORT, 'the log of enforcement is only added to'); END;

CREATE TRIGGER IF NOT EXISTS enforcement_is_fixed BEFORE UPDATE ON enforcement
BEGIN SELECT RAISE(ABORT, 'the log of enforcement is only added to'); END"""

Key = tuple[str, str, int]
"""A policy, a holder, and since when it held its GPUs."""


@dataclass(frozen=True)
class LoggedStep:
    """A step: what was begun or done to a holder under a policy, when (by the clock), and what it rests on."""

    number: int
    at: datetime
    policy: str
    holder: str
    began: datetime
    step: str
    facts: dict[str, Any]


def add_step(outbox: Outbox, at_ms: int, key: Key, step: str, facts: Mapping[str, Any]) -> LoggedStep:
    """Keep a step; it outlasts a power loss when this returns."""
    text = json.dumps(facts, ensure_ascii=False)
    with outbox.change() as connection:
        sql = "INSERT INTO enforcement (at_ms, policy, holder, began_ms, step, facts) VALUES (?, ?, ?, ?, ?, ?)"
        number = connection.execute(sql, (at_ms, *key, step, text)).lastrowid or 0
    return LoggedStep(number, instant(at_ms), key[0], key[1], instant(key[2]), step, dict(facts))


def read_log(folder: Path) -> list[LoggedStep]:
    """Every step, the oldest first; changes nothing."""
    with read_outbox(folder) as connection:
        known = "SELECT 1 FROM sqlite_master WHERE name = 'enforcement'"
        if connection is None or not connection.execute(known).fetchone():
            return []
        return _read(connection)


def read_states(connection: sqlite3.Connection) -> dict[Key, LoggedStep]:
    """Where each holder stands: its last step."""
    return find_states(_read(connection))


def find_states(steps: list[LoggedStep]) -> dict[Key, LoggedStep]:
    """The last of these steps of each holder."""
    return {(of.policy, of.holder, milliseconds(of.began)): of for of in steps}


def _read(connection: sqlite3.Connection) -> list[LoggedStep]:
    sql = "SELECT number, at_ms, policy, holder, began_ms, step, facts FROM enforcement ORDER BY number"
    return [
        LoggedStep(number, instant(at_ms), policy, holder, instant(began_ms), step, json.loads(facts))
        for number, at_ms, policy, holder, began_ms, step, facts in connection.execute(sql).fetchall()
    ]
