"""Jumps of the clock: GPU events hours away from the others are of another clock, or of another run."""

from itertools import pairwise
from typing import Final

import numpy as np

from loadfactor.base.units import NS_PER_S, S_PER_HOUR
from loadfactor.insight.traces.intervals import unite
from loadfactor.tables.trace_events import GpuEvents

JUMP_NS: Final = S_PER_HOUR * NS_PER_S
"""No capture has so long a gap: profilers keep seconds."""


def keep_one_clock(gpu: GpuEvents) -> tuple[GpuEvents, str]:
    """The events between two jumps that were busy longest, and a sentence on what is left out; all and nothing where none jump."""
    united = unite(gpu.start_ns, gpu.end_ns)
    jumps = np.nonzero(united.start_ns[1:] - united.end_ns[:-1] > JUMP_NS)[0] + 1
    if not len(jumps):
        return gpu, ""
    edges = np.concatenate(([0], jumps, [len(united.start_ns)]))
    busy = [int((united.end_ns[a:b] - united.start_ns[a:b]).sum()) for a, b in pairwise(edges)]
    best = int(np.argmax(busy))
    begin, end = united.start_ns[edges[best]], united.end_ns[edges[best + 1] - 1]
    kept = (gpu.start_ns >= begin) & (gpu.start_ns <= end)
    left_out = len(gpu) - int(kept.sum())
    note = f"The clock jumps: {left_out:,} of {len(gpu):,} GPU events lie hours away from the others and are left out."
    return gpu.take(kept), note
