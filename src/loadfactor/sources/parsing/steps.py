"""The nominal step of a series, and how far a sample reaches back."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_HOUR, MS_PER_S
from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.tables.schema import DEVICES, REACH_STEPS

EXPORTER_STEP_S: Final = 30.0
"""The interval of dcgm-exporter unless it is configured otherwise: the step of a series that shows none."""


def learn_step(gaps_ms: NDArray[np.int64], step_s: float | None) -> int | None:
    """The step in ms: as given (`step_s`), else the median distance between neighbouring samples, an hour at most.

    None when none is given and there are no two samples.

    >>> learn_step(np.array([30_000, 30_000, 540_000]), None), learn_step(np.array([]), None)
    (30000, None)
    """
    if step_s is not None:
        return round(step_s * MS_PER_S)
    known = gaps_ms[gaps_ms > 0]
    return min(int(np.median(known)), MS_PER_HOUR) if len(known) else None


def learn_step_of(times_ms: Sequence[int], step_s: float | None, default_step_s: float) -> int:
    """The step in ms of a series with these sorted instants; the default where they do not show it.

    >>> learn_step_of([0, 30_000, 60_000, 600_000], None, 1)
    30000
    """
    times = np.asarray(times_ms, dtype=np.int64)
    step_ms = learn_step(times[1:] - times[:-1], step_s)
    return round(default_step_s * MS_PER_S) if step_ms is None else step_ms


def is_within_reach(at_ms: int, previous_ms: int, step_ms: int) -> bool:
    """True where a sample covers the whole time since the one before, and False where there is a gap between them.

    >>> is_within_reach(45_000, 0, 30_000), is_within_reach(45_001, 0, 30_000)
    (True, False)
    """
    return at_ms - previous_ms <= REACH_STEPS * step_ms


def find_start(at_ms: int, previous_ms: int | None, step_ms: int) -> int:
    """The start of the interval that a sample speaks of: the sample before it, or one step before where that is out of reach.

    >>> find_start(45_000, 0, 30_000), find_start(45_001, 0, 30_000), find_start(45_000, None, 30_000)
    (0, 15001, 15000)
    """
    if previous_ms is not None and is_within_reach(at_ms, previous_ms, step_ms):
        return previous_ms
    return at_ms - step_ms


def grow(array: NDArray[Any], size: int, fill: Any) -> NDArray[Any]:
    """An array with room for `size` entries at least, new ones `fill`; twice as long where it is too short."""
    if len(array) >= size:
        return array
    more = max(size, 2 * len(array)) - len(array)
    return np.concatenate([array, np.full((more, *array.shape[1:]), fill, array.dtype)])


GAPS: Final = 9
"""The step is the median of so many distances between scrapes, of an even number the lower one."""
NO_GAP: Final = np.iinfo(np.int64).max
NEVER: Final = -1
DEFAULT_STEP_MS: Final = round(EXPORTER_STEP_S * MS_PER_S)


class RunningSteps:
    """The last scrape of each device (`last_ms`, NEVER) and the distances between its latest ones (`gaps_ms`, NO_GAP)."""

    def __init__(self) -> None:
        self.last_ms = np.empty(0, np.int64)
        self.gaps_ms = np.empty((0, GAPS), np.int64)

    def grow(self, devices: int) -> None:
        """Room for so many devices."""
        self.last_ms, self.gaps_ms = grow(self.last_ms, devices, NEVER), grow(self.gaps_ms, devices, NO_GAP)

    def find_alone(self) -> NDArray[np.bool_]:
        """True for devices that were scraped once."""
        found: NDArray[np.bool_] = (self.last_ms >= 0) & (self.gaps_ms == NO_GAP).all(axis=1)
        return found

    def follow(
        self, device: NDArray[np.int32], at_ms: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """For scrapes sorted by device, then time: where the interval of each begins, its step, and the scrape before (NEVER)."""
        n = len(device)
        is_first = np.append(True, device[1:] != device[:-1])[:n]
        is_last = np.append(is_first[1:], True)[:n]
        before_ms = np.where(is_first, self.last_ms[device], np.append(NEVER, at_ms[:-1])[:n])
        gap_ms = np.where(before_ms >= 0, at_ms - before_ms, NO_GAP)
        begins = np.flatnonzero(is_first)
        at = np.arange(n) + GAPS * np.cumsum(is_first)  # each device's gaps behind those it had
        line = np.empty(n + GAPS * len(begins), np.int64)
        line[at] = gap_ms
        line[(at[begins, None] - GAPS) + np.arange(GAPS)] = self.gaps_ms[device[begins]]
        latest = line[at[:, None] + np.arange(1 - GAPS, 1)]
        known = (latest != NO_GAP).sum(axis=1)
        middle = np.maximum(known - 1, 0) // 2
        step_ms = np.sort(latest, axis=1)[np.arange(n), middle]
        step_ms = np.where(known > 0, np.minimum(step_ms, MS_PER_HOUR), DEFAULT_STEP_MS)
        near = (before_ms >= 0) & is_within_reach(at_ms, before_ms, step_ms)  # type: ignore[arg-type]
        self.last_ms[device[is_last]], self.gaps_ms[device[is_last]] = at_ms[is_last], latest[is_last]
        return np.where(near, before_ms, at_ms - step_ms), step_ms, before_ms


_BATCH: Final = 50_000


@dataclass
class _Presence:
    node: str | None = None
    accelerator: str | None = None
    index: int | None = None
    from_ms: int | None = None  # earliest start that a row states
    first_ms: int | None = None  # earliest timestamp of a sample that states no start
    last_ms: int | None = None
    open: bool = False  # held by somebody without an end
    early_ms: set[int] = field(default_factory=set)


class DevicesSeen:
    """The devices mentioned so far; a few numbers each, however long the input is.

    A device's step is learnt from its first `learn_from` instants, and is `default_step_s` where they do not show it.
    """

    def __init__(self, options: ReadOptions, default_step_s: float, learn_from: int, where: str = "") -> None:
        self._options, self._where = options, where
        self._default_step_s, self._learn_from = default_step_s, learn_from
        self._seen: dict[str, _Presence] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def name(self, device_id: str, node: str | None, accelerator: str | None = None, index: int | None = None) -> None:
        """Where this device is, what it is, and its number there; None changes nothing."""
        seen = self._seen.setdefault(device_id, _Presence())
        seen.node, seen.accelerator = node or seen.node, accelerator or seen.accelerator
        seen.index = seen.index if index is None else index

    def see_instants(self, device_id: str, first_ms: int, last_ms: int, some_ms: Iterable[int]) -> None:
        """This device has samples from `first_ms` to `last_ms` that state no start; `some_ms` are instants of them."""
        seen = self._seen.setdefault(device_id, _Presence())
        seen.first_ms, seen.last_ms = _min(seen.first_ms, first_ms), _max(seen.last_ms, last_ms)
        if len(seen.early_ms) < self._learn_from:
            few = zip(range(self._learn_from - len(seen.early_ms)), some_ms, strict=False)
            seen.early_ms.update(at for _, at in few)

    def see_interval(self, device_id: str, from_ms: int | None, to_ms: int | None, open_end: bool = False) -> None:
        """This device is mentioned from `from_ms` to `to_ms`, each where known; `open_end` where that has no end yet."""
        seen = self._seen.setdefault(device_id, _Presence())
        seen.from_ms, seen.last_ms = _min(seen.from_ms, from_ms), _max(seen.last_ms, to_ms)
        seen.open |= open_end

    def make_rows(self) -> Iterator[Rows]:
        """The devices, in the order first seen."""
        items = list(self._seen.items())
        for i in range(0, len(items), _BATCH):
            batch = items[i : i + _BATCH]
            columns = {
                "device_id": [device_id for device_id, _ in batch],
                "node": [seen.node for _, seen in batch],
                "accelerator": [seen.accelerator for _, seen in batch],
                "pool": [self._options.pool] * len(batch),
                "gpu_index": [seen.index for _, seen in batch],
                "from_utc": [self._find_first(seen) for _, seen in batch],
                "to_utc": [None if seen.open else seen.last_ms for _, seen in batch],
            }
            schema = pa.schema([DEVICES.schema.field(name) for name in columns])
            yield Rows("devices", pa.table(columns, schema=schema), self._where, inferred=True)

    def _find_first(self, seen: _Presence) -> int | None:
        if seen.first_ms is None:
            return seen.from_ms
        step_ms = learn_step_of(sorted(seen.early_ms), self._options.step_s, self._default_step_s)
        return _min(seen.from_ms, seen.first_ms - step_ms)


def _min(one: int | None, two: int | None) -> int | None:
    return min((t for t in (one, two) if t is not None), default=None)


def _max(one: int | None, two: int | None) -> int | None:
    return max((t for t in (one, two) if t is not None), default=None)
