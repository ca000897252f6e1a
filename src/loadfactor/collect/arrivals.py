"""Arrivals in the books lately: since when they speak, so that minutes that were judged without it are judged again."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.units import MS_PER_HOUR, MS_PER_MIN
from loadfactor.store.live_database import LiveBatch

MOMENTS: Final = ("device_events", "queue_events")
"""Tables of instants."""
INTERVALS: Final = ("allocations", "outages", "devices")
"""Tables of intervals, which are listed again and again: a known one changes at its end."""
SAMPLED_MS: Final = MS_PER_MIN
"""A sample whose row says no beginning speaks of so much before its end, at least."""
LISTED_AGAIN_MS: Final = MS_PER_HOUR
"""An interval of an outage or device that began longer ago is taken to have been listed before."""
MOST_KEPT: Final = 500_000


class LiveArrivals:
    """Listens to live batches. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since_ms: int | None = None
        self._known: frozenset[str] = frozenset()
        self._seen: set[tuple[str, int]] = set()

    def know(self, jobs: Iterable[str]) -> None:
        """Jobs that the books have already: what is listed of them again is not new."""
        with self._lock:
            self._known = frozenset(jobs)

    def hear(self, batches: Sequence[LiveBatch]) -> None:
        """Batches were stored."""
        with self._lock:
            for batch in batches:
                at = self._find_beginning(batch)
                if at is not None and (self._since_ms is None or at < self._since_ms):
                    self._since_ms = at

    def take(self) -> int | None:
        """The earliest time of rows since the last call; None where nothing came."""
        with self._lock:
            found, self._since_ms = self._since_ms, None
            return found

    def _find_beginning(self, batch: LiveBatch) -> int | None:
        rows = batch.rows
        if batch.table == "samples":
            starts = _first(rows, "from_utc")
            ends = _first(rows, "to_utc")
            return starts if starts is not None else None if ends is None else ends - SAMPLED_MS
        if batch.table in MOMENTS:
            return _first(rows, "at_utc")
        if batch.table not in INTERVALS:
            return None
        found = [
            at
            for row in rows.select([n for n in ("job_id", "from_utc", "to_utc") if n in rows.column_names]).to_pylist()
            if (at := self._find_change(row)) is not None
        ]
        return min(found, default=None)

    def _find_change(self, row: Mapping[str, object]) -> int | None:
        """The first instant at which an interval may differ from what was known of it."""
        began, ended, job = _whole(row.get("from_utc")), _whole(row.get("to_utc")), row.get("job_id")
        if began is None:
            return ended
        if job is None:
            return began if ended is None or ended - began < LISTED_AGAIN_MS else ended
        if str(job) in self._known or (str(job), began) in self._seen:
            return ended
        if len(self._seen) >= MOST_KEPT:
            self._seen.clear()
        self._seen.add((str(job), began))
        return began


def _first(rows: pa.Table, column: str) -> int | None:
    return _whole(pc.min(rows[column].cast(pa.int64())).as_py()) if column in rows.column_names else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
