"""What the host did while a GPU waited for a launch: the innermost event of the launching thread at each instant.

That is a correlation in time, not yet a cause. The times of all owners sum to the idle time of the host.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from loadfactor.base.units import NS_PER_US
from loadfactor.insight.traces.intervals import Int64s
from loadfactor.insight.traces.partition import IdleGaps
from loadfactor.insight.traces.sweep import own_intervals
from loadfactor.tables.trace_events import HostEvents, HostKind

Wait = Literal["data", "synchronization", "collective", "start_up", "host"]
"""What the host did: fetched data, waited for the GPU, waited for other ranks, did something for the first time, or other work."""
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
    """What somebody waits for who is in an event of this name.

    >>> [wait_of(name) for name in ("enumerate(DataLoader)#Iter.__next__", "cudaStreamSynchronize", "aten::mm")]
    ['data', 'synchronization', 'host']
    """
    for wait, pattern in _WAITS:
        if pattern.search(name) or (wait == "data" and pattern.search(phase)):
            return wait
    return "host"


def find_owners(gaps: IdleGaps, host: HostEvents, names: Sequence[str]) -> tuple[Owner, ...]:
    """Who held the host in the gaps, the longest first."""
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
