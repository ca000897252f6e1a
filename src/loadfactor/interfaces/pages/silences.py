"""Silences as they are made and lifted, with a line in the audit log, and the pages that say so."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

from loadfactor.base.errors import InputError
from loadfactor.base.quantities import parse_duration_s
from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.delivery.courier import now_ms
from loadfactor.insight.alerts.delivery.listed import describe_silence, read_board
from loadfactor.insight.alerts.delivery.silence import Silence, check_silence
from loadfactor.insight.alerts.delivery.silences import add_silence, lift_silence, name_silence
from loadfactor.insight.alerts.rules import RULES
from loadfactor.interfaces.cli.books_request import read_moment
from loadfactor.interfaces.document import DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import counted, instant
from loadfactor.metrics.query.calendar import instant as moment
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.settings.config import settings
from loadfactor.store.audit import append_audit
from loadfactor.store.manifest import has_books

LONGEST_MS = 366 * MS_PER_DAY
COLUMNS = tuple(map(TableColumn, ("id", "silences", "until", "reason", "by whom")))


@dataclass(frozen=True)
class SilenceList:
    """Silences as their JSON has them."""

    silences: tuple[Mapping[str, Any], ...]


def make_silence(
    folder: Path, rule: str, by: Mapping[str, str], how_long: tuple[str | None, str | None], reason: str, who: str = ""
) -> Silence:
    """Silence what matches; `how_long` is a length of time, or until when. Raises InputError, StoreError and DamageError."""
    if not has_books(folder):
        raise InputError(f"no books in {folder}; name them with --store")
    now = now_ms()
    until = _read_end(now, *how_long)
    check_silence(rule, by, reason, list(dict.fromkeys(r.name for r in (*RULES, *configure(RULES, settings().alert)))))
    silence = Silence(name_silence(), rule, dict(by), now, until, reason, who)
    add_silence(folder, silence)
    append_audit(
        folder, "silence", who, id=silence.id, rule=rule or "*", matching=dict(by), until_ms=until, reason=reason
    )
    return silence


def lift(folder: Path, silence_id: str, who: str = "") -> Silence:
    """End a silence now. Raises InputError where there is none of this id, StoreError and DamageError."""
    if not has_books(folder):
        raise InputError(f"no books in {folder}; name them with --store")
    silence = lift_silence(folder, silence_id, now_ms())
    append_audit(folder, "unsilence", who, id=silence.id)
    return silence


def build_made(silence: Silence) -> Document:
    """What was silenced."""
    until = instant(moment(silence.until_ms))
    headline = f"Nobody is told of {_say(silence)} until {until}: silence {silence.id}."
    return Document(headline, data=describe_silence(silence, now_ms()))


def build_lifted(silence: Silence) -> Document:
    """What is silenced no longer."""
    return Document(
        f"Silence {silence.id} of {_say(silence)} is over: what fires still is told now.",
        data=describe_silence(silence, now_ms()),
    )


def build_list(folder: Path) -> Document:
    """The silences that hold now."""
    now = now_ms()
    found = [silence for silence in read_board(folder, now, ()).silences if silence.is_active(now)]
    rows = [(s.id, _say(s), instant(moment(s.until_ms)), s.reason, s.who) for s in found]
    sections = (Section(tables=(DataTable(COLUMNS, rows),)),) if rows else ()
    headline = f"{counted(len(found), 'silence')}." if found else "Nothing is silenced."
    return Document(headline, sections, data=SilenceList(tuple(describe_silence(s, now) for s in found)))


def _say(silence: Silence) -> str:
    """What a silence matches, in words."""
    groups = ", ".join(f"{name} {value}" for name, value in silence.by.items())
    rule = "all rules" if silence.rule in ("", "*") else silence.rule
    return f"{rule}, {groups}" if groups else rule


def _read_end(now: int, length: str | None, until: str | None) -> int:
    """When a silence ends. Raises InputError where that is not said once, or is over, or more than a year away."""
    if (length is None) == (until is None):
        raise InputError("say for how long, --for 2h, or until when, --until 2026-10-05T18:00; one of the two")
    if length is not None:
        end = now + round(parse_duration_s(length) * MS_PER_S)
    else:
        at = read_moment(until, UTC)
        assert at is not None
        end = milliseconds(at)
    if not now < end <= now + LONGEST_MS:
        raise InputError("a silence ends later than now and within a year; choose another end")
    return end
