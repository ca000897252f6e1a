"""Keeping what the books hold as long as the settings say: what is older is booked a last time, dropped, and stated."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from loadfactor.base.errors import ClockError
from loadfactor.base.units import MS_PER_S
from loadfactor.books.rebuild import refresh
from loadfactor.settings.retention import RetentionSettings
from loadfactor.store.disk import append_audit
from loadfactor.store.manifest import Dropped
from loadfactor.store.retention import (
    DROPPED_BY,
    DroppedRows,
    drop_ledger,
    drop_rows,
    drop_samples,
    list_expired_days,
    measure_ledger,
    measure_rows,
    measure_samples,
)
from loadfactor.store.session import LEDGER
from loadfactor.store.store import Store
from loadfactor.store.trusted_time import ACTION, find_newest_ms, judge_clock
from loadfactor.tables.schema import SAMPLES

if TYPE_CHECKING:
    from loadfactor.store.importing import Progress
    from loadfactor.store.writer import Writer


@dataclass(frozen=True)
class Retained:
    """What was dropped by table, or would be (`is_dry_run`); `samples_begin` and `ledger_begins`: where these do now.

    `clock`: why a run has to be confirmed, if the clock is far from the newest time that the store recorded.
    """

    dropped: tuple[DroppedRows, ...]
    is_dry_run: bool
    samples_begin: datetime | None
    ledger_begins: datetime | None
    clock: str = ""

    @property
    def words(self) -> str:
        """In a sentence, for a log.

        >>> Retained((DroppedRows("samples", 1200, 34000, 2, 0),), False, None, None).words
        'dropped 1,200 rows of samples (2 days, 34,000 bytes)'
        """
        verb = "would drop" if self.is_dry_run else "dropped"
        parts = (
            f"{of.rows:,} rows of {of.table} ({of.days:,} day{'s' * (of.days != 1)}, {of.bytes:,} bytes)"
            for of in self.dropped
        )
        return f"{verb} {', '.join(parts)}" if self.dropped else f"{verb} nothing"


def retain(
    store: Store,
    idle_below: float,
    given: RetentionSettings,
    progress: "Progress",
    now_ms: int | None = None,
    is_dry_run: bool = False,
    is_confirmed: bool = False,
    witnessed_ms: int = 0,
) -> Retained:
    """Drop what is older than it is kept, in one step with the books as they are then. Dropped again, nothing is.

    Age is measured by the machine's clock (`now_ms`). If that is too far from the newest time that the store recorded, ClockError
    is raised before anything is dropped, unless the run `is_confirmed`: then the newest row is trusted from now on, too.

    Raises as `Store.write`.
    """

    def work(writer: "Writer") -> Retained:
        clock = judge_clock(writer.manifest, now_ms, witnessed_ms)
        until = {name: given.until_ms(name, clock.now_ms) for name in DROPPED_BY}
        found = tuple(of for of in _measure(writer, until) if of.rows)
        if not is_dry_run:
            if is_confirmed:
                _trust_newest(writer)
            elif clock.cause and any(until.values()):  # else nothing is ever dropped
                raise ClockError(f"{clock.cause}; {ACTION}")
        if found and not is_dry_run:
            refresh(writer, progress, idle_below)
            for of in found:
                _drop(writer, of)
            refresh(writer, progress, idle_below)  # what is kept beside the ledger follows
        return _describe(writer.manifest.dropped, found, is_dry_run, clock.cause)

    done = store.change(work)
    if done.dropped and not is_dry_run:
        append_audit(store.folder, "retain", dropped={of.table: of.rows for of in done.dropped})
    return done


def _trust_newest(writer: "Writer") -> None:
    """Trust the newest row, whose time somebody confirmed."""
    newest_ms = find_newest_ms(writer.manifest)
    if newest_ms > writer.manifest.trusted_ms:
        writer.manifest = replace(writer.manifest, trusted_ms=newest_ms)


def _measure(writer: "Writer", until: Mapping[str, int]) -> list[DroppedRows]:
    """What goes, by table."""
    span, found = writer.span(), []
    for setting, tables in DROPPED_BY.items():
        for name in tables if until[setting] else ():
            if name == SAMPLES.name:
                days = list_expired_days(writer.manifest, span, until[setting])
                found.append(measure_samples(writer.manifest, days, until[setting]))
            elif name == LEDGER:
                found.append(measure_ledger(writer.manifest, span, until[setting]))
            else:
                found.append(measure_rows(writer, name, until[setting]))
    return found


def _drop(writer: "Writer", of: DroppedRows) -> None:
    if of.table == SAMPLES.name:
        drop_samples(writer, list_expired_days(writer.manifest, writer.span(), of.until_ms))
    elif of.table == LEDGER:
        drop_ledger(writer, of.until_ms)
    else:
        drop_rows(writer, of.table, of.until_ms)


def _describe(dropped: Dropped, found: tuple[DroppedRows, ...], is_dry_run: bool, clock: str) -> Retained:
    ends = [end for _, end in dropped.frozen]
    return Retained(found, is_dry_run, _at(max(ends, default=None)), _at(dropped.begins_ms), clock)


def _at(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / MS_PER_S, UTC)
