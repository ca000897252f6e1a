"""The events that an exporter's values tell: XID and ECC errors, and what slowed a GPU down."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.sources.base import DeviceEvent, Rows
from loadfactor.sources.gpu_scrapes.fields import (
    EVENT_KEYS,
    KEY_NUMBER,
    KEYS,
    READ_KEYS,
    SLOWING_BITS,
    THROTTLE,
    UNTIMED,
    XID,
    FieldValues,
)
from loadfactor.sources.gpu_scrapes.known_devices import KnownDevices
from loadfactor.sources.parsing.steps import grow
from loadfactor.tables.schema import table

EVENT_COLUMNS: Final = (*EVENT_KEYS, *SLOWING_BITS)
"""Memory of each GPU: the last reading of each key, and the last hour reported of each reason, ms since 1970 UTC."""
_IS_EVENT: Final = np.array([key in EVENT_KEYS or key == THROTTLE for key in READ_KEYS])
_MOST: Final = 2.0**53
"""From here on a number is no code, count or mask: it has lost its last digits."""


class LastReadings:
    """The last readings, and when they were: a row for each GPU of KnownDevices, a column for each of EVENT_COLUMNS; -1 where there
    was none.
    """

    def __init__(self) -> None:
        self.values = np.empty((0, len(EVENT_COLUMNS)), np.int64)
        self.at_ms = np.empty((0, len(EVENT_COLUMNS)), np.int64)

    def grow(self, gpus: int) -> None:
        """Room for so many GPUs."""
        self.values, self.at_ms = (grow(values, gpus, -1) for values in (self.values, self.at_ms))


class DeviceEvents:
    """Collects the readings that tell of events, and makes rows of them in the order of time.

    `last` is all that is remembered from one `drain` to the next, where nothing waits.
    """

    def __init__(self, known: KnownDevices, where: str, before: Iterable[DeviceEvent] = ()) -> None:
        """`before`: events that are known already; they count where `last` knows nothing of a GPU."""
        self._known, self._where = known, where
        self.last = LastReadings()
        self._before: dict[str, list[DeviceEvent]] = defaultdict(list)
        for event in sorted(before, key=lambda e: (e.at_ms, e.kind != "reset")):  # set back, then counted
            self._before[event.device_id].append(event)
        self._waiting: list[NDArray[np.int64]] = []  # columns: GPU, key, time, value

    def feed(self, values: FieldValues) -> FieldValues:
        """Takes what tells of events; the values that samples are made of."""
        is_event = _IS_EVENT[values.key] & (values.at_ms != UNTIMED) & (values.value >= 0) & (values.value < _MOST)
        at = np.flatnonzero(is_event)
        if len(at):
            self._waiting.append(
                np.stack([values.gpu[at], values.key[at], values.at_ms[at], values.value[at]], axis=1).astype(np.int64)
            )
        is_of_sample = values.key < len(KEYS)
        return values if is_of_sample.all() else values.pick(is_of_sample)

    def drain(self, done_ms: NDArray[np.int64] | None = None) -> Iterator[Rows]:
        """Events of the readings up to these times, by GPU; None: of all. What is not later than the last reading tells nothing."""
        if not self._waiting:
            return
        found = np.concatenate(self._waiting)
        complete = np.ones(len(found), bool) if done_ms is None else found[:, 2] <= done_ms[found[:, 0]]
        self._waiting = [] if complete.all() else [found[~complete]]
        events = sorted(self._find_changes(_list_readings(found[complete])))
        if events:
            rows = [{**asdict(event), "at_utc": event.at_ms} for event in events]
            data = pa.Table.from_pylist(rows, table("device_events").schema)
            yield Rows("device_events", data, self._where)

    def _find_changes(self, readings: NDArray[np.int64]) -> Iterator[DeviceEvent]:
        """Events where a reading, or an hour, differs from the one before of its GPU."""
        self.last.grow(len(self._known.gpus))
        readings = readings[readings[:, 2] > self.last.at_ms[readings[:, 0], readings[:, 1]]]
        gpu, what, at_ms, value = readings.T
        n = len(readings)
        first = np.append(True, (gpu[1:] != gpu[:-1]) | (what[1:] != what[:-1]))[:n]
        last = np.where(first, self.last.values[gpu, what], np.roll(value, 1))
        for i in np.flatnonzero(last < 0).tolist():
            last[i] = self._find_before(gpu[i], what[i], at_ms[i]) if self._before else 0
        ends = np.append(first[1:], True)[:n]
        self.last.values[gpu[ends], what[ends]], self.last.at_ms[gpu[ends], what[ends]] = value[ends], at_ms[ends]
        changes = np.column_stack([readings, last])[value != last].tolist()
        for number, kind, when, now, before in changes:
            name, detail = self._known.gpus.all[number], EVENT_COLUMNS[kind]
            if detail in SLOWING_BITS:
                yield DeviceEvent(when, name, "throttle", detail)
            elif detail == XID:
                yield from find_xid(name, when, now, before)
            else:
                yield from find_counted(name, detail, when, now, before)

    def _find_before(self, gpu: int, what: int, at_ms: int) -> int:
        known = self._before.get(self._known.gpus.all[gpu], ())
        return find_last([event for event in known if event.at_ms < at_ms], EVENT_COLUMNS[what])


def _list_readings(readings: NDArray[np.int64]) -> NDArray[np.int64]:
    """GPU, place in EVENT_COLUMNS, time and value, in this order, each once: of two values at one time the greater one.

    A mask is its reasons, one for each hour in which it slowed the GPU down: power caps come and go with every kernel, and each
    of them as an event would be thousands a day.
    """
    is_mask = readings[:, 1] == KEY_NUMBER[THROTTLE]
    parts = [readings[~is_mask]]
    parts[0][:, 1] -= len(KEYS)
    masks = readings[is_mask]
    masks[:, 2] -= masks[:, 2] % MS_PER_HOUR
    for place, bit in enumerate(SLOWING_BITS.values(), start=len(EVENT_KEYS)):
        slowed = masks[masks[:, 3] & bit != 0]
        slowed[:, 1], slowed[:, 3] = place, slowed[:, 2]
        parts.append(slowed)
    found: NDArray[np.int64] = np.concatenate(parts)
    found = found[np.lexsort(found.T[::-1])]
    same = (found[1:, :3] == found[:-1, :3]).all(axis=1)  # pods and MIG instances repeat what their GPU says
    return np.delete(found, np.flatnonzero(same), axis=0)


def find_xid(device_id: str, at_ms: int, code: int, last: int) -> Iterator[DeviceEvent]:
    """The event of a gauge that holds the code of the last XID, 0 when there was none since the driver was loaded.

    `last` is the reading before. The same code again does not show.

    >>> [(e.kind, e.detail) for e in (*find_xid("g", 0, 79, 0), *find_xid("g", 1, 79, 79), *find_xid("g", 2, 0, 79))]
    [('xid', '79'), ('reset', 'xid')]
    """
    if code != last:
        yield DeviceEvent(at_ms, device_id, *((XID, str(code)) if code else ("reset", XID)))


def find_counted(device_id: str, detail: str, at_ms: int, total: int, last: int) -> Iterator[DeviceEvent]:
    """The events of a counter of ECC errors, with how many were new; `last` is the reading before. One that is less was set back.

    >>> [(e.kind, e.count) for e in find_counted("g", "dbe_volatile", 0, 2, 5)]
    [('reset', None), ('ecc', 2)]
    """
    if total < last:
        yield DeviceEvent(at_ms, device_id, "reset", detail)
        last = 0
    if total > last:
        yield DeviceEvent(at_ms, device_id, "ecc", detail, total - last)


def find_last(events: Sequence[DeviceEvent], detail: str) -> int:
    """The reading of a gauge (`detail` XID) or a counter after these events of one GPU, in the order of time; 0 without any."""
    last = 0
    for event in events:
        if event.kind == "reset" and event.detail == detail:
            last = 0
        elif detail == XID and event.kind == XID:
            last = int(event.detail) if event.detail.isdecimal() else 0
        elif event.kind == "ecc" and event.detail == detail:
            last += event.count or 1
    return last
