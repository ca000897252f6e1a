"""Memory timelines of torch.profiler: peaks, and what they were made of; nothing of time."""

import json
from pathlib import Path

import pytest
from tests.sources.traces.kineto_text import HAND, Event, write

from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.sources.traces.read import read_trace

RAW = [[-1, 1, 1000, 0], [10, 2, 500, 4], [20, 2, 300, 5], [30, 4, -500, 4], [40, 2, 100, 5]]
"""Parameters 1,000 from before; activations 500 and gradients 300 at the peak of 1,800; 1,400 at the end."""
SIZES = [
    [0, 10, 20, 30],
    [[0] * 9, [0, 1000, 0, 0, 0, 0, 0, 0, 0], [0, 1000, 0, 0, 0, 500, 300, 0, 0], [0, 900, 0, 0, 0, 0, 0, 0, 0]],
]


@pytest.mark.parametrize("content", [RAW, SIZES], ids=["raw", "json"])
def test_the_peak_and_what_it_was(tmp_path: Path, content: list[object]) -> None:
    """The peak of 1,800 bytes at 20 is told by category, and no time is judged."""
    path = tmp_path / "memory.json"
    path.write_text(json.dumps(content))
    found = diagnose_captures(read_trace(path))
    (report,) = found.traces
    assert (report.can_judge, found.findings) == (False, ())
    (use,) = report.memory
    assert (use.peak_allocated_bytes, use.peak_at_ns) == (1800, 20)
    assert use.by_category == {"parameter": 1000, "activation": 500, "gradient": 300}


def said(device: int, allocated: int, reserved: int, at_us: float) -> Event:
    """What an allocator says in a trace."""
    args = {"Total Reserved": reserved, "Total Allocated": allocated, "Bytes": 1, "Device Id": device, "Device Type": 1}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": at_us,
        "args": args,
    }


def test_allocators_in_a_trace(tmp_path: Path) -> None:
    """profile_memory=True: the most that was given out and held, a device each."""
    events = [*HAND, said(0, 100, 400, 1), said(0, 300, 400, 2), said(0, 200, 500, 3), said(1, 7, 9, 3)]
    (report,) = diagnose_captures(read_trace(write(tmp_path / "trace.json", events))).traces
    peaks = [(use.device, use.peak_allocated_bytes, use.peak_at_ns, use.peak_reserved_bytes) for use in report.memory]
    assert peaks == [(0, 300, 2000, 500), (1, 7, 3000, 9)]
