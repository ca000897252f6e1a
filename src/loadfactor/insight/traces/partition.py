"""The exact partition of a device's time: compute, communication, copies and memsets not covered by those before, and idle.

Times are whole nanoseconds and the five parts sum to the span, from the first start to the last end of the device's events.
Idle time is split by gap: until the call that launched the next event (host), from there to its start (launch), or all of it where
the call came before the gap (device), or where no call is in the trace (unknown). Events without length take no time and end
no gap.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import NS_PER_US
from loadfactor.insight.traces.intervals import Int64s, Spans, own_intervals, unite
from loadfactor.tables.trace_events import GpuEvents, GpuKind, HostEvents, HostKind, TraceCapture, TraceStep

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class IdleGaps:
    """The gaps between a device's events. `launch` is the row of the host event that launched what came next, -1 unknown."""

    start_ns: Int64s
    end_ns: Int64s
    host_ns: Int64s
    launch_ns: Int64s
    launch: Int64s

    @property
    def length_ns(self) -> Int64s:
        """How long each is."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Partition:
    """The parts of one device's span, ns.

    `busy`, `comm`, `memcpy` and `memset` are unions; what is `exposed` nothing else covers.
    """

    start_ns: int
    end_ns: int
    all: Spans
    compute: Spans
    comm: Spans
    kernel_ns: int
    memcpy_ns: int
    memset_ns: int
    comm_exposed_ns: int
    memcpy_exposed_ns: int
    memset_exposed_ns: int
    idle_host_ns: int
    idle_launch_ns: int
    idle_device_ns: int
    idle_unknown_ns: int
    gaps: IdleGaps
    with_comm: Spans
    with_copies: Spans

    @property
    def span_ns(self) -> int:
        """From the first start to the last end."""
        return self.end_ns - self.start_ns

    @property
    def busy_ns(self) -> int:
        """How long anything ran."""
        return self.all.length_ns

    @property
    def idle_ns(self) -> int:
        """How long nothing ran."""
        return self.span_ns - self.busy_ns


def divide(gpu: GpuEvents, host: HostEvents) -> Partition:
    """The partition of the events of one device, of which one at least has a length."""
    gpu = gpu.take(gpu.end_ns > gpu.start_ns)

    def spans(kinds: tuple[GpuKind, ...]) -> Spans:
        rows = np.isin(gpu.kind, kinds)
        return unite(gpu.start_ns[rows], gpu.end_ns[rows])

    compute, comm = spans((GpuKind.COMPUTE,)), spans((GpuKind.COMM,))
    with_comm = spans((GpuKind.COMPUTE, GpuKind.COMM))
    with_copies = spans((GpuKind.COMPUTE, GpuKind.COMM, GpuKind.MEMCPY))
    everything = unite(gpu.start_ns, gpu.end_ns)
    gaps = _split_gaps(gpu, host, everything)
    length = gaps.length_ns
    unknown, on_device = gaps.launch < 0, (gaps.launch >= 0) & (gaps.host_ns == 0)
    return Partition(
        start_ns=int(everything.start_ns[0]),
        end_ns=int(everything.end_ns[-1]),
        all=everything,
        compute=compute,
        comm=comm,
        kernel_ns=with_comm.length_ns,
        memcpy_ns=spans((GpuKind.MEMCPY,)).length_ns,
        memset_ns=spans((GpuKind.MEMSET,)).length_ns,
        comm_exposed_ns=with_comm.length_ns - compute.length_ns,
        memcpy_exposed_ns=with_copies.length_ns - with_comm.length_ns,
        memset_exposed_ns=everything.length_ns - with_copies.length_ns,
        idle_host_ns=int(gaps.host_ns.sum()),
        idle_launch_ns=int(gaps.launch_ns.sum()),
        idle_device_ns=int(length[on_device].sum()),
        idle_unknown_ns=int(length[unknown].sum()),
        gaps=gaps,
        with_comm=with_comm,
        with_copies=with_copies,
    )


def _split_gaps(gpu: GpuEvents, host: HostEvents, busy: Spans) -> IdleGaps:
    """Every gap, with how much of it passed before the next event was launched and how much after.

    Of several events that start at its end, the one that was launched first counts.
    """
    start, end = busy.end_ns[:-1], busy.start_ns[1:]
    called = np.full(len(gpu), _NEVER, np.int64)
    has_call = gpu.launch >= 0
    called[has_call] = host.start_ns[gpu.launch[has_call]]
    earliest = np.lexsort((called, gpu.start_ns))[busy.first[1:]]
    at, launch = called[earliest], gpu.launch[earliest].astype(np.int64)
    late = (launch >= 0) & (at > start)
    host_ns = np.where(late, np.minimum(at, end) - start, 0)
    launch_ns = np.where(late, end - start - host_ns, 0)
    return IdleGaps(start, end, host_ns, launch_ns, launch)


def rows_of_device(gpu: GpuEvents, device: int) -> NDArray[np.int64]:
    """The rows of one device."""
    return np.nonzero(gpu.device == device)[0]


Wait = Literal["data", "synchronization", "collective", "start_up", "host"]
"""The host fetched data, waited for the GPU, waited for other ranks, did something for the first time, or other work."""
NOBODY: Final = "(no event on the launching thread)"
_STEP: Final = re.compile(r"ProfilerStep#\d+")
_WAITS: Final[tuple[tuple[Wait, re.Pattern[str]], ...]] = (
    (
        "data",
        re.compile(
            r"data_?loader|dataiter|iteratorgetnext|iterator::|tf_?data|(get|next|load|fetch|read)_?batch\b|collate"
            r"|data[_ -]?(wait|load|fetch|pipeline|time)|::prefetch|dali|webdataset",
            re.IGNORECASE,
        ),
    ),
    (
        "synchronization",
        re.compile(
            r"synchronize|_local_scalar_dense|aten::item\b|aten::(is_)?nonzero|aten::equal\b|^(cuda|hip)Memcpy(_v\d+)?$"
            r"|^cuMemcpy(DtoH|HtoD|DtoD)?(_v\d+)?$|^block_until_ready|^BlockHostUntil",
            re.IGNORECASE,
        ),
    ),
    (
        "collective",
        re.compile(
            r"c10d::|nccl|rccl|gloo|mpi_|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier|processgroup"
            r"|record_param_comms",
            re.IGNORECASE,
        ),
    ),
    (
        "start_up",
        re.compile(
            r"moduleload|libraryload|cudaMalloc\b|hipMalloc\b|cudaHostAlloc|compile(?!d)|autotun|nvrtc"
            r"|cudnnCreate|cublasCreate|getdeviceproperties",
            re.IGNORECASE,
        ),
    ),
)


@dataclass(frozen=True)
class Owner:
    """An event that the host was in while the GPU waited. `phase` is the innermost annotation around it, steps not counted.

    `call` is the runtime call inside it that took most of that time, empty where none took any.
    """

    name: str
    kind: str
    phase: str
    idle_us: float
    longest_us: float
    events: int
    waits_for: Wait
    call: str


def wait_of(name: str, phase: str = "") -> Wait:
    """The wait that an event of this name stands for.

    >>> [wait_of(name) for name in ("enumerate(DataLoader)#Iter.__next__", "cudaStreamSynchronize", "aten::mm")]
    ['data', 'synchronization', 'host']
    """
    for wait, pattern in _WAITS:
        if pattern.search(name) or (wait == "data" and pattern.search(phase)):
            return wait
    return "host"


def find_owners(gaps: IdleGaps, host: HostEvents, names: Sequence[str]) -> tuple[Owner, ...]:
    """Holders of the host in the gaps, the longest first."""
    waiting = gaps.host_ns > 0
    thread_of = host.thread[gaps.launch[waiting]] if waiting.any() else np.empty(0, np.int32)
    starts, lengths = gaps.start_ns[waiting], gaps.host_ns[waiting]
    found: dict[tuple[str, str, str, Wait], list[tuple[int, str]]] = defaultdict(list)
    for thread in np.unique(thread_of):
        own = thread_of == thread
        begin, end = starts[own], starts[own] + lengths[own]
        rows, owned, phase, holder = _own(host, int(thread), begin, end, names)
        left = int(lengths[own].sum() - owned.sum())
        if left:
            found[(NOBODY, "none", "", "host")].append((left, ""))
        for place in np.nonzero(owned)[0].tolist():
            name, row = names[host.name[rows[place]]], rows[holder[place]]
            around = names[host.name[rows[phase[place]]]] if phase[place] >= 0 else ""
            key = (names[host.name[row]], HostKind(host.kind[row]).name.lower(), around, wait_of(name, around))
            found[key].append((int(owned[place]), name if holder[place] != place else ""))
    owners = [_sum_owner(*key, parts) for key, parts in found.items()]
    return tuple(sorted(owners, key=lambda owner: (-owner.idle_us, owner.name)))


def _sum_owner(name: str, kind: str, phase: str, wait: Wait, parts: list[tuple[int, str]]) -> Owner:
    calls: Counter[str] = Counter()
    for idle_ns, call in parts:
        calls[call] += idle_ns
    (call, _), *_ = calls.most_common(1)
    total, longest = sum(idle for idle, _ in parts), max(idle for idle, _ in parts)
    return Owner(name, kind, phase, total / NS_PER_US, longest / NS_PER_US, len(parts), wait, call)


def _own(
    host: HostEvents, thread: int, begin: Int64s, end: Int64s, names: Sequence[str]
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """The rows of a thread's events, how much of the intervals each owns, and the places of its phase and its holder among them."""
    on_thread = (host.thread == thread) & (host.end_ns > begin[0]) & (host.start_ns < end[-1])
    rows = np.nonzero(on_thread & (host.end_ns > host.start_ns))[0]
    rows = rows[np.lexsort((-host.end_ns[rows], host.start_ns[rows]))]
    owned, phase, holder, room = (np.zeros(len(rows), np.int64) for _ in range(4))
    annotations = host.kind[rows] == HostKind.ANNOTATION
    steps = [number for number in np.unique(host.name[rows[annotations]]) if _STEP.fullmatch(names[number])]
    own_intervals(
        host.start_ns[rows],
        host.end_ns[rows],
        annotations & ~np.isin(host.name[rows], steps),
        host.kind[rows] == HostKind.RUNTIME,
        begin,
        end,
        room,
        owned,
        phase,
        holder,
    )
    return rows, owned, phase, holder


@dataclass(frozen=True)
class StepWait:
    """The wait of a loop for data within its steps: the union of events that fetch data; steps and waits of their thread alone."""

    steps: int
    steps_ns: int
    data_ns: int
    names: tuple[str, ...]

    @property
    def share(self) -> float:
        """The share of the steps in which it waited."""
        return self.data_ns / self.steps_ns


def measure_data_wait(capture: TraceCapture) -> StepWait | None:
    """The wait of the thread with most steps; None where a trace has no steps that last."""
    host = capture.host
    steps = {step.name for step in capture.steps}
    is_step = np.isin(host.name, [number for number, name in enumerate(capture.names) if name in steps])
    is_step &= (host.kind == HostKind.ANNOTATION) & (host.end_ns > host.start_ns)
    if not is_step.any():
        return None
    thread = np.bincount(host.thread[is_step]).argmax()
    own = np.nonzero(is_step & (host.thread == thread))[0]
    own = own[np.argsort(host.start_ns[own], kind="stable")]
    windows = unite(host.start_ns[own], host.end_ns[own])
    fetches = [number for number, name in enumerate(capture.names) if name not in steps and wait_of(name) == "data"]
    waits = np.nonzero((host.thread == thread) & np.isin(host.name, fetches))[0]
    waits = waits[np.argsort(host.start_ns[waits], kind="stable")]
    united = unite(host.start_ns[waits], host.end_ns[waits])
    data_ns = int((united.length_until(windows.end_ns) - united.length_until(windows.start_ns)).sum())
    found = tuple(dict.fromkeys(capture.names[host.name[row]] for row in waits[united.first].tolist()))
    return StepWait(len(own), windows.length_ns, data_ns, found)


@dataclass(frozen=True)
class StepTimes:
    """One step on one device, microseconds. Work that was launched in a step may run in the next one."""

    step: str
    start_us: float
    duration_us: float
    busy_us: float
    compute_us: float
    comm_exposed_us: float
    memcpy_exposed_us: float
    memset_exposed_us: float
    idle_us: float


def list_steps(partition: Partition, steps: Sequence[TraceStep], device: int) -> tuple[StepTimes, ...]:
    """Every step of this device or of all."""
    own = [step for step in steps if step.device in (None, device)]
    starts, ends = (np.array([getattr(step, name) for step in own], np.int64) for name in ("start_ns", "end_ns"))

    def inside(spans: Spans) -> np.ndarray:
        return (spans.length_until(ends) - spans.length_until(starts)) / NS_PER_US

    busy, compute, comm, copies = (
        inside(spans) for spans in (partition.all, partition.compute, partition.with_comm, partition.with_copies)
    )
    length = (ends - starts) / NS_PER_US
    return tuple(
        StepTimes(
            step=step.name,
            start_us=step.start_ns / NS_PER_US,
            duration_us=float(length[k]),
            busy_us=float(busy[k]),
            compute_us=float(compute[k]),
            comm_exposed_us=round(float(comm[k] - compute[k]), 3),
            memcpy_exposed_us=round(float(copies[k] - comm[k]), 3),
            memset_exposed_us=round(float(busy[k] - copies[k]), 3),
            idle_us=round(float(length[k] - busy[k]), 3),
        )
        for k, step in enumerate(own)
    )
