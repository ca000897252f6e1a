"""Events of XPlanes gathered as columns: device work by what it is, and the host's events by thread."""

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import PS_PER_NS
from loadfactor.sources.traces.kinds import kind_of_kernel
from loadfactor.sources.traces.scan.xplane_events import DURATION_PS, FIRST_STAT, KIND, NONE, OCCURRENCES, OFFSET_PS
from loadfactor.sources.traces.xplane_wire import XLine, XPlane
from loadfactor.tables.trace_events import (
    GpuEvents,
    GpuKind,
    HostEvents,
    HostKind,
    TraceStep,
    no_gpu_events,
    no_host_events,
)

Int64s = NDArray[np.int64]

_COMM: Final = re.compile(
    r"^(all-reduce|all-gather|reduce-scatter|all-to-all|collective|ragged-all-to-all|send|recv|megascale|cross-replica)",
    re.IGNORECASE,
)
_COPY: Final = re.compile(r"^(memcpy|copy\b|copy-|infeed|outfeed|host-transfer)", re.IGNORECASE)
_FILL: Final = re.compile(r"^memset", re.IGNORECASE)
_CALL: Final = re.compile(r"^(cu[A-Z]|cuda[A-Z]|hip[A-Z])")
_ENCODED: Final = re.compile(r"#.*$")


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
    """What a device's work is, by the category that XLA gives it, else by its name.

    >>> [kind_of_work(*w).name for w in (("%copy-done.2", "copy-done"), ("MemcpyH2D", ""), ("%psum", "all-reduce"), ("fusion", ""))]
    ['MEMCPY', 'MEMCPY', 'COMM', 'COMPUTE']
    """
    for said in (category, name):
        if _COMM.search(said):
            return GpuKind.COMM
        if _COPY.search(said):
            return GpuKind.MEMCPY
        if _FILL.search(said):
            return GpuKind.MEMSET
        if category:
            return GpuKind.COMPUTE
    return kind_of_kernel(name)


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
        flops = [_number(fact, "model_flops") or _number(fact, "flops") for fact in facts]
        moved = [_number(fact, "bytes_accessed") for fact in facts]
        count = len(rows)
        self.pieces.append(
            GpuEvents(
                start_ns=starts,
                end_ns=ends,
                kind=np.array(kinds, np.int8)[place],
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
