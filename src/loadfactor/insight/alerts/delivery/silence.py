"""Silences: for a time, alerts that match are not sent; they fire all the same, and lists say that they are silenced."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from loadfactor.base.errors import InputError, no_such
from loadfactor.insight.alerts.alert import Alert
from loadfactor.tables.schema import DIMENSIONS

LONGEST_REASON = 500
DIMENSION_NAMES = tuple(name for name in DIMENSIONS if name not in ("tenant", "state", "hour", "day", "week", "month"))


@dataclass(frozen=True)
class Silence:
    """A silence from `created_ms` until `until_ms`: of alerts of a rule, of a group or of somebody, as far as given.

    `rule` and the values of `by` are names, or patterns with * and ?. `ended_ms`: when it was lifted before its time.
    """

    id: str
    rule: str
    by: Mapping[str, str]
    created_ms: int
    until_ms: int
    reason: str
    who: str
    ended_ms: int | None = None

    def is_active(self, at_ms: int) -> bool:
        """Whether it holds now, by a time that things expire by (`ClockState.expiry_ms`).

        It holds from when it was made, and not after it was lifted, whatever the clock said then.
        """
        return self.ended_ms is None and at_ms < self.until_ms

    def matches(self, alert: Alert) -> bool:
        """Whether it speaks of an alert."""
        names = {**alert.holder, **alert.by}
        return matches(alert.rule, self.rule or "*") and all(
            name in names and matches(names[name], pattern) for name, pattern in self.by.items()
        )


def matches(text: str, pattern: str) -> bool:
    """Whether a name is this one, or like the pattern.

    >>> matches("train[1]", "train[1]"), matches("gpu_hot", "gpu_*"), matches("gpu_hot", "GPU_*")
    (True, True, False)
    """
    return text == pattern or fnmatchcase(text, pattern)


def find_silence(alert: Alert, silences: Iterable[Silence], at_ms: int) -> Silence | None:
    """The silence that hides an alert now, the one that lasts longest; None where none does. `at_ms`: see `Silence.is_active`."""
    hiding = [silence for silence in silences if silence.is_active(at_ms) and silence.matches(alert)]
    return max(hiding, key=lambda silence: silence.until_ms, default=None)


def check_silence(rule: str, by: Mapping[str, str], reason: str, rules: Iterable[str]) -> None:
    """Raises InputError where it would silence nothing there is, or says not why. `rules` are the names that there are."""
    known = tuple(rules)
    if not rule and not by:
        raise InputError('say what to silence: a rule, a group (by: job=4711), or both; rule "*" silences all')
    if rule and not any(matches(name, rule) for name in known):
        raise no_such("rule", rule, known)
    for name, pattern in by.items():
        if name not in DIMENSION_NAMES:
            raise no_such("dimension", name, DIMENSION_NAMES)
        if not pattern:
            raise InputError(f"{name} is empty; say which, or a pattern like train-*")
    if not reason.strip():
        raise InputError("say why, for those who wonder later: a reason is missing")
    if len(reason) > LONGEST_REASON:
        raise InputError(f"the reason has {len(reason):,} characters, at most {LONGEST_REASON} are kept; shorten it")


SILENCE_COLUMNS: Final = "id, rule, by, created_ms, until_ms, reason, who, ended_ms"


def list_silences(connection: sqlite3.Connection) -> list[Silence]:
    """All that are kept, those that are over too, in the order they were made."""
    rows = connection.execute(f"SELECT {SILENCE_COLUMNS} FROM silences ORDER BY created_ms, rowid")
    return [Silence(row[0], row[1], json.loads(row[2]), *row[3:]) for row in rows.fetchall()]
