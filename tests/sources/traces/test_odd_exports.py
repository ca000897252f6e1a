"""XPlanes and exports of Nsight with two GPUs, no correlation numbers, or a clock that jumps: told apart, or said."""

import copy
import sqlite3
from pathlib import Path

import pytest
from tests.sources.traces.test_nsight import PREFIX, TABLES, Rows
from tests.sources.traces.test_xplane import GPU, HOST, event, line, plane

from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.insight.traces.report import DeviceReport
from loadfactor.sources.traces.read import read_trace

DAY_NS = 86_400 * 10**9


def reports(path: Path) -> tuple[DeviceReport, ...]:
    """What is said of a file."""
    return diagnose_captures(read_trace(path)).traces


def export(path: Path, tables: dict[str, Rows]) -> tuple[DeviceReport, ...]:
    """What is said of an export with these tables."""
    with sqlite3.connect(path) as database:
        for table, rows in tables.items():
            names = list(rows[0])
            database.execute(f'CREATE TABLE "{table}" ({", ".join(names)})')
            places = ", ".join("?" for _ in names)
            database.executemany(f'INSERT INTO "{table}" VALUES ({places})', [tuple(row.values()) for row in rows])
    database.close()
    return reports(path)


def planes(path: Path, *content: bytes) -> tuple[DeviceReport, ...]:
    """What is said of these planes."""
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
