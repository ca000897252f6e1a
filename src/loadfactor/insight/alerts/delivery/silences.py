"""Silences as they are kept in the outbox: made, listed and lifted."""

import json
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.insight.alerts.delivery.outbox import Outbox
from loadfactor.insight.alerts.delivery.silence import Silence

MOST_SILENCES: Final = 10_000
_COLUMNS: Final = "id, rule, by, created_ms, until_ms, reason, who, ended_ms"


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
        connection.execute(
            f"INSERT INTO silences ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                silence.id,
                silence.rule,
                json.dumps(dict(silence.by)),
                silence.created_ms,
                silence.until_ms,
                silence.reason,
                silence.who,
                silence.ended_ms,
            ),
        )


def lift_silence(folder: Path, silence_id: str, now_ms: int) -> Silence:
    """End a silence now; one that is over stays as it is. Raises InputError where there is none of this id."""
    with closing(Outbox(folder)) as outbox, outbox.change() as connection:
        connection.execute(
            "UPDATE silences SET ended_ms = ? WHERE id = ? AND ended_ms IS NULL AND until_ms > ?",
            (now_ms, silence_id, now_ms),
        )
        found = [silence for silence in list_silences(connection) if silence.id == silence_id]
    if not found:
        raise InputError(f"no silence {silence_id!r}; `loadfactor alerts silences` shows their ids")
    return found[0]


def list_silences(connection: sqlite3.Connection) -> list[Silence]:
    """All that are kept, those that are over too, in the order they were made."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM silences ORDER BY created_ms, rowid")
    return [Silence(row[0], row[1], json.loads(row[2]), *row[3:]) for row in rows.fetchall()]
