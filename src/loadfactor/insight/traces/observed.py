"""All that is measured of one device in one capture, for the gates and rules that judge it."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from loadfactor.base.units import NS_PER_US
from loadfactor.insight.traces.owners import Owner, Wait, find_owners
from loadfactor.insight.traces.partition import Partition, divide
from loadfactor.insight.traces.precision import PrecisionShares, measure_precision
from loadfactor.insight.traces.steps import StepTimes, list_steps
from loadfactor.tables.trace_events import GpuEvents, GpuKind, TraceCapture, TraceDevice


@dataclass(frozen=True)
class Copies:
    """The copies of one name: how many, their time, bytes where they are known, and whether the host's memory was pageable."""

    name: str
    count: int
    total_us: float
    size_bytes: int | None
    is_pageable: bool


@dataclass(frozen=True)
class ObservedDevice:
    """One device of a capture: its events, by their start, and what follows from them."""

    capture: TraceCapture
    place: int
    gpu: GpuEvents

    @property
    def device(self) -> TraceDevice:
        """What the trace says of it."""
        return self.capture.devices[self.place]

    @cached_property
    def partition(self) -> Partition:
        """The parts of its span."""
        return divide(self.gpu, self.capture.host)

    @cached_property
    def owners(self) -> tuple[Owner, ...]:
        """Who held the host while it waited."""
        return find_owners(self.partition.gaps, self.capture.host, self.capture.names)

    @cached_property
    def steps(self) -> tuple[StepTimes, ...]:
        """Its time step by step."""
        return list_steps(self.partition, self.capture.steps, self.place)

    @cached_property
    def precision(self) -> PrecisionShares | None:
        """What its kernels' names say of tensor cores."""
        return measure_precision(self.gpu, self.capture.names)

    @cached_property
    def kernel_us(self) -> np.ndarray:
        """The lengths of its kernels, communication included."""
        rows = self.gpu.kind <= GpuKind.COMM
        return (self.gpu.end_ns - self.gpu.start_ns)[rows] / NS_PER_US

    @cached_property
    def copies(self) -> tuple[Copies, ...]:
        """Its copies by name, the longest first."""
        rows = np.nonzero(self.gpu.kind == GpuKind.MEMCPY)[0]
        found = []
        for number in np.unique(self.gpu.name[rows]):
            own = rows[self.gpu.name[rows] == number]
            name = self.capture.names[number] if number >= 0 else ""
            sizes = self.gpu.size[own]
            total = float((self.gpu.end_ns - self.gpu.start_ns)[own].sum()) / NS_PER_US
            size = int(sizes.sum()) if (sizes >= 0).all() else None
            found.append(Copies(name, len(own), total, size, "pageable" in name.lower()))
        return tuple(sorted(found, key=lambda copies: -copies.total_us))

    @property
    def span_us(self) -> float:
        """Its span."""
        return self.partition.span_ns / NS_PER_US

    def share(self, part_ns: float) -> float:
        """A part of its span."""
        return part_ns / self.partition.span_ns

    def idle_us(self, wait: Wait) -> float:
        """How long the host, which it waited for, waited for this."""
        return sum(owner.idle_us for owner in self.owners if owner.waits_for == wait)

    def idle_by_cause_us(self) -> dict[str, float]:
        """Its idle time by what was waited for; sums to it."""
        found: defaultdict[str, float] = defaultdict(float)
        for owner in self.owners:
            found[owner.waits_for] += owner.idle_us
        parts = self.partition
        found["launch"] = parts.idle_launch_ns / NS_PER_US
        found["device"] = parts.idle_device_ns / NS_PER_US
        found["unknown"] = parts.idle_unknown_ns / NS_PER_US
        return {cause: round(value, 3) for cause, value in found.items() if value}
