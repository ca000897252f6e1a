"""Captures of TensorFlow's and JAX's profilers: XPlane files (`*.xplane.pb`).

Of GPUs the lines of streams count: lines of steps, names and modules are derived from them. Of TPUs the line `XLA Ops` does.
Times are
picoseconds, rounded to whole nanoseconds. openxla/xla xplane.proto @f33d2e16, xplane_schema.cc @02e89dc4.
"""

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.units import PS_PER_NS
from loadfactor.sources.protobuf import WireError
from loadfactor.sources.traces import xplane_scan as scan
from loadfactor.sources.traces.kineto import rank_in_name
from loadfactor.sources.traces.pieces import TracePieces, find_launches, kind_of_kernel
from loadfactor.sources.traces.xplane_scan import DURATION_PS, FIRST_STAT, KIND, NONE, OCCURRENCES, OFFSET_PS
from loadfactor.sources.traces.xplane_wire import XLine, XPlane, read_space
from loadfactor.tables.trace_events import (
    GpuEvents,
    GpuKind,
    HostEvents,
    HostKind,
    TraceCapture,
    TraceDevice,
    TraceStep,
    no_gpu_events,
    no_host_events,
)

FORMAT: Final = "XPlane"
DEVICE: Final = "/device:"
_HOST: Final = ("/host:CPU", "/host:python-tracer")
_DERIVED: Final = re.compile(
    r"^(steps?|framework|tensorflow|xla (modules?|ops|traceme)|source|launch stats|async xla|overlay|sparsecore"
    r" steps|.*(name scope| ops))",
    re.IGNORECASE,
)
_DERIVED_IDS: Final = 0xDEADBEEF
_OPS: Final = "XLA Ops"
_STREAM: Final = re.compile(r"stream ?#?(\d+)", re.IGNORECASE)
_REPLACED: Final = b"\xef\xbf\xbd"
_MANY: Final = 100
_SOUGHT: Final = ("correlation_id", "step_num", "group_id", "memcpy_details")
_LINE_TYPES: Final = re.compile(r"\(([^()]*)\)\s*$")
"""What a stream did, behind its name: `Stream #15(MemcpyH2D,Memset)`."""
_ID_MASK: Final = (1 << 32) - 1
Int64s = NDArray[np.int64]
_COMM: Final = re.compile(
    r"^(all-reduce|all-gather|reduce-scatter|all-to-all|collective|ragged-all-to-all|send|recv|megascale|cross-replica)",
    re.IGNORECASE,
)
_COPY: Final = re.compile(r"^(memcpy|copy\b|copy-|infeed|outfeed|host-transfer)", re.IGNORECASE)
_FILL: Final = re.compile(r"^memset", re.IGNORECASE)
_CALL: Final = re.compile(r"^(cu[A-Z]|cuda[A-Z]|hip[A-Z])")
_ENCODED: Final = re.compile(r"#.*$")


def looks_like_xplane(begin: bytes) -> bool:
    """Whether bytes begin as a list of planes: field 1, of bytes."""
    return begin[:1] == b"\x0a"


def read_xplane(pieces: TracePieces) -> TraceCapture:
    """The capture in one file. Raises SourceError where it is damaged or no XSpace."""
    path, data = pieces.path, bytearray()
    for piece in pieces:
        data += piece
    view = memoryview(data)
    try:
        planes, hosts = read_space(view)
        return _make_capture(pieces, planes, hosts, np.frombuffer(data, np.uint8))
    except WireError as e:
        if data.count(_REPLACED) > _MANY:
            why = "it was read as text and written again, which replaced its bytes from 0x80 on; copy it in binary"
        else:
            why = f"{pieces.fault or e}; copy or record it again"
        raise SourceError(f"{path} is no XPlane that can be read: {why}") from None


def _make_capture(pieces: TracePieces, planes: list[XPlane], hosts: list[str], data: NDArray[np.uint8]) -> TraceCapture:
    names, host, devices = NameTable(), HostColumns(), DeviceColumns()
    found: list[TraceDevice] = []
    steps: list[TraceStep] = []
    for plane in planes:
        if plane.name in _HOST:
            for line in plane.lines:
                host.add(plane, line, _rows(data, plane, line), names)
        elif plane.name.startswith(DEVICE):
            working = [line for line in _working_lines(plane) if line.end > line.begin]
            rows = [(line, _rows(data, plane, line)) for line in working]
            if not any(len(own) for _, own in rows):
                continue
            for line, own in rows:
                stream = _STREAM.search(line.name)
                devices.add(plane, line, own, names, len(found), int(stream[1]) if stream else line.id & _ID_MASK)
            steps += _list_steps(plane, data, len(found))
            kind = plane.stats.get("device_type_string", "")
            cores = plane.stats.get("core_count")
            found.append(TraceDevice(plane.name, str(kind), int(cores) if isinstance(cores, int) else None))
    events, correlation = devices.join()
    called = host.join()
    launch, _ = find_launches(
        correlation, host.correlations, called.start_ns[host.calls], np.zeros(len(host.calls), np.int32)
    )
    if len(host.calls):
        launch = np.where(launch >= 0, host.calls[launch], -1).astype(np.int32)
    events = GpuEvents(**{**vars(events), "launch": launch})
    return TraceCapture(
        trace=pieces.path.name,
        path=str(pieces.path),
        format=FORMAT,
        names=names.names,
        devices=tuple(found),
        gpu=events.take(np.argsort(events.start_ns, kind="stable")),
        host=called,
        rank=rank_in_name(pieces.path.name),
        steps=tuple(sorted([*steps, *(host.steps if not steps else [])], key=lambda step: step.start_ns)),
        is_cut=bool(pieces.fault),
        notes=(f"Recorded on {', '.join(hosts)}.",) if hosts else (),
    )


def _working_lines(plane: XPlane) -> list[XLine]:
    ops = [line for line in plane.lines if line.name == _OPS]
    streams = [line for line in plane.lines if line.name.startswith("Stream")]
    if streams:
        return streams
    return ops or [
        line for line in plane.lines if not _DERIVED.match(line.name) and (line.id & _ID_MASK) < _DERIVED_IDS
    ]


def _rows(data: NDArray[np.uint8], plane: XPlane, line: XLine) -> NDArray[np.int64]:
    count = int(scan.count_events(data, line.begin, line.end))
    if count < 0:
        raise WireError(f"line {line.name!r} of {plane.name} is damaged")
    rows: NDArray[np.int64] = np.empty((count, scan.COLUMNS), np.int64)
    stats = np.array([plane.stat_id(name) for name in _SOUGHT], np.int64)
    if scan.scan_line(data, line.begin, line.end, stats, rows) < 0:
        raise WireError(f"line {line.name!r} of {plane.name} is damaged")
    return rows


def _list_steps(plane: XPlane, data: NDArray[np.uint8], device: int) -> list[TraceStep]:
    found = []
    for line in plane.lines:
        if line.name == "Steps":
            for row in _rows(data, plane, line):
                start = line.timestamp_ns + round(int(row[scan.OFFSET_PS]) / PS_PER_NS)
                name = plane.kinds.get(int(row[scan.KIND]), "?")
                found.append(
                    TraceStep(f"step {name}", start, start + round(int(row[scan.DURATION_PS]) / PS_PER_NS), device)
                )
    return found


class NameTable:
    """Texts by number."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The number of a text."""
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]


def _times(line: XLine, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Starts and ends in nanoseconds; both are rounded, so that what touches still does."""
    begin = rows[:, OFFSET_PS]
    half = PS_PER_NS // 2
    starts = (begin + half) // PS_PER_NS
    ends = (begin + rows[:, DURATION_PS] + half) // PS_PER_NS
    return starts + line.timestamp_ns, ends + line.timestamp_ns


def kind_of_work(name: str, category: str) -> GpuKind:
    """The kind of a device's work, by the category that XLA gives it, else by its name.

    >>> [kind_of_work(*w).name for w in (("%copy-done.2", "copy-done"), ("MemcpyH2D", ""), ("%psum", "all-reduce"), ("fusion", ""))]
    ['MEMCPY', 'MEMCPY', 'COMM', 'COMPUTE']
    """
    for label in (category, name):
        if _COMM.search(label):
            return GpuKind.COMM
        if _COPY.search(label):
            return GpuKind.MEMCPY
        if _FILL.search(label):
            return GpuKind.MEMSET
        if category:
            return GpuKind.COMPUTE
    return kind_of_kernel(name)


def kind_of_stream(name: str) -> GpuKind:
    """The kind of all that a stream did, by its name: copies where it says nothing else.

    >>> [kind_of_stream(n).name for n in ("Stream #15(MemcpyH2D,MemcpyD2H)", "Stream #14(Compute,MemcpyD2D)", "Stream #3")]
    ['MEMCPY', 'COMPUTE', 'COMPUTE']
    """
    found = _LINE_TYPES.search(name)
    types = [part.strip() for part in found[1].split(",")] if found else []
    return GpuKind.MEMCPY if types and all(_COPY.search(part) for part in types) else GpuKind.COMPUTE


@dataclass
class DeviceColumns:
    """The work of all devices, a piece a line."""

    pieces: list[GpuEvents] = field(default_factory=list)
    correlations: list[Int64s] = field(default_factory=list)

    def add(self, plane: XPlane, line: XLine, rows: Int64s, names: NameTable, device: int, stream: int) -> None:
        """Takes the events of one line; those that only count occurrences have no time and are no work."""
        rows = rows[(rows[:, OCCURRENCES] == 0) & (rows[:, DURATION_PS] >= 0)]
        starts, ends = _times(line, rows)
        numbers, place = np.unique(rows[:, KIND], return_inverse=True)
        facts = [plane.facts.get(int(number), {}) for number in numbers]
        texts = [plane.kinds.get(int(number), "") for number in numbers]
        kinds = [kind_of_work(text, str(fact.get("hlo_category", ""))) for text, fact in zip(texts, facts, strict=True)]
        kind = np.array(kinds, np.int8)[place]
        if kind_of_stream(line.name) == GpuKind.MEMCPY:
            kind[kind == GpuKind.COMPUTE] = GpuKind.MEMCPY
        # older profilers call a copy after the operation it is of, and say in a statistic that it is one
        kind[(kind == GpuKind.COMPUTE) & (rows[:, FIRST_STAT + 3] != NONE)] = GpuKind.MEMCPY
        flops = [_number(fact, "model_flops") or _number(fact, "flops") for fact in facts]
        moved = [_number(fact, "bytes_accessed") for fact in facts]
        count = len(rows)
        self.pieces.append(
            GpuEvents(
                start_ns=starts,
                end_ns=ends,
                kind=kind,
                name=np.array([names.number(text) for text in texts], np.int32)[place],
                device=np.full(count, device, np.int32),
                stream=np.full(count, stream, np.int64),
                launch=np.full(count, -1, np.int32),
                size=np.full(count, -1, np.int64),
                blocks=np.full(count, -1, np.int64),
                group=np.full(count, -1, np.int32),
                flops=np.array(flops, np.float32)[place],
                moved=np.array(moved, np.float32)[place],
            )
        )
        self.correlations.append(rows[:, FIRST_STAT])

    def join(self) -> tuple[GpuEvents, Int64s]:
        """All events, and their correlation numbers."""
        if not self.pieces:
            return no_gpu_events(), np.empty(0, np.int64)
        columns = {
            name: np.concatenate([getattr(piece, name) for piece in self.pieces]) for name in vars(self.pieces[0])
        }
        return GpuEvents(**columns), np.concatenate(self.correlations)


def _number(facts: dict[str, int | float | str], name: str) -> float:
    value = facts.get(name)
    return float(value) if isinstance(value, (int, float)) and value > 0 else np.nan


@dataclass
class HostColumns:
    """The events of all threads of the host; `calls` are the rows that carry a correlation number."""

    pieces: list[HostEvents] = field(default_factory=list)
    numbers: list[Int64s] = field(default_factory=list)
    steps: list[TraceStep] = field(default_factory=list)
    calls: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    correlations: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, plane: XPlane, line: XLine, rows: Int64s, names: NameTable) -> None:
        """Takes the events of one thread."""
        starts, ends = _times(line, rows)
        numbers, place = np.unique(rows[:, KIND], return_inverse=True)
        texts = [_ENCODED.sub("", plane.kinds.get(int(number), "")) for number in numbers]
        kinds = np.array([HostKind.RUNTIME if _CALL.match(text) else HostKind.OPERATOR for text in texts], np.int8)
        known = np.array([names.number(text) for text in texts], np.int32)
        count = len(rows)
        thread = np.full(count, len(self.pieces), np.int32)
        self.pieces.append(HostEvents(starts, ends, kinds[place], known[place], thread))
        self.numbers.append(rows[:, FIRST_STAT])
        for row in np.nonzero(rows[:, FIRST_STAT + 1] != NONE)[0].tolist():
            step = f"{texts[place[row]]} {rows[row, FIRST_STAT + 1]}"
            self.steps.append(TraceStep(step, int(starts[row]), int(ends[row])))

    def join(self) -> HostEvents:
        """All events."""
        if not self.pieces:
            return no_host_events()
        numbers = np.concatenate(self.numbers)
        self.calls = np.nonzero(numbers > 0)[0]
        self.correlations = numbers[self.calls]
        return HostEvents(
            *(np.concatenate([getattr(piece, name) for piece in self.pieces]) for name in vars(self.pieces[0]))
        )
