"""Readings of one metric on one GPU → events: what an XID gauge or an ECC counter tells where it changes.

An exporter repeats what it read last: an event is where a reading differs from the one before. What was before the first reading
of a log follows from the events that are known already, so that a log in pieces tells what it tells as a whole. For that, going
back is an event as well (`reset`): the driver was loaded again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

XID: Final = "xid"
ECC_DETAILS: Final = ("sbe_volatile", "dbe_volatile", "sbe_aggregate", "dbe_aggregate")
"""Single-bit (corrected) and double-bit errors, since the driver was loaded and over the GPU's life: an error counts in both."""
SLOWING_BITS: Final = {
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}
"""NVML's clock event reasons that slow a GPU down; being idle and clocks that somebody set do not."""


@dataclass(frozen=True, order=True)
class DeviceEvent:
    """A row of `device_events`, at ms since 1970 UTC; `count` is empty where it is one."""

    at_ms: int
    device_id: str
    kind: str
    detail: str
    count: int | None = None


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
    """What a gauge (`detail` XID) or a counter read after these events of one GPU, in the order of time; 0 without any."""
    last = 0
    for event in events:
        if event.kind == "reset" and event.detail == detail:
            last = 0
        elif detail == XID and event.kind == XID:
            last = int(event.detail) if event.detail.isdecimal() else 0
        elif event.kind == "ecc" and event.detail == detail:
            last += event.count or 1
    return last
