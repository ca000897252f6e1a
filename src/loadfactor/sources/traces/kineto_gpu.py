"""GPU events and devices of a Kineto trace, from its gathered columns."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.traces.flops import match_flops
from loadfactor.sources.traces.kinds import refine_kinds
from loadfactor.sources.traces.kineto_columns import GPU_FIELDS, WORK_FIELDS, KinetoColumns, join
from loadfactor.sources.traces.scan.fields import EventField
from loadfactor.sources.traces.scan.tokens import MISSING, TOO_LARGE
from loadfactor.tables.trace_events import GpuEvents, GpuKind, TraceDevice

Int64s = NDArray[np.int64]
AT = {field: place for place, field in enumerate(GPU_FIELDS)}


def make_gpu_events(
    columns: KinetoColumns, names: list[str], launch: NDArray[np.int32]
) -> tuple[GpuEvents, list[int | str]]:
    """The GPU events by their start, and the labels of their devices. Empties the columns."""
    rows = gpu_rows(columns)
    kind = refine_kinds(join(columns.gpu_kind, 0, np.int8), rows[:, AT[EventField.NAME]].astype(np.int32), names)
    columns.gpu, columns.gpu_kind = [], []
    labels, device = _number_devices(rows, names)
    length = rows[:, AT[EventField.DURATION_NS]]
    size = np.where(kind == GpuKind.COMM, rows[:, AT[EventField.ELEMENTS_IN]], rows[:, AT[EventField.BYTES]])
    events = GpuEvents(
        start_ns=rows[:, AT[EventField.START_NS]],
        end_ns=rows[:, AT[EventField.START_NS]] + length,
        kind=kind,
        name=rows[:, AT[EventField.NAME]].astype(np.int32),
        device=device,
        stream=_or_minus_one(rows[:, AT[EventField.STREAM]]),
        launch=launch,
        size=_or_minus_one(size),
        blocks=_or_minus_one(rows[:, AT[EventField.GRID]]),
        group=rows[:, AT[EventField.GROUP]].astype(np.int32),
        flops=match_flops(
            join(columns.works, len(WORK_FIELDS), np.int64), names, rows[:, AT[EventField.EXTERNAL]], length
        ),
        moved=np.full(len(rows), np.nan, np.float32),
    )
    return events.take(np.argsort(events.start_ns, kind="stable")), labels


def gpu_rows(columns: KinetoColumns) -> Int64s:
    """The rows of GPU events, a column for each of GPU_FIELDS."""
    return join(columns.gpu, len(GPU_FIELDS), np.int64)


def _or_minus_one(values: Int64s) -> Int64s:
    return np.where((values == MISSING) | (values == TOO_LARGE), -1, values)


def _number_devices(rows: Int64s, names: list[str]) -> tuple[list[int | str], NDArray[np.int32]]:
    """The labels of devices, and for each row which one it is: the device it names, else its process, as old traces have it."""
    said, pid = rows[:, AT[EventField.DEVICE]], rows[:, AT[EventField.PID]]
    named = (said != MISSING) & (said != TOO_LARGE)
    pairs, device = np.unique(np.where(named, said, MISSING + 2 + pid), return_inverse=True)
    labels: list[int | str] = []
    for number in pairs.tolist():
        if number > MISSING // 2:
            labels.append(number)
            continue
        place = number - MISSING - 2
        text = names[place] if place >= 0 else "?"
        labels.append(int(text) if text.isdecimal() else text)
    return _merge(labels, device.astype(np.int32))


def _merge(labels: list[int | str], device: NDArray[np.int32]) -> tuple[list[int | str], NDArray[np.int32]]:
    """Devices that are called the same are one."""
    merged = list(dict.fromkeys(labels))
    table = np.array([merged.index(label) for label in labels], np.int32)
    return merged, table[device] if len(labels) else device


def describe_devices(labels: list[int | str], properties: Any) -> tuple[TraceDevice, ...]:
    """The devices of a trace with what its header says of them."""
    told = (
        {item.get("id"): item for item in properties if isinstance(item, dict)} if isinstance(properties, list) else {}
    )
    found = []
    for label in labels:
        own = told.get(label, {})
        count = own.get("numSms")
        found.append(TraceDevice(label, str(own.get("name", "")), count if isinstance(count, int) else None))
    return tuple(found)
