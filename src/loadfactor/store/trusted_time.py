"""Trusted time: the clock by which anything is deleted or expires, bounded by the newest time that the store recorded.

The machine's clock counts while it is at most one day from that time. Further ahead or behind, nothing is deleted, and what
expires is judged by the nearest time that is sure.

The manifest keeps the newest recorded time (`Manifest.trusted_ms`). It follows the times of rows, never those of records, logs or
names that this machine wrote. An import moves it to where its rows end: they carry their own times. Rows that came live may be
stamped by our own clock, so a flush moves it by one day at most, unless a sender with a clock of its own reached further
(`witnessed_ms`). `loadfactor retain --confirm` moves it to the newest row.

Protected: a clock that is wrong, with or without rows that it stamped, and a few rows of an import that are far ahead of the
others.
Not protected: a sender, or most rows of an import, with the same wrong time as the clock; the clock of a store without rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

from loadfactor.base.clock import now_ms as read_machine_ms
from loadfactor.base.health import HealthReason
from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_S
from loadfactor.store.manifest import Manifest, StoredFile
from loadfactor.store.place import Place
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.schema import ALLOCATIONS, DEVICE_EVENTS, NODE_SAMPLES, QUEUE_EVENTS, SAMPLES
from loadfactor.tables.work import JOB_SECTIONS, PROGRESS, SERVED_REQUESTS

LARGEST_DISTANCE_MS: Final = MS_PER_DAY
"""A clock further from the newest recorded time than this is not believed."""
LEAST_SHARE: Final = 0.05
"""A time counts if at least this share of the rows of an import is as new: one host with a wrong clock has fewer."""
HAPPENED: Final = tuple(
    table.name for table in (NODE_SAMPLES, DEVICE_EVENTS, QUEUE_EVENTS, PROGRESS, JOB_SECTIONS, SERVED_REQUESTS)
)
"""Tables of what happened, besides samples: their times are never planned ones."""


@dataclass(frozen=True)
class ClockState:
    """The machine's clock beside the newest time that the store recorded, both in ms since 1970 UTC.

    `newest_trusted_ms` is None for a store without rows: the clock is believed, there is nothing to delete.
    """

    now_ms: int
    newest_trusted_ms: int | None

    @property
    def ahead_s(self) -> float:
        """Seconds by which the clock is ahead of the newest recorded time; negative if it is behind, 0 without rows."""
        return 0.0 if self.newest_trusted_ms is None else (self.now_ms - self.newest_trusted_ms) / MS_PER_S

    @property
    def deletions(self) -> Literal["allowed", "stopped"]:
        """Whether anything may be deleted for its age."""
        return "stopped" if abs(self.ahead_s) * MS_PER_S > LARGEST_DISTANCE_MS else "allowed"

    @property
    def expiry_ms(self) -> int:
        """The time by which things expire: the clock, but at most one day after the newest recorded time.

        A clock that is more than a day behind gives the newest recorded time.

        >>> DAY = MS_PER_DAY
        >>> [ClockState(now * DAY, 100).expiry_ms - 100 for now in (0, 1, 700)] == [DAY * 0 - 100, DAY - 100, DAY]
        True
        """
        newest_ms = self.newest_trusted_ms
        if newest_ms is None:
            return self.now_ms
        if self.now_ms < newest_ms - LARGEST_DISTANCE_MS:
            return newest_ms
        return min(self.now_ms, newest_ms + LARGEST_DISTANCE_MS)

    @property
    def latest_ms(self) -> int:
        """The clock, or the newest recorded time if the clock is behind it: when something that begins now begins."""
        return max(self.now_ms, self.expiry_ms)

    @property
    def cause(self) -> str:
        """Why deletions are stopped, without a full stop; empty if they are allowed."""
        if self.deletions == "allowed":
            return ""
        side = "ahead of" if self.ahead_s > 0 else "behind"
        return (
            f"the clock of this machine ({_iso(self.now_ms)}) is {_show_length(abs(self.ahead_s))} {side} the newest time that"
            f" the store recorded ({_iso(self.newest_trusted_ms)}), so nothing is deleted"
        )

    def reason(self, deletes: bool = True) -> HealthReason | None:
        """The reason for /health; None if deletions are allowed. `deletes`: whether the settings have anything deleted."""
        if self.deletions == "allowed":
            return None
        return HealthReason("clock", None, "degraded" if deletes else "note", self.cause, None, ACTION)

    def as_json(self) -> dict[str, Any]:
        """The key `clock` of /health."""
        return {
            "now_utc": _iso(self.now_ms),
            "newest_trusted_utc": _iso(self.newest_trusted_ms),
            "ahead_s": round(self.ahead_s, 3),
            "deletions": self.deletions,
        }


ACTION: Final = (
    "set the clock by NTP; if it is right, data of now ends this, and `loadfactor retain --confirm` permits one run"
)
"""What to do while deletions are stopped."""


def read_clock(place: Place, now_ms: int | None = None, witnessed_ms: int = 0) -> ClockState:
    """Read the clock of a store; `now_ms` is the machine's by default. Raises DamageError and StoreError."""
    return judge_clock(place.read_newest(), now_ms, witnessed_ms)


def judge_clock(manifest: Manifest, now_ms: int | None = None, witnessed_ms: int = 0) -> ClockState:
    """Compare the machine's clock with the newest trusted time of a manifest.

    `witnessed_ms`: the newest sample of senders with a clock of their own that may be in no file yet.
    """
    newest_ms = max(
        manifest.trusted_ms or advance_trusted_ms(Manifest(), manifest, has_source_times=True), witnessed_ms
    )
    return ClockState(read_machine_ms() if now_ms is None else now_ms, newest_ms or None)


def advance_trusted_ms(before: Manifest, after: Manifest, has_source_times: bool, witnessed_ms: int = 0) -> int:
    """Compute the newest trusted time of a manifest that follows another; 0 if no row has a time.

    `has_source_times`: the new rows carry the times of their source, not of this machine's clock.
    """
    trusted_ms = max(after.trusted_ms, witnessed_ms)
    if has_source_times or not trusted_ms:
        names_before = {file.name for file in before.files} if trusted_ms else set()
        new_files = [file for file in after.files if file.name not in names_before]
        trusted_ms = max(trusted_ms, _find_shared_end(_list_extents(new_files)))
    trusted_ms = _follow(_list_extents(after.files), trusted_ms)
    small_end_ms = _find_small_end(after)
    is_first = not trusted_ms or (has_source_times and not after.of(SAMPLES.name))
    if is_first or small_end_ms <= trusted_ms + LARGEST_DISTANCE_MS:
        trusted_ms = max(trusted_ms, small_end_ms)
    # Rows that were forgotten no longer say what time it was.
    return min(trusted_ms, find_newest_ms(after))


def find_newest_ms(manifest: Manifest) -> int:
    """Find the newest time that any row has, trusted or not; 0 if no row has a time."""
    ends = [extent.last_ms for extent in _list_extents(manifest.files)]
    return max([_find_small_end(manifest), *ends, *(end for _, end in manifest.dropped.frozen)])


class _Extent(NamedTuple):
    """The first and the last time of the samples of a file, and how many there are."""

    first_ms: int
    last_ms: int
    rows: int


def _list_extents(files: Iterable[StoredFile]) -> list[_Extent]:
    """List the extents of files of samples, each of one UTC day."""
    return [
        _Extent(file.samples.first_taken_ms, file.samples.last_taken_ms, file.rows)
        for file in files
        if file.samples is not None and not file.is_log
    ]


def _find_small_end(manifest: Manifest) -> int:
    """Find the newest time of tables of what happened; without them and samples, the end of allocations or bills; 0 if none."""
    has_samples = bool(manifest.of(SAMPLES.name))
    for names in (HAPPENED,) if has_samples else (HAPPENED, (ALLOCATIONS.name,), (CHARGES.name,)):
        ends = [file.to_ms for name in names for file in manifest.of(name) if file.to_ms is not None]
        if ends:
            return max(ends)
    return 0


def _find_shared_end(extents: Iterable[_Extent]) -> int:
    """Find the newest time that is reached by LEAST_SHARE of the rows; 0 without rows.

    >>> _find_shared_end([_Extent(0, 50, 1000), _Extent(60, 90, 100), _Extent(900, 900, 1)])
    90
    """
    newest_first = sorted(extents, key=lambda extent: -extent.last_ms)
    least_rows = LEAST_SHARE * sum(extent.rows for extent in newest_first)
    rows = 0
    for extent in newest_first:
        rows += extent.rows
        if rows >= least_rows:
            return extent.last_ms
    return 0


def _follow(extents: Iterable[_Extent], from_ms: int) -> int:
    """Go on from a trusted time over rows without a gap of more than a day; how far that is.

    >>> DAY = MS_PER_DAY
    >>> _follow([_Extent(DAY, 2 * DAY, 9), _Extent(3 * DAY, 4 * DAY, 9), _Extent(99 * DAY, 99 * DAY, 9)], DAY) // DAY
    4
    """
    reached_ms = from_ms
    for first_ms, last_ms, _ in sorted(extents):
        if first_ms <= reached_ms + LARGEST_DISTANCE_MS:
            reached_ms = max(reached_ms, last_ms)
    return reached_ms


def _iso(at_ms: int | None) -> str | None:
    """Write a time with seconds; a time outside of the calendar is its nearest end."""
    if at_ms is None:
        return None
    at_s = min(max(at_ms // MS_PER_S, 0), LAST_S)
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s)).isoformat().replace("+00:00", "Z")


LAST_S: Final = 253_402_300_799
"""9999-12-31T23:59:59Z."""


def _show_length(seconds: float) -> str:
    days = seconds * MS_PER_S / MS_PER_DAY
    if days < 3:
        return f"{seconds * MS_PER_S / MS_PER_HOUR:,.0f} hours"
    return f"{days:,.0f} days"
