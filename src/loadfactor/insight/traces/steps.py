"""The parts of a device's time step by step: what of each union lies in the window of a step."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadfactor.base.units import NS_PER_US
from loadfactor.insight.traces.intervals import Spans
from loadfactor.insight.traces.partition import Partition
from loadfactor.tables.trace_events import TraceStep


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
