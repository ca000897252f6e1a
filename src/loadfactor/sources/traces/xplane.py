"""Captures of TensorFlow's and JAX's profilers: XPlane files (`*.xplane.pb`).

Of GPUs the lines of streams count: lines of steps, names and modules are derived from them. Of TPUs the line `XLA Ops` does.
Times are
picoseconds, rounded to whole nanoseconds. openxla/xla xplane.proto @f33d2e16, xplane_schema.cc @02e89dc4.
"""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.units import PS_PER_NS
from loadfactor.sources.traces.kineto import rank_in_name
from loadfactor.sources.traces.launches import find_launches
from loadfactor.sources.traces.pieces import TracePieces
from loadfactor.sources.traces.scan import xplane_events as scan
from loadfactor.sources.traces.wire import WireError
from loadfactor.sources.traces.xplane_columns import DeviceColumns, HostColumns, NameTable
from loadfactor.sources.traces.xplane_wire import XLine, XPlane, read_space
from loadfactor.tables.trace_events import GpuEvents, TraceCapture, TraceDevice, TraceStep

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
_ID_MASK: Final = (1 << 32) - 1


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
            found.append(_describe(plane))
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
    """The lines on which a device's work is, each once."""
    ops = [line for line in plane.lines if line.name == _OPS]
    streams = [line for line in plane.lines if line.name.startswith("Stream")]
    if streams:
        return streams
    return ops or [
        line for line in plane.lines if not _DERIVED.match(line.name) and (line.id & _ID_MASK) < _DERIVED_IDS
    ]


def _rows(data: NDArray[np.uint8], plane: XPlane, line: XLine) -> NDArray[np.int64]:
    """The events of a line, with the statistics that are looked for."""
    count = int(scan.count_events(data, line.begin, line.end))
    if count < 0:
        raise WireError(f"line {line.name!r} of {plane.name} is damaged")
    rows: NDArray[np.int64] = np.empty((count, scan.COLUMNS), np.int64)
    wanted = np.array([plane.stat_id(name) for name in ("correlation_id", "step_num", "group_id")], np.int64)
    if scan.scan_line(data, line.begin, line.end, wanted, rows) < 0:
        raise WireError(f"line {line.name!r} of {plane.name} is damaged")
    return rows


def _list_steps(plane: XPlane, data: NDArray[np.uint8], device: int) -> list[TraceStep]:
    """The steps that the profiler derived for a device."""
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


def _describe(plane: XPlane) -> TraceDevice:
    kind = plane.stats.get("device_type_string", "")
    cores = plane.stats.get("core_count")
    return TraceDevice(plane.name, str(kind), int(cores) if isinstance(cores, int) else None)
