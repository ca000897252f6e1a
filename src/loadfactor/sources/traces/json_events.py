"""The events of a trace's JSON as arrays, in one pass over its bytes, and the members beside them.

    {"schemaVersion": 1, "deviceProperties": […], "traceEvents": [{"ph": "X", …}, …], "displayTimeUnit": "ms"}

A bare list of events is read, too. Members may stand before and behind the events. Where the text ends early, what came before
is kept and `is_cut` says so.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.traces import json_scan as scan
from loadfactor.sources.traces.json_scan import BEGIN, INSTANT, SLICE
from loadfactor.sources.traces.json_tokens import (
    CLOSE,
    COLON,
    COLUMNS,
    COMMA,
    MISSING,
    MORE,
    OPEN_LIST,
    QUOTE,
    TEXTS,
    EventField,
)
from loadfactor.tables.trace_events import GpuKind, HostKind

Ints = NDArray[np.int64]
ROWS_AT_ONCE: Final = 8192
_FIRST_TEXTS: Final = 8192
_FIRST_ARENA: Final = BYTES_PER_MIB
_LARGEST_VALUE: Final = 256 * BYTES_PER_MIB
_SPACES: Final = b" \t\r\n\xef\xbb\xbf"  # a byte order mark, too
_KEPT: Final = ("deviceProperties", "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit", "schemaVersion")
Int64s = NDArray[np.int64]
GPU_CATEGORIES: Final = {
    "kernel": GpuKind.COMPUTE,
    "mtia_ccp_events": GpuKind.COMPUTE,
    "gpu_memcpy": GpuKind.MEMCPY,
    "memcpy": GpuKind.MEMCPY,
    "gpu_memset": GpuKind.MEMSET,
    "memset": GpuKind.MEMSET,
}
HOST_CATEGORIES: Final = {
    "cpu_op": HostKind.OPERATOR,
    "operator": HostKind.OPERATOR,
    "user_annotation": HostKind.ANNOTATION,
    "python_function": HostKind.PYTHON,
    "runtime": HostKind.RUNTIME,
}
_RUNTIME_ENDS: Final = ("_runtime", "_driver")
OTHER, OVERHEAD, COUNTERS, GPU, HOST = 0, 1, 2, 8, 16
"""Codes of categories; GPU and HOST are followed by their kinds."""
GPU_FIELDS: Final = (
    EventField.NAME,
    EventField.PID,
    EventField.START_NS,
    EventField.DURATION_NS,
    EventField.CORRELATION,
    EventField.EXTERNAL,
    EventField.DEVICE,
    EventField.STREAM,
    EventField.BYTES,
    EventField.GRID,
    EventField.ELEMENTS_IN,
    EventField.GROUP,
)
WORK_FIELDS: Final = (EventField.NAME, EventField.DIMS, EventField.EXTERNAL)
_MEMORY_FIELDS: Final = (
    EventField.START_NS,
    EventField.DEVICE_KIND,
    EventField.DEVICE,
    EventField.ALLOCATED,
    EventField.RESERVED,
)
_PAIR_FIELDS: Final = (
    EventField.PHASE,
    EventField.NAME,
    EventField.CAT,
    EventField.PID,
    EventField.TID,
    EventField.START_NS,
)


class JsonEvents:
    """One text of JSON, gone through once by `batches`; then `members`, `texts` and what was passed over are known."""

    def __init__(self, label: str, pieces: Iterator[bytes]) -> None:
        self.label, self._pieces = label, pieces
        self._data: NDArray[np.uint8] = np.empty(BYTES_PER_MIB, np.uint8)
        self._at = self._end = 0
        self.members: dict[str, Any] = {}
        self.is_cut = False
        self.has_events = False
        self._rows: Ints = np.empty((ROWS_AT_ONCE, COLUMNS), np.int64)
        self._spans: Ints = np.zeros(2 * TEXTS, np.int64)
        self._slots: Ints = np.full(2 * _FIRST_TEXTS, -1, np.int64)
        self._hashes = np.zeros(_FIRST_TEXTS, np.uint64)
        self._ends: Ints = np.zeros(_FIRST_TEXTS + 1, np.int64)
        self._arena: NDArray[np.uint8] = np.empty(_FIRST_ARENA, np.uint8)
        self._counts: Ints = np.zeros(scan.COUNTS, np.int64)
        self._texts: list[str] = []

    @property
    def malformed(self) -> int:
        """How many events were no JSON."""
        return int(self._counts[scan.MALFORMED])

    @property
    def nan_times(self) -> int:
        """How many events have a time that is no number of 64 bits."""
        return int(self._counts[scan.NAN_TIMES])

    @property
    def texts(self) -> list[str]:
        """Every text so far, by its number."""
        for number in range(len(self._texts), int(self._counts[scan.TEXT_COUNT])):
            raw = self._arena[self._ends[number] : self._ends[number + 1]].tobytes()
            self._texts.append(_decode(raw))
        return self._texts

    def batches(self) -> Iterator[Ints]:
        """The events as rows (`scan.fields.EventField`), some thousand at a time; each batch is to be copied before the next.

        Raises SourceError where the text is no trace.
        """
        first = self._peek()
        if first == OPEN_LIST:
            self._at += 1
            yield from self._scan()
            return
        if first is None:
            raise SourceError(f"{self.label} is empty")
        if first != ord("{"):
            raise SourceError(f"{self.label} is no JSON: it begins with {chr(first)!r}")
        self._at += 1
        while (name := self._next_name()) is not None:
            if name == "traceEvents" and self._peek() == OPEN_LIST:
                self._at += 1
                yield from self._scan()
            elif not self._skip_member(name):
                self.is_cut = True
            if self.is_cut:
                break
        if not self.has_events:
            cut = " before its events begin" if self.is_cut else ""
            what = f"ends{cut}" if cut else "has no traceEvents, so it is no trace of a profiler"
            raise SourceError(f"{self.label} {what}; export the trace again")

    def _scan(self) -> Iterator[Ints]:
        self.has_events = True
        counts, grown = self._counts, 0
        while True:
            counts[scan.ROWS] = 0
            arrays = (self._rows, self._spans, self._slots, self._hashes, self._ends, self._arena)
            self._at = scan.scan_events(self._data, self._at, self._end, *arrays, counts)
            if counts[scan.ROWS]:
                yield self._rows[: counts[scan.ROWS]]
            if counts[scan.STATE] == scan.ENDED:
                return
            if counts[scan.STATE] == scan.FULL:
                self._make_room()
                continue
            waiting = self._end - self._at
            if waiting > _LARGEST_VALUE:
                raise SourceError(f"{self.label} has an event of more than {waiting:,} bytes; export the trace again")
            grown = self._fill()
            if not grown:
                self.is_cut = True
                return

    def _make_room(self) -> None:
        """Doubles the table of texts and the bytes they lie in, where they are nearly full."""
        if self._counts[scan.TEXT_COUNT] + TEXTS >= len(self._hashes):
            more = len(self._hashes)
            self._hashes = np.concatenate((self._hashes, np.zeros(more, np.uint64)))
            self._ends = np.concatenate((self._ends, np.zeros(more, np.int64)))
            self._slots = np.full(4 * more, -1, np.int64)
            scan.place_texts(self._slots, self._hashes, int(self._counts[scan.TEXT_COUNT]))
        room = len(self._arena) - int(self._counts[scan.ARENA_USED])
        if room < max(len(self._arena) // 2, self._end - self._at):
            self._arena = np.concatenate((self._arena, np.empty(max(len(self._arena), self._end - self._at), np.uint8)))

    def _fill(self) -> int:
        """Moves what is left to the front and adds the next piece; gives how many bytes that were."""
        piece = next(self._pieces, b"")
        left = self._end - self._at
        if left + len(piece) > len(self._data):
            larger: NDArray[np.uint8] = np.empty(2 * (left + len(piece)), np.uint8)
            larger[:left] = self._data[self._at : self._end]
            self._data = larger
        else:
            self._data[:left] = self._data[self._at : self._end].copy()
        self._data[left : left + len(piece)] = np.frombuffer(piece, np.uint8)
        self._at, self._end = 0, left + len(piece)
        return len(piece)

    def _peek(self) -> int | None:
        """The next byte that is no space; None at the end."""
        while True:
            while self._at < self._end:
                byte = int(self._data[self._at])
                if byte not in _SPACES:
                    return byte
                self._at += 1
            if not self._fill():
                return None

    def _next_name(self) -> str | None:
        """The name of the next member, past its colon; None where the object ends."""
        while (byte := self._peek()) == COMMA:
            self._at += 1
        if byte is None or byte == CLOSE:
            self.is_cut = self.is_cut or byte is None
            return None
        name = self._value() if byte == QUOTE else None
        if name is None or self._peek() != COLON:
            self.is_cut = True
            return None
        self._at += 1
        self._peek()
        return str(_parse(name))

    def _value(self) -> bytes | None:
        """The text of the value that begins here; None where it never ends."""
        while (after := int(scan.end_of_value(self._data, self._at, self._end))) == MORE:
            if self._end - self._at > _LARGEST_VALUE or not self._fill():
                return None
        if after < 0:
            return None
        raw = self._data[self._at : after].tobytes()
        self._at = after
        return raw

    def _skip_member(self, name: str) -> bool:
        raw = self._value()
        if raw is not None and name in _KEPT:
            self.members[name] = _parse(raw)
        return raw is not None


def _parse(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None


def _decode(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    if "\\" in text:
        found = _parse(b'"' + raw + b'"')
        return found if isinstance(found, str) else text
    return text


def category_of(category: str) -> int:
    """The code of a category of events.

    >>> category_of("Kernel") - GPU == GpuKind.COMPUTE, category_of("cuda_runtime") - HOST == HostKind.RUNTIME, category_of("ac2g")
    (True, True, 0)
    """
    name = category.lower()
    if name in GPU_CATEGORIES:
        return GPU + GPU_CATEGORIES[name]
    if name in HOST_CATEGORIES:
        return HOST + HOST_CATEGORIES[name]
    if name.endswith(_RUNTIME_ENDS):
        return HOST + HostKind.RUNTIME
    if name == "cuda_profiler_range":
        return COUNTERS
    return OVERHEAD if name == "overhead" else OTHER


@dataclass
class KinetoColumns:
    """The columns of one text. Lists hold a piece a batch."""

    gpu: list[Int64s] = field(default_factory=list)
    gpu_kind: list[NDArray[np.int8]] = field(default_factory=list)
    host_times: list[Int64s] = field(default_factory=list)
    host_texts: list[NDArray[np.int32]] = field(default_factory=list)
    host_kind: list[NDArray[np.int8]] = field(default_factory=list)
    calls: list[Int64s] = field(default_factory=list)
    works: list[Int64s] = field(default_factory=list)
    memory: list[Int64s] = field(default_factory=list)
    pairs: list[Int64s] = field(default_factory=list)
    overhead_ns: int = 0
    counter_ranges: int = 0
    without_length: int = 0
    operators: int = 0
    first_operator: int | None = None
    last_operator: int | None = None
    _host_rows: int = 0
    _categories: list[int] = field(default_factory=list)

    def gather(self, events: JsonEvents) -> None:
        """Takes every batch of the text."""
        for rows in events.batches():
            phase = rows[:, EventField.PHASE]
            slices = phase == SLICE
            if not slices.all():
                memory = phase == INSTANT
                if memory.any():
                    self.memory.append(rows[memory][:, _MEMORY_FIELDS])
                halves = (phase != SLICE) & ~memory
                if halves.any():
                    self.pairs.append(rows[halves][:, _PAIR_FIELDS])
                rows = rows[slices]
            self._put(rows, self._classify(rows[:, EventField.CAT], events))
        if self.pairs:
            self._join_pairs(events)

    def _classify(self, categories: Int64s, events: JsonEvents) -> Int64s:
        highest = int(categories.max(initial=-1))
        if highest >= len(self._categories):
            self._categories += [category_of(text) for text in events.texts[len(self._categories) : highest + 1]]
        table = np.array([*self._categories, OTHER])  # the last one is of rows without a category, whose number is -1
        return table[categories]

    def _put(self, rows: Int64s, what: Int64s) -> None:
        on_gpu = (what >= GPU) & (what < HOST)
        lasts = rows[:, EventField.DURATION_NS] >= 0
        if on_gpu.any():
            self.without_length += int((on_gpu & ~lasts).sum())
            kept = on_gpu & lasts
            self.gpu.append(rows[kept][:, GPU_FIELDS])
            self.gpu_kind.append((what[kept] - GPU).astype(np.int8))
        on_host = (what >= HOST) & lasts
        if on_host.any():
            self._put_host(rows[on_host], what[on_host] - HOST)
        overhead = (what == OVERHEAD) & lasts
        if overhead.any():
            self.overhead_ns += int(rows[overhead, EventField.DURATION_NS].sum())
        self.counter_ranges += int((what == COUNTERS).sum())

    def _put_host(self, rows: Int64s, kind: Int64s) -> None:
        self.host_times.append(rows[:, (EventField.START_NS, EventField.DURATION_NS)])
        self.host_texts.append(rows[:, (EventField.NAME, EventField.PID, EventField.TID)].astype(np.int32))
        self.host_kind.append(kind.astype(np.int8))
        calls = np.nonzero(kind == HostKind.RUNTIME)[0]
        if len(calls):
            self.calls.append(np.column_stack((calls + self._host_rows, rows[calls, EventField.CORRELATION])))
        self._host_rows += len(rows)
        numbers = rows[(kind == HostKind.OPERATOR) & (rows[:, EventField.EXTERNAL] > 0), EventField.EXTERNAL]
        if len(numbers):
            self.operators += len(numbers)
            first, last = int(numbers.min()), int(numbers.max())
            self.first_operator = first if self.first_operator is None else min(first, self.first_operator)
            self.last_operator = last if self.last_operator is None else max(last, self.last_operator)
        shaped = (rows[:, EventField.DIMS] >= 0) & (rows[:, EventField.EXTERNAL] > 0)
        if shaped.any():
            self.works.append(rows[shaped][:, WORK_FIELDS])

    def _join_pairs(self, events: JsonEvents) -> None:
        """Slices of events that are written as a beginning and an end; an end closes the last beginning of its thread."""
        halves = np.concatenate(self.pairs)
        halves = halves[np.argsort(halves[:, -1], kind="stable")]
        opened: dict[tuple[int, int], list[Int64s]] = {}
        rows = np.full((len(halves), len(EventField)), MISSING, np.int64)
        count = 0
        for phase, name, category, pid, tid, at_ns in halves:
            stack = opened.setdefault((int(pid), int(tid)), [])
            if phase == BEGIN:
                stack.append(np.array((name, category, at_ns)))
            elif stack:
                name, category, from_ns = stack.pop()
                row = rows[count]
                row[[EventField.NAME, EventField.CAT, EventField.PID, EventField.TID]] = name, category, pid, tid
                row[[EventField.START_NS, EventField.DURATION_NS]] = from_ns, at_ns - from_ns
                row[[EventField.DIMS, EventField.GROUP]] = -1
                count += 1
        self._put(rows[:count], self._classify(rows[:count, EventField.CAT], events))


def join(pieces: Iterable[NDArray[Any]], width: int, kind: type[Any]) -> NDArray[Any]:
    """The pieces as one array; an empty one of this width where there are none."""
    found = list(pieces)
    return np.concatenate(found) if found else np.empty((0, width) if width else 0, kind)
