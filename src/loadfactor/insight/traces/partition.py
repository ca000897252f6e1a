"""The exact partition of a device's time: compute, communication, copies and memsets not covered by those before, and idle.

Times are whole nanoseconds and the five parts sum to the span, from the first start to the last end of the device's events.
Idle time is split by gap: until the call that launched the next event (host), from there to its start (launch), or all of it where
the call came before the gap (device), or where no call is in the trace (unknown). Events without length take no time and end
no gap.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadfactor.insight.traces.intervals import Int64s, Spans, unite
from loadfactor.tables.trace_events import GpuEvents, GpuKind, HostEvents

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
