"""Captures of torch.profiler and others that write Chrome's Trace Event Format as Kineto does.

Times are microseconds, whatever `displayTimeUnit` says; they become nanoseconds exactly. Categories and members as of
pytorch/kineto
libkineto/src/output_json.cpp @114171df.
"""

import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.traces.json_events import JsonEvents
from loadfactor.sources.traces.kineto_columns import KinetoColumns, join
from loadfactor.sources.traces.kineto_gpu import AT, describe_devices, gpu_rows, make_gpu_events
from loadfactor.sources.traces.kineto_memory import read_memory
from loadfactor.sources.traces.launches import find_launches
from loadfactor.sources.traces.pieces import TracePieces
from loadfactor.sources.traces.scan.fields import EventField
from loadfactor.tables.trace_events import HostEvents, HostKind, Thinning, TraceCapture, TraceStep

Int64s = NDArray[np.int64]

FORMAT: Final = "Kineto JSON"
_STEP: Final = re.compile(r"ProfilerStep#\d+")
_RANK: Final = re.compile(r"rank[-_ ]?(\d+)", re.IGNORECASE)
_TEXTS_AT_MOST: Final = 1 << 32
_FEWEST: Final = 20
"""Calls or operators from which on their numbers say whether some were left out."""


def read_kineto(pieces: TracePieces) -> TraceCapture:
    """The capture in one file. Raises SourceError where the file holds no trace."""
    path = pieces.path
    events, columns = JsonEvents(str(path), iter(pieces)), KinetoColumns()
    columns.gather(events)
    names = events.texts
    host, process = _make_host_events(columns)
    calls = join(columns.calls, 2, np.int64)
    wanted = gpu_rows(columns)[:, AT[EventField.CORRELATION]]
    rows = calls[:, 0]
    found, unclear = find_launches(wanted, calls[:, 1], host.start_ns[rows], process[rows])
    launch = np.where(found >= 0, rows[found], -1).astype(np.int32) if len(rows) else found
    thinning = _measure_thinning(columns, calls[:, 1], wanted)
    gpu, labels = make_gpu_events(columns, names, launch)
    told = events.members.get("distributedInfo")
    told = told if isinstance(told, dict) else {}
    base = events.members.get("baseTimeNanoseconds")
    return TraceCapture(
        trace=path.name,
        path=str(path),
        format=FORMAT,
        names=names,
        devices=describe_devices(labels, events.members.get("deviceProperties")),
        gpu=gpu,
        host=host,
        rank=_whole(told.get("rank"), rank_in_name(path.name)),
        world_size=_whole(told.get("world_size"), None),
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
    """The host's events, and the number of the process of each. Empties the columns."""
    times = join(columns.host_times, 2, np.int64)
    texts = join(columns.host_texts, 3, np.int32)
    kind = join(columns.host_kind, 0, np.int8)
    columns.host_times, columns.host_texts, columns.host_kind = [], [], []
    process = texts[:, 1]
    _, thread = np.unique(process.astype(np.int64) * _TEXTS_AT_MOST + texts[:, 2], return_inverse=True)
    ends = times[:, 0] + times[:, 1]
    return HostEvents(times[:, 0], ends, kind, texts[:, 0], thread.astype(np.int32)), process


def _list_steps(host: HostEvents, names: list[str]) -> tuple[TraceStep, ...]:
    """The steps that the profiler was told of, by their start."""
    steps = {number for number, name in enumerate(names) if _STEP.fullmatch(name)}
    if not steps:
        return ()
    rows = np.nonzero((host.kind == HostKind.ANNOTATION) & np.isin(host.name, list(steps)))[0]
    found = [TraceStep(names[host.name[row]], int(host.start_ns[row]), int(host.end_ns[row])) for row in rows]
    return tuple(sorted(found, key=lambda step: step.start_ns))


def _measure_thinning(columns: KinetoColumns, calls: Int64s, wanted: Int64s) -> Thinning:
    """How densely calls and operators are numbered, and how many calls have no GPU event."""
    numbers = np.unique(calls[calls > 0])
    density = without = operators = None
    if len(numbers) >= _FEWEST:
        density = len(numbers) / int(numbers[-1] - numbers[0] + 1)
        without = 1 - float(np.isin(numbers, wanted).sum()) / len(numbers)
    if columns.operators >= _FEWEST and columns.first_operator is not None and columns.last_operator is not None:
        operators = min(columns.operators / (columns.last_operator - columns.first_operator + 1), 1.0)
    return Thinning(density, without, operators)


def _list_notes(events: JsonEvents, columns: KinetoColumns, fault: str, unclear: int) -> tuple[str, ...]:
    """What could not be read, in sentences."""
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
