"""Exports of Nsight Systems, made by hand: SQLite, and the same tables as Parquet and Arrow."""

import gzip
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadfactor.base.errors import SourceError
from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.insight.traces.report import DeviceReport
from loadfactor.sources.traces.read import read_trace
from loadfactor.tables.trace_events import GpuKind

PREFIX = "CUPTI_ACTIVITY_KIND_"
PROCESS = 1000 << 24
THREAD = PROCESS + 7
Rows = list[dict[str, int | str | None]]


def activity(start: int, end: int, stream: int, correlation: int, **more: int) -> dict[str, int | str | None]:
    """A row of what the GPU did."""
    row = {"start": start, "end": end, "deviceId": 0, "streamId": stream, "correlationId": correlation}
    return {**row, "globalPid": PROCESS, **more}


TABLES: dict[str, Rows] = {
    "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.24.14"}],
    "StringIds": [
        {"id": 1, "value": "gemm"},
        {"id": 2, "value": "ncclDevKernel_AllReduce_Sum_f32(x)"},
        {"id": 3, "value": "cudaLaunchKernel_v7000"},
        {"id": 4, "value": "cudaMemcpyAsync_v3020"},
    ],
    "TARGET_INFO_GPU": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "smCount": 132}],
    # 0–3,000 computing; 2,000–5,500 communication; 8,000–8,500 copy; 8,500–9,000 a replay of a graph
    f"{PREFIX}KERNEL": [activity(0, 3000, 7, 1, demangledName=1), activity(2000, 5500, 9, 2, demangledName=2)],
    f"{PREFIX}MEMCPY": [activity(8000, 8500, 7, 3, bytes=4096, copyKind=1, srcKind=0, dstKind=2)],
    f"{PREFIX}GRAPH_TRACE": [activity(8500, 9000, 7, 4)],
    f"{PREFIX}RUNTIME": [
        {"start": 7100, "end": 7300, "globalTid": THREAD, "correlationId": 3, "nameId": 4},
        # another process
        {"start": 5000, "end": 5100, "globalTid": THREAD + (1 << 24), "correlationId": 3, "nameId": 3},
    ],
    "NVTX_EVENTS": [
        {"start": 6000, "end": 7050, "eventType": 59, "text": "load_batch", "textId": None, "globalTid": THREAD},
        {"start": 0, "end": None, "eventType": 34, "text": "mark", "textId": None, "globalTid": THREAD},
    ],
}


def write_sqlite(path: Path) -> Path:
    with sqlite3.connect(path) as database:
        for table, rows in TABLES.items():
            names = list(rows[0])
            database.execute(f'CREATE TABLE "{table}" ({", ".join(names)})')
            places = ", ".join("?" for _ in names)
            database.executemany(f'INSERT INTO "{table}" VALUES ({places})', [tuple(row.values()) for row in rows])
    database.close()
    return path


def write_folder(folder: Path, kind: str) -> Path:
    folder.mkdir()
    for table, rows in TABLES.items():
        read = pa.Table.from_pylist(rows)
        if kind == "parquet":
            pq.write_table(read, folder / f"{table}.parquet")
            continue
        make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with pa.OSFile(str(folder / f"{table}.arrow"), "wb") as file, make(file, read.schema) as writer:
            writer.write_table(read)
    return folder


def check(report: DeviceReport) -> None:
    """9,000 ns: 3.5 µs computing, 2.5 communication that it does not hide, 0.5 copies, 2.5 idle until and after a launch at 7.1."""
    assert (report.gpu_span_us, report.busy_us, report.compute_us, report.comm_exposed_us) == (9, 6.5, 3.5, 2.5)
    assert (report.memcpy_exposed_us, report.idle_host_us, report.idle_launch_us) == (0.5, 1.6, 0.9)
    assert report.accelerator == "NVIDIA H100 80GB HBM3"
    assert report.idle_by_cause_us["data"] == 1.05
    assert "Memcpy HtoD (Pageable -> Device)" in [kernel.name for kernel in report.top_kernels]


@pytest.mark.parametrize("kind", ["sqlite", "packed", "parquet", "file", "stream"])
def test_every_form_says_the_same(tmp_path: Path, kind: str) -> None:
    """A database, a packed one, Parquet and both kinds of Arrow files hold the same capture."""
    path = tmp_path / "export"
    if kind in ("sqlite", "packed"):
        write_sqlite(path)
        if kind == "packed":
            path.write_bytes(gzip.compress(path.read_bytes()))
    else:
        write_folder(path, kind)
    (report,) = diagnose_captures(read_trace(path)).traces
    check(report)


def test_a_database_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    """Nothing appears beside a database, and it stays as it was."""
    path = write_sqlite(tmp_path / "export.sqlite")
    before = path.read_bytes()
    check(diagnose_captures(read_trace(path)).traces[0])
    assert [file.name for file in tmp_path.iterdir()] == ["export.sqlite"]
    assert path.read_bytes() == before


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(kind: int, at_ps: int, length_ps: int, correlation: int = 0) -> bytes:
    stat = field(4, field(1, 1) + field(3, correlation)) if correlation else b""
    return field(4, field(1, kind) + field(2, at_ps) + field(3, length_ps) + stat)


def line(number: int, name: str, *events: bytes, at_ns: int = 1000) -> bytes:
    return field(3, field(1, number) + field(2, name) + field(3, at_ns) + b"".join(events))


def plane(name: str, kinds: dict[int, str], *lines: bytes) -> bytes:
    """A plane whose events are of these kinds; statistic 1 is the correlation number."""
    named = b"".join(field(4, field(1, key) + field(2, field(1, key) + field(2, text))) for key, text in kinds.items())
    return field(
        1,
        field(2, name)
        + b"".join(lines)
        + named
        + field(5, field(1, 1) + field(2, field(1, 1) + field(2, "correlation_id"))),
    )


GPU = plane(
    "/device:GPU:0",
    {1: "gemm", 2: "MemcpyH2D", 3: "ncclDevKernel_AllReduce", 4: "7"},
    line(17, "Stream #17(Kernel)", event(1, 0, 5_000_000, 1), event(3, 12_000_000, 3_000_000, 2)),
    line(18, "Stream #18(MemcpyH2D)", event(2, 6_000_500, 1_000_000)),
    line(-559038737, "Steps", event(4, 0, 15_000_000)),
    line(-559038734, "XLA Ops", event(1, 0, 15_000_000)),
)
HOST = plane(
    "/host:CPU",
    {1: "cuLaunchKernel", 2: "IteratorGetNext"},
    line(5, "main", event(1, 10_000_000, 500_000, 2), event(2, 7_500_000, 2_000_000)),
)


def test_streams_count_and_derived_lines_do_not(tmp_path: Path) -> None:
    """15 µs: 5 computing, 1 copy, 3 communication, 6 idle; the collective's launch at 10 µs came 3 µs after the copy's end."""
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(GPU + HOST + field(4, "host-1"))
    (report,) = diagnose_captures(read_trace(path)).traces
    assert report.device == "/device:GPU:0"
    assert (report.gpu_span_us, report.busy_us, report.compute_us, report.comm_exposed_us) == (15, 9, 5, 3)
    assert report.memcpy_exposed_us == 1
    assert (report.idle_host_us, report.idle_launch_us, report.idle_unknown_us) == pytest.approx(
        (2.999, 2, 1.001), abs=0.002
    )
    assert report.idle_by_cause_us["data"] == 2
    assert [step.step for step in report.steps] == ["step 7"]


def test_copies_of_older_profilers_are_copies(tmp_path: Path) -> None:
    """TensorFlow's older profiler calls a copy after its operation: the stream says what it is of, or a statistic of the event."""
    details = field(4, field(1, 2) + field(5, "size:4096 dest:0 async:1"))
    copy = field(4, field(1, 2) + field(2, 7_000_000) + field(3, 2_000_000) + details)
    lines = (
        line(17, "Stream #17(Compute,MemcpyD2D)", event(1, 0, 5_000_000), copy),
        line(18, "Stream #18(MemcpyH2D)", event(2, 20_000_000, 1_000_000)),
    )
    statistic = field(5, field(1, 2) + field(2, field(1, 2) + field(2, "memcpy_details")))
    older = plane("/device:GPU:0", {1: "MatMul", 2: "gradients/Transpose"}, *lines)
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(field(1, field(2, "/device:GPU:0") + older[older.index(b"\x1a") :] + statistic))
    (capture,) = read_trace(path)
    assert [GpuKind(kind).name for kind in capture.gpu.kind] == ["COMPUTE", "MEMCPY", "MEMCPY"]


def test_a_plane_that_was_text_is_named(tmp_path: Path) -> None:
    """Bytes that were read as text and written again are told from other damage."""
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(((GPU + HOST) * 30).decode("utf-8", "replace").encode())
    with pytest.raises(SourceError, match="copy it in binary"):
        list(read_trace(path))
