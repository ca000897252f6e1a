"""Tagging history anew: the rules and the mapping of today, applied to what was imported before, and what that changes in hours."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadfactor.books.entry_rules import make_entry, restore_said
from loadfactor.books.rebuild import refresh
from loadfactor.books.snapshot import Snapshot
from loadfactor.settings.config import CHOSEN, read_settings
from loadfactor.store.compaction import retag_rows
from loadfactor.store.disk import append_audit
from loadfactor.store.importing import Progress
from loadfactor.store.session import TAGGED, ChangeRows
from loadfactor.store.store import Store
from loadfactor.store.writer import Writer

Holders = dict[tuple[str | None, ...], float]
"""Allocated GPU-hours by team and experiment."""


@dataclass(frozen=True)
class ChangedHours:
    """Allocated GPU-hours of a team's experiment before and after."""

    team: str | None
    experiment: str | None
    gpu_hours_before: float
    gpu_hours: float


@dataclass(frozen=True)
class Retagging:
    """Changes that a retagging made, or would make: rows by table, and hours by team and experiment."""

    rows: dict[str, int]
    hours: tuple[ChangedHours, ...]
    is_dry_run: bool


class _LeaveAsIsError(Exception):
    """Ends a dry run: nothing of it is published."""

    def __init__(self, found: Retagging) -> None:
        super().__init__()
        self.found = found


def retag(store: Store, idle_below: float, mapping: Path | None, is_dry_run: bool, progress: Progress) -> Retagging:
    """As `Books.retag`."""
    entry = make_entry(read_settings(CHOSEN.path), mapping)
    change: ChangeRows = entry.tag or restore_said
    names: tuple[str, ...] = TAGGED
    if entry.mask is not None:  # names that entered before pseudonyms were requested
        change, names = _mask_too(change, entry.mask), (*TAGGED, "progress", "job_sections", "served_requests")

    def work(writer: Writer) -> Retagging:
        progress("tagging", 0.0)
        before = _ask(writer, idle_below)
        if entry.mask is not None and _names_somebody(writer):
            writer.mark_stale([writer.span()])  # also files of the ledger of which only some hours are booked anew
        rows = retag_rows(writer, change, names)
        refresh(writer, progress, idle_below)
        found = Retagging(rows, _compare(before, _ask(writer, idle_below)), is_dry_run)
        if is_dry_run:
            raise _LeaveAsIsError(found)
        return found

    try:
        found = store.change(work)
    except _LeaveAsIsError as ended:
        return ended.found
    if found.rows:
        append_audit(store.folder, "retag", rows=found.rows, mapping=str(mapping or ""))
    return found


def _mask_too(tag: ChangeRows, mask: ChangeRows) -> ChangeRows:
    return lambda table, rows: mask(table, tag(table, rows) if table in TAGGED else rows)


def _names_somebody(writer: Writer) -> bool:
    writer.view_table("allocations", "allocations")
    from loadfactor.base.privacy import PREFIX  # brings cryptography, which takes 50 ms to import

    return bool(writer.fetch_one(f"SELECT 1 FROM allocations WHERE NOT starts_with(user, '{PREFIX}') LIMIT 1"))


def _ask(writer: Writer, idle_below: float) -> Holders:
    """Allocated GPU-hours by team and experiment."""
    if writer.span() == (0, 0):
        return {}
    readings = Snapshot(writer, idle_below).show("allocated_gpu_hours", ("team", "experiment"))
    values: Sequence[object] = readings.column("allocated_gpu_hours")
    return {key: value for key, value in zip(readings.keys, values, strict=True) if isinstance(value, float) and value}


def _compare(before: Holders, after: Holders) -> tuple[ChangedHours, ...]:
    """The groups whose hours changed by more than rounding, the greatest change first."""
    changed = [ChangedHours(key[0], key[1], before.get(key, 0.0), after.get(key, 0.0)) for key in {**before, **after}]
    changed = [c for c in changed if abs(c.gpu_hours - c.gpu_hours_before) > ROUNDING_GPU_HOURS]
    return tuple(
        sorted(changed, key=lambda c: (-abs(c.gpu_hours - c.gpu_hours_before), c.team or "", c.experiment or ""))
    )


ROUNDING_GPU_HOURS = 1e-6
"""Sums of the same hours in another order differ by less."""
