"""Whether a trace can be judged at all: is it whole, is it a sample, is it long enough, does it show what it waited for.

The thresholds are this project's own choices; docs/diagnose-traces.md says on which traces they were settled.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from loadfactor.base.units import NS_PER_MS, NS_PER_US, PERCENT, US_PER_S
from loadfactor.insight.traces.kernels import PrecisionShares, measure_precision
from loadfactor.insight.traces.partition import Owner, Partition, StepTimes, Wait, divide, find_owners, list_steps
from loadfactor.insight.traces.report import Judgement
from loadfactor.tables.trace_events import GpuEvents, GpuKind, Thinning, TraceCapture, TraceDevice


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
        """The device in its capture."""
        return self.capture.devices[self.place]

    @cached_property
    def partition(self) -> Partition:
        """The parts of its span."""
        return divide(self.gpu, self.capture.host)

    @cached_property
    def owners(self) -> tuple[Owner, ...]:
        """Holders of the host while it waited."""
        return find_owners(self.partition.gaps, self.capture.host, self.capture.names)

    @cached_property
    def steps(self) -> tuple[StepTimes, ...]:
        """Its time step by step."""
        return list_steps(self.partition, self.capture.steps, self.place)

    @cached_property
    def precision(self) -> PrecisionShares | None:
        """Tensor cores by the names of its kernels."""
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


THIN_CALLS: Final = 0.03
THIN_OPERATORS: Final = 0.5
THIN_WITHOUT_GPU: Final = 0.1
"""Full captures have 0.06 to 0.30 calls a number, a third to four fifths of calls without a GPU event, and nearly all operators."""
DOMINANT_GAP: Final = 0.3
FEWEST_STEPS: Final = 3
SHORTEST_NS: Final = 100 * NS_PER_MS
FEWEST_EVENTS, LEAST_BUSY_NS = 5, NS_PER_MS
"""With fewer events, that together are shorter, nothing is judged: they are a start-up or a test, not a loop."""
UNDECIDABLE: Final = 0.1
_CUT_SHARE: Final = 0.05


def is_thinned(thinning: Thinning | None) -> bool:
    """Whether events were sampled out: all three signs are needed, because vendors number differently."""
    if thinning is None or thinning.call_density is None or thinning.operator_density is None:
        return False
    return (
        thinning.call_density < THIN_CALLS
        and thinning.operator_density < THIN_OPERATORS
        and (thinning.calls_without_gpu_share or 0.0) < THIN_WITHOUT_GPU
    )


def refuse(capture: TraceCapture) -> tuple[str, ...]:
    """Why nothing can be judged from a capture; empty where something can."""
    if capture.refused:
        return (capture.refused,)
    if not len(capture.gpu):
        return (_say_without_gpu(capture),)
    if is_thinned(capture.thinning):
        return (
            "Events were sampled out of this trace: few numbers of calls and operators are left, and every call that is left has"
            " its GPU event. Record the whole step.",
        )
    if capture.is_cut and _ends_apart(capture):
        return (
            "The file is cut, and its GPU events end long before or after the calls of its host: export it again, whole.",
        )
    if not (capture.gpu.end_ns > capture.gpu.start_ns).any():
        return ("Every GPU event has length 0: its times may be in another unit than microseconds. Export it again.",)
    return ()


def is_host_alone(capture: TraceCapture) -> bool:
    """Whether a whole capture holds what a host did, and nothing of a GPU."""
    is_broken = capture.refused or capture.is_cut or capture.unreadable_times or capture.counter_ranges
    return not is_broken and not len(capture.gpu) and bool(len(capture.host))


def _say_without_gpu(capture: TraceCapture) -> str:
    if capture.is_cut:
        return "The file is cut before its GPU events begin; export it again, whole."
    if capture.unreadable_times:
        return (
            f"No GPU event whose time can be read: {capture.unreadable_times:,} events have times that are no numbers, or beyond"
            " the year 2262 in microseconds. Nanoseconds? Export it again."
        )
    if capture.counter_ranges:
        return (
            f"No GPU event, but {capture.counter_ranges:,} ranges of hardware counters, which replace kernels: record a plain trace"
            " beside them."
        )
    if capture.memory:
        return f"No GPU event: {capture.format} says what memory was used, not what the GPU did."
    return "No GPU event: only the host was recorded. Record again with the GPU's activities (ProfilerActivity.CUDA)."


def _ends_apart(capture: TraceCapture) -> bool:
    """Whether the last GPU event and the last call of the host are far apart, which a capture that is whole does not have."""
    if not len(capture.host):
        return True
    span = max(int(capture.gpu.end_ns.max()) - int(capture.gpu.start_ns.min()), 1)
    return abs(int(capture.gpu.end_ns.max()) - int(capture.host.end_ns.max())) > _CUT_SHARE * span


def judge(device: ObservedDevice) -> tuple[Judgement, tuple[str, ...]]:
    """Whether a device can be judged, partly, and why not wholly."""
    if too_little := _say_too_little(device):
        return False, (too_little,)
    doubts = []
    if device.capture.is_cut:
        doubts.append("The file is cut: shares are of what came before.")
    if doubt := _say_short(device):
        doubts.append(doubt)
    if doubt := _say_one_gap(device):
        doubts.append(doubt)
    if doubt := _say_undecidable(device):
        doubts.append(doubt)
    return ("partly" if doubts else True), tuple(doubts)


def _say_too_little(device: ObservedDevice) -> str:
    gpu, busy_ns = device.gpu, device.partition.busy_ns
    events = int((gpu.end_ns > gpu.start_ns).sum())
    if events >= FEWEST_EVENTS or busy_ns >= LEAST_BUSY_NS:
        return ""
    what = "one event" if events == 1 else f"{events} events"
    return (
        f"The GPU did too little: {what} of {busy_ns / NS_PER_US:,.4g} µs together, which is no loop."
        f" Record {FEWEST_STEPS} steps or more after the warm-up."
    )


def _say_short(device: ObservedDevice) -> str:
    steps = [step for step in device.steps if step.busy_us]  # a step in which the GPU did nothing shows nothing
    if len(steps) >= FEWEST_STEPS:
        return ""
    judged_us = min(device.span_us, sum(step.duration_us for step in steps)) if steps else device.span_us
    if judged_us * NS_PER_US >= SHORTEST_NS:
        return ""
    in_steps = f"in {len(steps)} steps" if steps else "without steps"
    return (
        f"It is short: {judged_us:,.1f} µs from the first work of the GPU to its last, {in_steps}."
        f" Record {FEWEST_STEPS} steps or more after the warm-up."
    )


def longest_gap_share(device: ObservedDevice) -> float:
    """The longest gap ÷ the span."""
    lengths = device.partition.gaps.length_ns
    return float(lengths.max(initial=0)) / device.partition.span_ns


def has_one_gap(device: ObservedDevice) -> bool:
    """Whether one gap is so long that shares describe it rather than the loop."""
    return longest_gap_share(device) > DOMINANT_GAP


def _say_one_gap(device: ObservedDevice) -> str:
    if not has_one_gap(device):
        return ""
    share = longest_gap_share(device)
    seconds = share * device.span_us / US_PER_S
    return (
        f"One gap of {seconds:,.3g} s is {PERCENT * share:.0f} % of the span: start-up or a single event, not the"
        " loop. Skip the warm-up"
        " (schedule wait and warmup)."
    )


def undecidable_share(device: ObservedDevice) -> float:
    """The share of the span that was idle though what came next was launched long before, or by nobody that is in the trace."""
    return device.share(device.partition.idle_device_ns + device.partition.idle_unknown_ns)


def is_undecidable(device: ObservedDevice) -> bool:
    """Whether the largest part that is no computing is idle time of which the trace does not tell the cause."""
    parts = device.partition
    known = max(parts.comm_exposed_ns, parts.memcpy_exposed_ns, parts.idle_host_ns + parts.idle_launch_ns)
    share = undecidable_share(device)
    return share > UNDECIDABLE and share > device.share(known)


def _say_undecidable(device: ObservedDevice) -> str:
    if not is_undecidable(device):
        return ""
    return (
        f"Of {PERCENT * undecidable_share(device):.0f} % of the span the trace does not tell what was waited for:"
        " what came next was"
        " launched before, or its launch is not in the trace."
    )
