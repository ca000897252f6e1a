"""Captures of torch.profiler and others that write Chrome's Trace Event Format as Kineto does.

Times are microseconds, whatever `displayTimeUnit` says; they become nanoseconds exactly. Categories and members as of
pytorch/kineto
libkineto/src/output_json.cpp @114171df.
"""

import json
import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.traces.json_events import GPU_FIELDS, WORK_FIELDS, JsonEvents, KinetoColumns, join
from loadfactor.sources.traces.json_tokens import MISSING, TOO_LARGE, EventField
from loadfactor.sources.traces.pieces import TracePieces, find_launches, refine_kinds
from loadfactor.tables.trace_events import (
    GpuEvents,
    GpuKind,
    HostEvents,
    HostKind,
    MemoryUse,
    Thinning,
    TraceCapture,
    TraceDevice,
    TraceStep,
)

Int64s = NDArray[np.int64]
FORMAT: Final = "Kineto JSON"
_STEP: Final = re.compile(r"ProfilerStep#\d+")
_RANK: Final = re.compile(r"rank[-_ ]?(\d+)", re.IGNORECASE)
_TEXTS_AT_MOST: Final = 1 << 32
_FEWEST: Final = 20
"""Calls or operators from which on their numbers say whether some were left out."""
PRODUCTS: Final = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::_scaled_mm": 0,
    "aten::_int_mm": 0,
    "aten::addmm": 1,
    "aten::_addmm_activation": 1,
    "aten::baddbmm": 1,
}
"""The operators that multiply matrices, and which input the first matrix is."""
AT = {field: place for place, field in enumerate(GPU_FIELDS)}
_CPU = 0
"""c10::DeviceType of the host; the others are accelerators."""


def read_kineto(pieces: TracePieces) -> TraceCapture:
    """The capture in one file. Raises SourceError where the file holds no trace."""
    path = pieces.path
    events, columns = JsonEvents(str(path), iter(pieces)), KinetoColumns()
    columns.gather(events)
    names = events.texts
    host, process = _make_host_events(columns)
    calls = join(columns.calls, 2, np.int64)
    launched_by = gpu_rows(columns)[:, AT[EventField.CORRELATION]]
    rows = calls[:, 0]
    found, unclear = find_launches(launched_by, calls[:, 1], host.start_ns[rows], process[rows])
    launch = np.where(found >= 0, rows[found], -1).astype(np.int32) if len(rows) else found
    thinning = _measure_thinning(columns, calls[:, 1], launched_by)
    gpu, labels = make_gpu_events(columns, names, launch)
    job = events.members.get("distributedInfo")
    job = job if isinstance(job, dict) else {}
    base = events.members.get("baseTimeNanoseconds")
    return TraceCapture(
        trace=path.name,
        path=str(path),
        format=FORMAT,
        names=names,
        devices=describe_devices(labels, events.members.get("deviceProperties")),
        gpu=gpu,
        host=host,
        rank=_whole(job.get("rank"), rank_in_name(path.name)),
        world_size=_whole(job.get("world_size"), None),
        clock_ns=base if isinstance(base, int) else 0,
        steps=_list_steps(host, names),
        memory=read_memory(columns.memory),
        thinning=thinning,
        counter_ranges=columns.counter_ranges,
        unreadable_times=events.nan_times,
        overhead_ns=columns.overhead_ns,
        is_cut=events.is_cut or bool(pieces.fault),
        notes=_list_notes(events, columns, pieces.fault, unclear),
    )


def rank_in_name(name: str) -> int | None:
    """The rank a file's name says, None where it says none.

    >>> rank_in_name("Baseline-rank6-chrome-trace.json.gz"), rank_in_name("resnet_kineto.json.gz")
    (6, None)
    """
    found = _RANK.search(name)
    return int(found[1]) if found else None


def _whole(value: Any, otherwise: int | None) -> int | None:
    """A number that may be written as a text."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return otherwise


def _make_host_events(columns: KinetoColumns) -> tuple[HostEvents, NDArray[np.int32]]:
    times = join(columns.host_times, 2, np.int64)
    texts = join(columns.host_texts, 3, np.int32)
    kind = join(columns.host_kind, 0, np.int8)
    columns.host_times, columns.host_texts, columns.host_kind = [], [], []
    process = texts[:, 1]
    _, thread = np.unique(process.astype(np.int64) * _TEXTS_AT_MOST + texts[:, 2], return_inverse=True)
    ends = times[:, 0] + times[:, 1]
    return HostEvents(times[:, 0], ends, kind, texts[:, 0], thread.astype(np.int32)), process


def _list_steps(host: HostEvents, names: list[str]) -> tuple[TraceStep, ...]:
    steps = {number for number, name in enumerate(names) if _STEP.fullmatch(name)}
    if not steps:
        return ()
    rows = np.nonzero((host.kind == HostKind.ANNOTATION) & np.isin(host.name, list(steps)))[0]
    found = [TraceStep(names[host.name[row]], int(host.start_ns[row]), int(host.end_ns[row])) for row in rows]
    return tuple(sorted(found, key=lambda step: step.start_ns))


def _measure_thinning(columns: KinetoColumns, calls: Int64s, launched_by: Int64s) -> Thinning:
    """How densely calls and operators are numbered, and how many calls have no GPU event."""
    numbers = np.unique(calls[calls > 0])
    density = without = operators = None
    if len(numbers) >= _FEWEST:
        density = len(numbers) / int(numbers[-1] - numbers[0] + 1)
        without = 1 - float(np.isin(numbers, launched_by).sum()) / len(numbers)
    if columns.operators >= _FEWEST and columns.first_operator is not None and columns.last_operator is not None:
        operators = min(columns.operators / (columns.last_operator - columns.first_operator + 1), 1.0)
    return Thinning(density, without, operators)


def _list_notes(events: JsonEvents, columns: KinetoColumns, fault: str, unclear: int) -> tuple[str, ...]:
    notes = []
    if events.is_cut or fault:
        why = fault or "its JSON ends early"
        notes.append(f"The file is not whole: {why}. What came before is read.")
    if events.malformed:
        notes.append(f"{events.malformed:,} events are no JSON and are left out.")
    if events.nan_times:
        notes.append(
            f"{events.nan_times:,} events have a time that is no number, or none that 64 bits hold; they are left out."
        )
    if columns.without_length:
        notes.append(f"{columns.without_length:,} GPU events have no length, or less than none, and are left out.")
    if unclear:
        notes.append(
            f"{unclear:,} GPU events carry a correlation number that several processes use; who launched them is unknown."
        )
    return tuple(notes)


def count_flops(operator: str, shapes: str) -> float | None:
    """The operations of one call; None for another operator or shapes that are no product.

    >>> count_flops("aten::mm", "[[8, 4], [4, 2]]"), count_flops("aten::baddbmm", "[[3], [5, 8, 4], [5, 4, 2]]")
    (128.0, 640.0)
    >>> count_flops("aten::mm", "[[8, 4], [3, 2]]"), count_flops("aten::relu", "[[8, 4]]")
    (None, None)
    """
    at = PRODUCTS.get(operator)
    if at is None:
        return None
    try:
        left, right = json.loads(shapes)[at : at + 2]
        *batch, m, k = (int(size) for size in left)
        *_, inner, n = (int(size) for size in right)
    except (ValueError, TypeError, RecursionError):
        return None
    return 2.0 * m * n * k * float(np.prod(batch, initial=1.0)) if inner == k else None


def match_flops(
    calls: NDArray[np.int64], names: list[str], operator: NDArray[np.int64], length_ns: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The operations of each GPU event, at the longest event of each call; NaN where they are unknown.

    `calls` has an operator's name, shapes and number a row; `operator` is the number of the operator that each event belongs to.
    """
    found = np.full(len(operator), np.nan, np.float32)
    flops: dict[tuple[int, int], float | None] = {}
    of_call = {}
    for name, shapes, number in calls.tolist():
        key = (name, shapes)
        if key not in flops:
            flops[key] = count_flops(names[name], names[shapes])
        if flops[key] is not None:
            of_call[number] = flops[key]
    if not of_call:
        return found
    for event in np.argsort(-length_ns, kind="stable").tolist():
        found[event] = of_call.pop(int(operator[event]), np.nan)
    return found


def make_gpu_events(
    columns: KinetoColumns, names: list[str], launch: NDArray[np.int32]
) -> tuple[GpuEvents, list[int | str]]:
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
    return join(columns.gpu, len(GPU_FIELDS), np.int64)


def _or_minus_one(values: Int64s) -> Int64s:
    return np.where((values == MISSING) | (values == TOO_LARGE), -1, values)


def _number_devices(rows: Int64s, names: list[str]) -> tuple[list[int | str], NDArray[np.int32]]:
    """The labels of devices, and for each row which one it is: the device it names, else its process, as old traces have it."""
    numbered, pid = rows[:, AT[EventField.DEVICE]], rows[:, AT[EventField.PID]]
    named = (numbered != MISSING) & (numbered != TOO_LARGE)
    pairs, device = np.unique(np.where(named, numbered, MISSING + 2 + pid), return_inverse=True)
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
    merged = list(dict.fromkeys(labels))
    table = np.array([merged.index(label) for label in labels], np.int32)
    return merged, table[device] if len(labels) else device


def describe_devices(labels: list[int | str], properties: Any) -> tuple[TraceDevice, ...]:
    properties = (
        {item.get("id"): item for item in properties if isinstance(item, dict)} if isinstance(properties, list) else {}
    )
    found = []
    for label in labels:
        own = properties.get(label, {})
        count = own.get("numSms")
        found.append(TraceDevice(label, str(own.get("name", "")), count if isinstance(count, int) else None))
    return tuple(found)


def read_memory(pieces: list[NDArray[np.int64]]) -> tuple[MemoryUse, ...]:
    """The peaks of each device; rows have the time, type and number of the device, and bytes given out and held."""
    if not pieces:
        return ()
    rows = np.concatenate(pieces)
    found = []
    for kind, number in np.unique(rows[:, 1:3], axis=0).tolist():
        own = rows[(rows[:, 1] == kind) & (rows[:, 2] == number)]
        peak = int(own[:, 3].argmax())
        held = int(own[:, 4].max())
        found.append(
            MemoryUse(
                device="CPU" if kind == _CPU else int(number),
                peak_allocated_bytes=int(own[peak, 3]),
                peak_at_ns=int(own[peak, 0]),
                peak_reserved_bytes=held if held != MISSING and kind != _CPU else None,
                events=len(own),
            )
        )
    return tuple(found)
