"""Rows of scanned events, gathered as compact columns: work of GPUs, the host's events, memory, and the halves of pairs."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.traces.json_events import JsonEvents
from loadfactor.sources.traces.scan.events import BEGIN, INSTANT, SLICE
from loadfactor.sources.traces.scan.fields import EventField
from loadfactor.sources.traces.scan.tokens import MISSING
from loadfactor.tables.trace_events import GpuKind, HostKind

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
"""What a category is; GPU and HOST are followed by their kinds."""
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


def category_of(category: str) -> int:
    """What the events of a category are.

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
                self._put_others(rows, phase)
                rows = rows[slices]
            self._put(rows, self._classify(rows[:, EventField.CAT], events))
        if self.pairs:
            self._join_pairs(events)

    def _classify(self, categories: Int64s, events: JsonEvents) -> Int64s:
        """What each row is, by the number of its category's text."""
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

    def _put_others(self, rows: Int64s, phase: Int64s) -> None:
        memory = phase == INSTANT
        if memory.any():
            self.memory.append(rows[memory][:, _MEMORY_FIELDS])
        halves = (phase != SLICE) & ~memory
        if halves.any():
            self.pairs.append(rows[halves][:, _PAIR_FIELDS])

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
