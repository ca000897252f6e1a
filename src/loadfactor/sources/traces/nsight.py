"""Captures of Nsight Systems, from what `nsys export` writes: SQLite, or a folder of Parquet or Arrow files with the same tables.

Tables and columns are those of schema 3.24; every column but start, end, deviceId, streamId and correlationId may be absent, and a
table is there only where something was recorded. Times are nanoseconds of the session.
"""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.sources.traces.kineto import rank_in_name
from loadfactor.sources.traces.pieces import find_launches, refine_kinds
from loadfactor.sources.traces.tables import NULL, Tables
from loadfactor.tables.trace_events import (
    GpuEvents,
    GpuKind,
    HostEvents,
    HostKind,
    TraceCapture,
    TraceDevice,
    TraceStep,
)

FORMAT: Final = "Nsight Systems"
_OURS: Final = re.compile(r"^(CUPTI_ACTIVITY_KIND_|TARGET_INFO_|META_DATA_|NVTX_EVENTS|StringIds|ANALYSIS_DETAILS)")
STEP: Final = re.compile(r"^(profilerstep|(train(ing)?[ _]?)?(step|iter(ation)?))[ _:#=-]*\d+$", re.IGNORECASE)
_DROPPED: Final = re.compile(r"drop|lost|overflow|incomplete|missing|not.*collected", re.IGNORECASE)
_PUSH_POP, _START_END = 59, 60
_THREAD_BITS: Final = 24
_CORRELATION_BITS: Final = 34
_VERSION: Final = re.compile(r"_(v\d+|ptsz|ptds)\w*$")
DIRECTIONS: Final = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "HtoD managed",
    12: "DtoH managed",
    13: "DtoD managed",
}
"""CUpti_ActivityMemcpyKind, and Nsight's own kinds of managed memory."""
MEMORIES: Final = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device Static",
    6: "Managed Static",
}
Int64s = NDArray[np.int64]
_PREFIX: Final = "CUPTI_ACTIVITY_KIND_"
_SHARED: Final = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_NAMES: Final = ("demangledName", "shortName", "mangledName")
_GRID: Final = ("gridX", "gridY", "gridZ")
UNNAMED: Final = "unnamed"
_COPY: Final = ("copyKind", "srcKind", "dstKind")


def read_export(tables: Tables) -> TraceCapture:
    """The capture in a SQLite file or a folder of tables. Raises SourceError where it is none of Nsight Systems, or damaged."""
    if not any(_OURS.match(name) for name in tables.names()):
        raise SourceError(
            f"{tables.path} has none of the tables that Nsight Systems exports; name what `nsys export` wrote"
        )
    names = ExportNames(tables)
    work = GpuTables(tables, names)
    host, process, correlation = _read_calls(tables, names)
    calls = np.arange(len(host), dtype=np.int64)
    is_joined = work.has_process
    launched_by = _key(work.process, work.correlation, is_joined)
    given = _key(process, correlation, is_joined)
    launch, unclear = find_launches(launched_by, given, host.start_ns[calls], np.zeros(len(calls), np.int32))
    events = GpuEvents(**{**vars(work.events), "launch": launch})
    ranges, steps = _read_ranges(tables, names, host)
    notes = [*_list_diagnostics(tables)]
    if unclear:
        notes.append(f"{unclear:,} GPU events have several launches; who launched them is unknown.")
    found = 0
    for table in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"):
        if table in tables.names():
            rows = read_columns(tables, table, ("start", "end"))
            found += int(np.maximum(rows[:, 1] - rows[:, 0], 0)[(rows != NULL).all(axis=1)].sum())
    return TraceCapture(
        trace=tables.path.name,
        path=str(tables.path),
        format=FORMAT,
        names=names.names,
        devices=_describe(tables, work.devices),
        gpu=events.take(np.argsort(events.start_ns, kind="stable")),
        host=HostEvents(
            *(np.concatenate(pair) for pair in zip(vars(host).values(), vars(ranges).values(), strict=True))
        ),
        rank=rank_in_name(tables.path.name),
        clock_ns=_read_clock(tables),
        steps=steps,
        overhead_ns=found,
        notes=tuple(notes),
    )


def _key(process: NDArray[np.int64], correlation: NDArray[np.int64], is_joined: bool) -> NDArray[np.int64]:
    """Process and correlation number as one number; the correlation number alone where kernels do not say their process."""
    known = (correlation > 0) & (correlation < 1 << _CORRELATION_BITS)
    of_process = (process >> _THREAD_BITS) % (1 << (62 - _CORRELATION_BITS)) if is_joined else np.zeros_like(process)
    return np.where(known, (of_process << _CORRELATION_BITS) + correlation, 0)


class ExportNames:
    """Texts by number; those of `StringIds` by their id."""

    def __init__(self, tables: Tables) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._strings: dict[int, str] = {}
        if "StringIds" in tables.names():
            ids = tables.numbers("StringIds", ("id",))[:, 0].tolist()
            self._strings = {
                key: str(text or "") for key, text in zip(ids, tables.texts("StringIds", "value"), strict=True)
            }

    def number(self, name: str) -> int:
        """The number of a text."""
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]

    def number_all(self, ids: NDArray[np.int64], strip: bool = False) -> NDArray[np.int32]:
        """The numbers of strings by their ids, -1 where there is none; `strip` leaves versions of calls out: cudaMalloc_v3020."""
        known, place = np.unique(ids, return_inverse=True)
        numbers = []
        for key in known.tolist():
            text = self._strings.get(key) if key != NULL else None
            numbers.append(-1 if text is None else self.number(_VERSION.sub("", text) if strip else text))
        return np.array(numbers, np.int32)[place] if len(ids) else np.empty(0, np.int32)

    def number_events(self, ids: NDArray[np.int64], strip: bool = False) -> NDArray[np.int32]:
        """The same of events, which each have a name: `UNNAMED` where the export has none of it."""
        numbers = self.number_all(ids, strip)
        if (numbers < 0).any():
            numbers[numbers < 0] = self.number(UNNAMED)
        return numbers

    def number_copies(self, kinds: NDArray[np.int64]) -> NDArray[np.int32]:
        """The numbers of copies' names, as Kineto writes them, from rows of direction, source and target."""
        known, place = np.unique(kinds, axis=0, return_inverse=True)
        numbers = []
        for direction, source, target in known.tolist():
            way = DIRECTIONS.get(direction, f"kind {direction}")
            ends = [MEMORIES.get(end, "?") for end in (source, target)]
            where = f" ({ends[0]} -> {ends[1]})" if source != NULL and target != NULL else ""
            numbers.append(self.number(f"Memcpy {way}{where}"))
        return np.array(numbers, np.int32)[place.reshape(-1)] if len(kinds) else np.empty(0, np.int32)


def _read_calls(tables: Tables, names: ExportNames) -> tuple[HostEvents, NDArray[np.int64], NDArray[np.int64]]:
    pieces = [
        read_columns(tables, table, ("start", "end", "globalTid", "correlationId", "nameId"))
        for table in find_tables(tables, "RUNTIME")
    ]
    rows = np.concatenate(pieces) if pieces else np.empty((0, 5), np.int64)
    rows = rows[(rows[:, 0] != NULL) & (rows[:, 1] >= rows[:, 0])]
    host = HostEvents(
        start_ns=rows[:, 0],
        end_ns=rows[:, 1],
        kind=np.full(len(rows), HostKind.RUNTIME, np.int8),
        name=names.number_events(rows[:, 4], strip=True),
        thread=_number_threads(rows[:, 2]),
    )
    return host, np.where(rows[:, 2] == NULL, 0, rows[:, 2]), rows[:, 3]


def _number_threads(thread: NDArray[np.int64]) -> NDArray[np.int32]:
    """Threads by the lower bits of their global numbers: the same in every table."""
    return ((thread ^ (thread >> 31)) & 0x7FFFFFFF).astype(np.int32)


def _read_ranges(tables: Tables, names: ExportNames, host: HostEvents) -> tuple[HostEvents, tuple[TraceStep, ...]]:
    empty = host.take(slice(0, 0))
    if "NVTX_EVENTS" not in tables.names():
        return empty, ()
    rows = read_columns(tables, "NVTX_EVENTS", ("start", "end", "eventType", "globalTid", "textId"))
    texts = tables.texts("NVTX_EVENTS", "text") if "text" in tables.columns("NVTX_EVENTS") else []
    number = names.number_all(rows[:, 4])
    for row, text in enumerate(texts):
        if text and number[row] < 0:
            number[row] = names.number(str(text))
    kept = (
        np.isin(rows[:, 2], (_PUSH_POP, _START_END, NULL))
        & (rows[:, 1] != NULL)
        & (rows[:, 1] >= rows[:, 0])
        & (number >= 0)
    )
    rows, number = rows[kept], number[kept]
    ranges = HostEvents(
        start_ns=rows[:, 0],
        end_ns=rows[:, 1],
        kind=np.full(len(rows), HostKind.ANNOTATION, np.int8),
        name=number,
        thread=_number_threads(rows[:, 3]),
    )
    steps = [
        TraceStep(names.names[name], int(start), int(end))
        for start, end, name in zip(rows[:, 0], rows[:, 1], number, strict=True)
        if STEP.match(names.names[name])
    ]
    return ranges, tuple(sorted(steps, key=lambda step: step.start_ns))


def _describe(tables: Tables, devices: list[int]) -> tuple[TraceDevice, ...]:
    properties: dict[int, tuple[str, int | None]] = {}
    if "TARGET_INFO_GPU" in tables.names():
        known = tables.columns("TARGET_INFO_GPU")
        numbers = read_columns(tables, "TARGET_INFO_GPU", ("id", "smCount"))
        product = tables.texts("TARGET_INFO_GPU", "name") if "name" in known else [""] * len(numbers)
        for (device, count), name in zip(numbers.tolist(), product, strict=True):
            properties[device] = (str(name or ""), count if count != NULL else None)
    return tuple(TraceDevice(device, *properties.get(device, ("", None))) for device in devices)


def _read_clock(tables: Tables) -> int | None:
    table = "TARGET_INFO_SESSION_START_TIME"
    if table not in tables.names() or "utcEpochNs" not in tables.columns(table):
        return None
    rows = tables.numbers(table, ("utcEpochNs",))
    return int(rows[0, 0]) if len(rows) and rows[0, 0] != NULL else None


def _list_diagnostics(tables: Tables) -> list[str]:
    if "DIAGNOSTIC_EVENT" not in tables.names() or "text" not in tables.columns("DIAGNOSTIC_EVENT"):
        return []
    reported = [
        str(text).splitlines()[0]
        for text in tables.texts("DIAGNOSTIC_EVENT", "text")
        if text and _DROPPED.search(str(text))
    ]
    return [f"The profiler says: {text}" for text in dict.fromkeys(reported[:5])]


def find_tables(tables: Tables, kind: str) -> list[str]:
    """The tables of a kind, whatever the version in their names."""
    pattern = re.compile(rf"^{_PREFIX}{kind}(_V\d+)?$")
    return [name for name in tables.names() if pattern.match(name)]


def read_columns(tables: Tables, table: str, columns: Sequence[str]) -> Int64s:
    """These columns; NULL throughout where the table has not got one."""
    known = set(tables.columns(table))
    there = [column for column in columns if column in known]
    read = tables.numbers(table, there) if there else np.empty((0, 0), np.int64)
    found = np.full((len(read), len(columns)), NULL, np.int64)
    for place, column in enumerate(there):
        found[:, columns.index(column)] = read[:, place]
    return found


class GpuTables:
    """All work: `events` without their launches, and the process and correlation number of each."""

    def __init__(self, tables: Tables, names: ExportNames) -> None:
        parts = [
            *(self._read(tables, table, names, GpuKind.COMPUTE) for table in find_tables(tables, "KERNEL")),
            *(self._read(tables, table, names, GpuKind.MEMCPY) for table in find_tables(tables, "MEMCPY2?")),
            *(self._read(tables, table, names, GpuKind.MEMSET) for table in find_tables(tables, "MEMSET")),
            *(self._read_graphs(tables, table, names) for table in find_tables(tables, "GRAPH_TRACE")),
        ]
        shared = np.concatenate([part[0] for part in parts]) if parts else np.empty((0, len(_SHARED)), np.int64)
        kind, name, size, blocks = (
            np.concatenate([part[k] for part in parts]) if parts else np.empty(0, np.int64) for k in (1, 2, 3, 4)
        )
        whole = (shared[:, 0] != NULL) & (shared[:, 1] != NULL) & (shared[:, 1] >= shared[:, 0])
        shared, kind, name, size, blocks = shared[whole], kind[whole], name[whole], size[whole], blocks[whole]
        self.process = np.where(shared[:, 5] == NULL, 0, shared[:, 5])
        self.has_process = bool((shared[:, 5] != NULL).any())
        self.correlation = shared[:, 4]
        devices, device = np.unique(np.where(shared[:, 2] == NULL, 0, shared[:, 2]), return_inverse=True)
        self.devices = devices.tolist()
        count = len(shared)
        number = name.astype(np.int32)
        self.events = GpuEvents(
            start_ns=shared[:, 0],
            end_ns=shared[:, 1],
            kind=refine_kinds(kind.astype(np.int8), number, names.names),
            name=number,
            device=device.astype(np.int32),
            stream=np.where(shared[:, 3] == NULL, -1, shared[:, 3]),
            launch=np.full(count, -1, np.int32),
            size=size,
            blocks=blocks,
            group=np.full(count, -1, np.int32),
            flops=np.full(count, np.nan, np.float32),
            moved=np.full(count, np.nan, np.float32),
        )

    def _read(
        self, tables: Tables, table: str, names: ExportNames, kind: GpuKind
    ) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
        rows = read_columns(tables, table, (*_SHARED, "bytes", *_NAMES, *_GRID, *_COPY))
        count, shared = len(rows), rows[:, : len(_SHARED)]
        size = np.where(rows[:, 6] == NULL, -1, rows[:, 6])
        grid = rows[:, 10:13]
        blocks = np.where((grid > 0).all(axis=1), np.prod(np.clip(grid, 1, 1 << 20), axis=1), -1)
        if kind == GpuKind.COMPUTE:
            ids = np.where(rows[:, 7] != NULL, rows[:, 7], np.where(rows[:, 8] != NULL, rows[:, 8], rows[:, 9]))
            name = names.number_events(ids)
        elif kind == GpuKind.MEMCPY:
            name = names.number_copies(rows[:, 13:16])
        else:
            name = np.full(count, names.number("Memset"), np.int32)
        return shared, np.full(count, int(kind), np.int64), name.astype(np.int64), size, blocks

    def _read_graphs(
        self, tables: Tables, table: str, names: ExportNames
    ) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
        """Whole replays, which Nsight records instead of their kernels by default; what was in them is unknown."""
        shared = read_columns(tables, table, _SHARED)
        count, nothing = len(shared), np.full(len(shared), -1, np.int64)
        name = np.full(count, names.number("CUDA graph (kernels not recorded)"), np.int64)
        return shared, np.full(count, int(GpuKind.COMPUTE), np.int64), name, nothing, nothing
