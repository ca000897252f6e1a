"""The columns of a profiler's capture: GPU work, events of the host, steps, devices, and what is missing of it.

Times are whole nanoseconds of one clock a capture; `clock_ns` is what to add to have Unix time, where that is known. Texts are
numbers in `names`. Decoders in `sources/traces` make captures, `insight/traces` reads them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Int8s = NDArray[np.int8]
Floats = NDArray[np.float32]


class GpuKind(IntEnum):
    """Kinds of work of a GPU; work of a lower number counts first where several overlap."""

    COMPUTE = 0
    COMM = 1
    MEMCPY = 2
    MEMSET = 3


class HostKind(IntEnum):
    """Kinds of events of the host."""

    OPERATOR = 0
    ANNOTATION = 1
    RUNTIME = 2
    PYTHON = 3


class _Columns:
    """Arrays of one length."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Self:
        """These rows."""
        return type(self)(**{item.name: getattr(self, item.name)[rows] for item in fields(self)})  # type: ignore[arg-type]


@dataclass(frozen=True)
class GpuEvents(_Columns):
    """Kernels, copies and memsets, by their start. `launch` is the row of the host event that launched it, -1 where none is there.

    `device` is a place in `TraceCapture.devices`. `size` is bytes of a copy, or elements that go into a collective; -1 unknown.
    `blocks` is how many blocks a kernel's grid has, -1 unknown. `group` is the name of a collective's process group, -1 unknown.
    `flops` are floating-point operations and `moved` bytes read and written in memory, NaN unknown: from the shapes of what the
    operator was given, or given by the compiler.
    """

    start_ns: Int64s
    end_ns: Int64s
    kind: Int8s
    name: Int32s
    device: Int32s
    stream: Int64s
    launch: Int32s
    size: Int64s
    blocks: Int64s
    group: Int32s
    flops: Floats
    moved: Floats


@dataclass(frozen=True)
class HostEvents(_Columns):
    """Events of threads of the host, in any order. `thread` numbers them through a capture."""

    start_ns: Int64s
    end_ns: Int64s
    kind: Int8s
    name: Int32s
    thread: Int32s


@dataclass(frozen=True)
class TraceDevice:
    """One accelerator of a capture: what the trace calls it, the product's name where it says that, and its multiprocessors."""

    label: int | str
    accelerator: str = ""
    multiprocessors: int | None = None


@dataclass(frozen=True)
class TraceStep:
    """One step of the loop. `device` is a place in `TraceCapture.devices` where the step is that device's alone."""

    name: str
    start_ns: int
    end_ns: int
    device: int | None = None


@dataclass(frozen=True)
class Thinning:
    """Signs that a capture is a sample of one.

    Runtime calls ÷ the range of their correlation numbers, the share of calls without a GPU event, and operators ÷ the range of
    their numbers; None where a capture has too few to say.
    """

    call_density: float | None
    calls_without_gpu_share: float | None
    operator_density: float | None


@dataclass(frozen=True)
class MemoryUse:
    """Memory by an allocator's record: the most bytes it had given out and held, when, and by what they were used for."""

    device: int | str
    peak_allocated_bytes: int
    peak_at_ns: int | None
    peak_reserved_bytes: int | None
    events: int
    by_category: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TraceCapture:
    """One capture. `is_cut` says that its text ends early; `notes` what of it could not be read, in sentences;
    `refused` why nothing of it could."""

    trace: str
    path: str
    format: str
    names: Sequence[str]
    devices: Sequence[TraceDevice]
    gpu: GpuEvents
    host: HostEvents
    rank: int | None = None
    world_size: int | None = None
    clock_ns: int | None = None
    steps: Sequence[TraceStep] = ()
    memory: Sequence[MemoryUse] = ()
    thinning: Thinning | None = None
    counter_ranges: int = 0
    unreadable_times: int = 0
    overhead_ns: int = 0
    is_cut: bool = False
    refused: str = ""
    notes: Sequence[str] = ()


def no_gpu_events() -> GpuEvents:
    """A GPU that was not seen."""
    whole, short = np.empty(0, np.int64), np.empty(0, np.int32)
    unknown = np.empty(0, np.float32)
    kind = np.empty(0, np.int8)
    return GpuEvents(whole, whole, kind, short, short, whole, short, whole, whole, short, unknown, unknown)


def no_host_events() -> HostEvents:
    """A host that was not seen."""
    whole, short = np.empty(0, np.int64), np.empty(0, np.int32)
    return HostEvents(whole, whole, np.empty(0, np.int8), short, short)
