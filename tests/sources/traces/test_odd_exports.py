"""XPlanes and exports of Nsight with two GPUs, no correlation numbers, or a clock that jumps: told apart, or said."""

import copy
import json
import sqlite3
from pathlib import Path

import pytest
from tests.sources.traces.kineto_text import HAND, Event, write
from tests.sources.traces.test_nsight_and_xplane import GPU, HOST, PREFIX, TABLES, Rows, event, line, plane

from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.insight.traces.report import DeviceReport
from loadfactor.sources.traces.read import read_trace

DAY_NS = 86_400 * 10**9


def reports(path: Path) -> tuple[DeviceReport, ...]:
    return diagnose_captures(read_trace(path)).traces


def export(path: Path, tables: dict[str, Rows]) -> tuple[DeviceReport, ...]:
    with sqlite3.connect(path) as database:
        for table, rows in tables.items():
            names = list(rows[0])
            database.execute(f'CREATE TABLE "{table}" ({", ".join(names)})')
            places = ", ".join("?" for _ in names)
            database.executemany(f'INSERT INTO "{table}" VALUES ({places})', [tuple(row.values()) for row in rows])
    database.close()
    return reports(path)


def planes(path: Path, *content: bytes) -> tuple[DeviceReport, ...]:
    path.write_bytes(b"".join(content))
    return reports(path)


def test_two_gpus_in_one_file_are_two(tmp_path: Path) -> None:
    """Their kernels at the same time do not overlap: each GPU has its own span and its own busy time."""
    tables = copy.deepcopy(TABLES)
    kernels = tables[f"{PREFIX}KERNEL"]
    kernels += [{**kernels[0], "deviceId": 1, "start": 1000, "end": 3000, "correlationId": 9}]
    first, second = export(tmp_path / "two.sqlite", tables)
    assert (first.gpu_span_us, first.busy_us) == (9, 6.5)
    assert (second.gpu_span_us, second.busy_us, second.kernels) == (2, 2, 1)
    other = plane("/device:GPU:1", {1: "gemm"}, line(17, "Stream #17(Kernel)", event(1, 2_000_000, 4_000_000)))
    first, second = planes(tmp_path / "two.xplane.pb", GPU, other, HOST)
    assert (first.gpu_span_us, first.busy_us) == (15, 9)
    assert (second.gpu_span_us, second.busy_us) == (4, 4)


def test_without_correlation_numbers_idle_time_is_unknown(tmp_path: Path) -> None:
    """Where nobody says who launched what, all idle time is unknown, and judged in part at most."""
    tables = copy.deepcopy(TABLES)
    for rows in tables.values():
        for row in rows:
            row.pop("correlationId", None)
    kernels = plane(
        "/device:GPU:0",
        {1: "gemm"},
        line(17, "Stream #17(Kernel)", event(1, 0, 5_000_000), event(1, 9_000_000, 1_000_000)),
    )
    of_nsight = export(tmp_path / "none.sqlite", tables)
    of_xplane = planes(tmp_path / "none.xplane.pb", kernels)
    for (report,), idle in ((of_nsight, 2.5), (of_xplane, 4)):
        assert report.idle_us == report.idle_unknown_us == idle
        assert report.can_judge is not True


@pytest.mark.parametrize("kind", ["sqlite", "xplane"])
def test_a_clock_that_jumps_is_said(tmp_path: Path, kind: str) -> None:
    """A kernel a day after all others does not make the GPU idle for a day without a word: it is left out, and that is said."""
    if kind == "sqlite":
        tables = copy.deepcopy(TABLES)
        kernels = tables[f"{PREFIX}KERNEL"]
        kernels += [{**kernels[0], "start": DAY_NS, "end": DAY_NS + 1000, "correlationId": 9}]
        (report,) = export(tmp_path / "jump.sqlite", tables)
    else:
        late = line(19, "Stream #19(Kernel)", event(1, 0, 1_000_000), at_ns=DAY_NS)
        jumping = plane("/device:GPU:0", {1: "gemm"}, line(17, "Stream #17(Kernel)", event(1, 0, 5_000_000)), late)
        (report,) = planes(tmp_path / "jump.xplane.pb", jumping)
    assert report.notes or report.because
    assert report.can_judge is not True or report.gpu_span_us < 1000


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
