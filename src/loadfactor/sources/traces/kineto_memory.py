"""What torch's allocators said in a trace (`profile_memory=True`): peaks by device."""

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.traces.scan.tokens import MISSING
from loadfactor.tables.trace_events import MemoryUse

_CPU = 0
"""c10::DeviceType of the host; the others are accelerators."""


def read_memory(pieces: list[NDArray[np.int64]]) -> tuple[MemoryUse, ...]:
    """The peaks of each device; rows have the time, type and number of the device, and bytes given out and held."""
    if not pieces:
        return ()
    rows = np.concatenate(pieces)
    found = []
    for kind, number in np.unique(rows[:, 1:3], axis=0).tolist():
        own = rows[(rows[:, 1] == kind) & (rows[:, 2] == number)]
        peak = int(own[:, 3].argmax())
        held = int(own[:, 4].max())
        found.append(
            MemoryUse(
                device="CPU" if kind == _CPU else int(number),
                peak_allocated_bytes=int(own[peak, 3]),
                peak_at_ns=int(own[peak, 0]),
                peak_reserved_bytes=held if held != MISSING and kind != _CPU else None,
                events=len(own),
            )
        )
    return tuple(found)
