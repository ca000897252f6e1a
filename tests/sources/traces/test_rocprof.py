"""AMD's captures in each form say the same, and files of profilers that cannot be read say what to record instead.

Shapes: the schema of rocpd (ROCm/rocm-systems rocprofiler-sdk share/rocprofiler-sdk-rocpd), results.json of rocprofv3
as TraceLens and rocprof-compute read it (AMD-AGI/TraceLens, ROCm/rocm-systems), rpd (ROCm/rocmProfileData); figures made up.
"""

import json
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from loadfactor.base.errors import SourceError
from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.sources.traces.read import read_trace
from loadfactor.tables.trace_events import GpuKind

GUID = "_00005a1b_7e21_7d3c"
KERNELS = [(1000 + 100 * k, 1060 + 100 * k, 7, 10 + k) for k in range(8)]  # start, end, kernel, stack
LAUNCHES = [(970 + 100 * k, 980 + 100 * k, 10 + k) for k in range(8)]
COPY = (1900, 1950, 4096, 30)  # start, end, bytes, stack
STEPS = [(960, 1370), (1370, 1760), (1760, 1990)]


def write_rocpd(path: Path) -> Path:
    """The tables of a process that rocprofv3 writes, as far as they are read, with names that end in its GUID."""
    database = sqlite3.connect(path)

    def table(name: str, columns: str, rows: Sequence[tuple[object, ...]]) -> None:
        database.execute(f'CREATE TABLE "rocpd_{name}{GUID}" ({columns})')
        database.executemany(
            f'INSERT INTO "rocpd_{name}{GUID}" VALUES ({",".join("?" * len(columns.split(",")))})', rows
        )

    table(
        "string",
        "id, string",
        [(1, "hipLaunchKernel"), (2, "MEMORY_COPY_HOST_TO_DEVICE"), (3, "step 1"), (4, "step 2"), (5, "step 3")],
    )
    table("info_kernel_symbol", "id, kernel_name, display_name", [(7, "_Z3add", "add(float*)")])
    agents = [(1, "CPU", 0, "EPYC", "EPYC"), (2, "GPU", 0, "gfx942", "AMD Instinct MI300X")]
    table("info_agent", "id, type, type_index, name, product_name", agents)
    stacks = [*(stack for *_, stack in KERNELS), *(stack for *_, stack in LAUNCHES), COPY[3], 0, 0, 0]
    table("event", "id, stack_id", [(number, stack) for number, stack in enumerate(stacks, 1)])
    dispatches = [(k, start, end, kernel, 2, 5, k) for k, (start, end, kernel, _) in enumerate(KERNELS, 1)]
    table("kernel_dispatch", "id, start, end, kernel_id, agent_id, stream_id, event_id", dispatches)
    table(
        "memory_copy",
        "id, start, end, name_id, dst_agent_id, src_agent_id, stream_id, size, event_id",
        [(1, *COPY[:2], 2, 2, 1, 5, COPY[2], 17)],
    )
    regions: list[tuple[object, ...]] = [
        (k, start, end, 1, 1000, 8 + k) for k, (start, end, _) in enumerate(LAUNCHES, 1)
    ]
    regions += [(20 + k, *step, 3 + k, 1000, 18 + k) for k, step in enumerate(STEPS)]
    table("region", "id, start, end, name_id, tid, event_id", regions)
    database.commit()
    database.close()
    return path


def write_rpd(path: Path) -> Path:
    """The tables of rpd."""
    database = sqlite3.connect(path)
    database.executescript(
        "CREATE TABLE rocpd_string (id, string); CREATE TABLE rocpd_op (id, gpuId, queueId, start, end, description_id, opType_id);"
        "CREATE TABLE rocpd_api (id, pid, tid, start, end, apiName_id); CREATE TABLE rocpd_api_ops (id, api_id, op_id);"
        "INSERT INTO rocpd_string VALUES (1, 'hipLaunchKernel'), (2, 'CopyHostToDevice'), (3, 'step 1'), (4, 'step 2'),"
        "  (5, 'step 3'), (6, 'KernelExecution'), (7, 'add(float*)'), (8, '');"
    )
    operations = [(k, 0, 5, start, end, 7, 6) for k, (start, end, *_) in enumerate(KERNELS, 1)]
    database.executemany("INSERT INTO rocpd_op VALUES (?, ?, ?, ?, ?, ?, ?)", [*operations, (9, 0, 5, *COPY[:2], 8, 2)])
    calls = [(k, 1, 1000, start, end, 1) for k, (start, end, _) in enumerate(LAUNCHES, 1)]
    calls += [(20 + k, 1, 1000, *step, 3 + k) for k, step in enumerate(STEPS)]
    database.executemany("INSERT INTO rocpd_api VALUES (?, ?, ?, ?, ?, ?)", calls)
    database.executemany("INSERT INTO rocpd_api_ops VALUES (?, ?, ?)", [(k, k, k) for k in range(1, 9)])
    database.commit()
    database.close()
    return path


def make_json() -> str:
    """results.json of rocprofv3."""

    def record(start: int, end: int, kind: int, operation: int, stack: int, **more: object) -> dict[str, object]:
        times = {"start_timestamp": start, "end_timestamp": end, "thread_id": 1000}
        return {**times, "kind": kind, "operation": operation, "correlation_id": {"internal": stack}, **more}

    where: dict[str, Any] = {"kernel_id": 7, "agent_id": {"handle": 22}}
    kernels = [record(s, e, 3, 0, stack, stream_id={"handle": 5}, dispatch_info=where) for s, e, _, stack in KERNELS]
    ends: dict[str, Any] = {
        "dst_agent_id": {"handle": 22},
        "src_agent_id": {"handle": 11},
        "bytes": COPY[2],
        "stream_id": {"handle": 5},
    }
    tool = {
        "metadata": {"pid": 1},
        "agents": [
            {"id": {"handle": 11}, "type": 1, "name": "EPYC", "node_id": 0},
            {
                "id": {"handle": 22},
                "type": 2,
                "name": "gfx942",
                "product_name": "AMD Instinct MI300X",
                "logical_node_type_id": 0,
            },
        ],
        "kernel_symbols": [{"kernel_id": 7, "formatted_kernel_name": "add(float*)"}],
        "strings": {
            "buffer_records": [
                {"kind": 1, "operations": ["hipLaunchKernel"]},
                {"kind": 2, "operations": ["MEMORY_COPY_HOST_TO_DEVICE"]},
                {"kind": 4, "operations": ["step 1", "step 2", "step 3"]},
            ]
        },
        "buffer_records": {
            "kernel_dispatch": kernels,
            "memory_copy": [record(*COPY[:2], 2, 0, COPY[3], **ends)],
            "hip_api": [record(s, e, 1, 0, stack) for s, e, stack in LAUNCHES],
            "marker_api": [record(*step, 4, k, 0) for k, step in enumerate(STEPS)],
        },
    }
    return json.dumps({"rocprofiler-sdk-tool": [tool]})


def write_json(path: Path) -> Path:
    path.write_text(make_json())
    return path


@pytest.mark.parametrize(
    ("write", "name"), [(write_rocpd, "1_results.db"), (write_rpd, "trace.rpd"), (write_json, "1_results.json")]
)
def test_every_form_says_the_same(tmp_path: Path, write: object, name: str) -> None:
    """Eight kernels of 60 ns, each 20 ns after its call, a copy behind a gap of 140 ns that nobody launched; three steps."""
    (capture,) = read_trace(write(tmp_path / name))  # type: ignore[operator]
    kinds = [GpuKind(kind).name for kind in capture.gpu.kind]
    assert kinds == ["COMPUTE"] * 8 + ["MEMCPY"]
    assert {capture.names[number] for number in capture.gpu.name[:8]} == {"add(float*)"}
    assert [capture.host.start_ns[row] for row in capture.gpu.launch[:8]] == [start for start, *_ in LAUNCHES]
    assert [step.name for step in capture.steps] == ["step 1", "step 2", "step 3"]
    (report,) = diagnose_captures([capture]).traces
    assert (report.device, report.kernels, report.copies) == (0, 8, 1)
    assert (report.compute_us, report.memcpy_us, report.gpu_span_us) == (0.48, 0.05, 0.95)
    assert (report.idle_host_us, report.idle_launch_us, report.idle_unknown_us) == (0.07, 0.21, 0.14)
    assert report.accelerator in ("AMD Instinct MI300X", "" if name.endswith("rpd") else "AMD Instinct MI300X")


PERFETTO = b"\x0a\x05\x40\x80\x02\x50\x01" * 3  # TracePacket{timestamp=8, trusted_packet_sequence_id=10}
REFUSED = [
    ("a.pftrace", PERFETTO, "traceconv json a.pftrace"),
    ("whatever.pb", PERFETTO, "Perfetto"),
    ("host.overview_page.pb", b"\x0a\x03abc", r"xprof's overview_page .*xplane\.pb"),
    ("ALL_HOSTS.op_stats.pb", b"\x0a\x03abc", "xprof's op_stats"),
    ("memory_profile.json", b"{}", "xprof's memory_profile"),
    ("x.json", b'[{"cols": [{"id": "rank"}], "rows": []}]', "table of a tool of xprof"),
    ("kernel_trace.csv", b'"Kind","Agent_Id","Queue_Id"\n', "rocprofv3 --hip-trace"),
    ("results.csv", b'"Index","KernelName","gpu-id"\n', "rocprofv3 --hip-trace"),
    ("results.json", b'{"traceEvents":[{"args":{"BeginNs":"1","EndNs":"2"},"ph":"X"}]}', "before ROCm 6"),
    ("1_results.json", b'{"rocprofiler-sdk-tool": [{"metadata"', "no whole JSON of rocprofv3"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "said"), REFUSED, ids=[name for name, *_ in REFUSED])
def test_what_cannot_be_read_says_what_to_record(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    """Other files of profilers are named, with the file or the command that gives what is needed, in one line."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=said) as refused:
        list(read_trace(tmp_path / name))
    assert "\n" not in str(refused.value)


def test_damaged_captures_are_read_or_refused(tmp_path: Path) -> None:
    """Databases and JSON with bytes changed, cut and doubled are read, or refused in one line."""
    seeds = [
        write_rocpd(tmp_path / "a.db").read_bytes(),
        write_rpd(tmp_path / "b.rpd").read_bytes(),
        make_json().encode(),
    ]
    refused = []
    for number in range(120):
        chance = random.Random(number)
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, 8)):
            at, what = chance.randrange(len(data)), chance.randrange(3)
            if what == 0:
                data[at] = chance.randrange(256)
            elif what == 1:
                data[at : at + 8] = bytes(chance.choice(b'0123456789-e.{}[]",\0\xff') for _ in range(8))
            else:
                del data[at : at + chance.randrange(40)]
        path = tmp_path / f"{number}.db"
        path.write_bytes(data)
        try:
            diagnose_captures(read_trace(path))
        except SourceError as error:
            refused.append(str(error))
    assert not [said for said in refused if "\n" in said]
