"""Published traces: requests stream in whole and in order, and the fleets of GenAI and openb are what a plain calculation says.

alibaba/clusterdata, cluster-trace-v2026-GenAI, and alibaba/clusterdata, cluster-trace-gpu-v2023.
"""

import csv
import gzip
import json
from collections import defaultdict
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from tests.sources.reading import read

import loadfactor
from loadfactor.base.errors import SourceError
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.public_traces.alibaba_genai import SOURCE
from loadfactor.sources.public_traces.alibaba_openb import SOURCE as OPENB
from loadfactor.sources.public_traces.alibaba_openb import START_MS
from loadfactor.sources.public_traces.request_traces import RequestChunk, TraceReport, read_requests


def azure(path: Path, *rows: str) -> Path:
    file = path / "azure.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return file


def whole(chunks: list[RequestChunk]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(np.concatenate([getattr(c, n) for c in chunks]) for n in ("at_ns", "prompt_tokens", "output_tokens"))  # type: ignore[return-value]


def test_azure_keeps_hundred_nanosecond_ticks(tmp_path: Path) -> None:
    """Times count from the first request, to the tick."""
    rows = ("2023-11-16 18:17:03.9799600,4808,10", "2023-11-16 18:17:04.0319600,110,27")
    at, prompts, outputs = whole(list(read_requests(azure(tmp_path, *rows))))
    assert (at.tolist(), prompts.tolist(), outputs.tolist()) == ([0, 52_000_000], [4808, 110], [10, 27])


def test_holes_are_counted_and_left_out(tmp_path: Path) -> None:
    """A row without a number is no request of 0 tokens: it is left out, counted, and its line named."""
    rows = ("00:00.0,100,10", "00:01.0,,10", "00:02.0,nan,5", "10:00.0,70,3")
    report = TraceReport()
    at, _, _ = whole(list(read_requests(azure(tmp_path, *(f"2023-11-16 18:{row}" for row in rows)), report)))
    assert at.size == report.requests == 2
    assert (report.unreadable, report.first_unreadable_line) == (2, 3)
    assert report.longest_gap_s == report.span_s == 600.0


def test_time_running_backwards_names_the_line(tmp_path: Path) -> None:
    """A trace that is not sorted is refused."""
    rows = ("2023-11-16 18:00:01.0,100,10", "2023-11-16 18:00:00.0,100,10")
    with pytest.raises(SourceError, match="line 3"):
        list(read_requests(azure(tmp_path, *rows)))


def test_mooncake_carries_prefix_blocks(tmp_path: Path) -> None:
    """Each request has its hashes, also when it is repeated to scale the trace up; the repetition comes later."""
    file = tmp_path / "mooncake.jsonl"
    sizes = {i: {"timestamp": 1000 * i, "input_length": 512 * i, "output_length": 5} for i in (1, 2, 3)}
    lines = [json.dumps(size | {"hash_ids": list(range(i))}) for i, size in sizes.items()]
    file.write_text("\n".join(lines), encoding="utf-8")
    report = TraceReport()
    (chunk,) = read_requests(file, report)
    assert chunk.offsets.tolist() == [0, 1, 3, 6]
    assert chunk.hashes.tolist() == [0, 0, 1, 0, 1, 2]
    assert report.block_tokens == 512
    doubled = list(read_requests(file, scale=2.0))
    at, prompts, _ = whole(doubled)
    assert sorted(prompts.tolist()) == [512, 512, 1024, 1024, 1536, 1536]
    assert (np.diff(at) >= 0).all()
    for part in doubled:
        assert (np.diff(part.offsets) == part.prompt_tokens // 512).all()


def test_servegen_population_follows_its_rates(tmp_path: Path) -> None:
    """Clients send at their window's rate; a window without a pattern is silent."""
    rates = "0,2.0,1.0,Gamma,1,1\n600,2.0,1.0,,,\n1200,4.0,1.0,Gamma,1,1\n"
    (tmp_path / "chunk-0-trace.csv").write_text(rates, encoding="utf-8")
    tokens = {"0": {"input_tokens": "{100: 0.5, 300: 0.5}", "output_tokens": "{20: 1.0}"}}
    (tmp_path / "chunk-0-dataset.json").write_text(json.dumps(tokens), encoding="utf-8")
    at, prompts, outputs = whole(list(read_requests(tmp_path)))
    windows = np.bincount(at // (600 * 10**9), minlength=3)
    assert windows[0] == pytest.approx(1200, rel=0.1)
    assert windows[1] == 0
    assert windows[2] == pytest.approx(2400, rel=0.1)
    assert set(prompts.tolist()) == {100, 300}
    assert set(outputs.tolist()) == {20}


def test_an_unknown_file_says_what_works(tmp_path: Path) -> None:
    """Anything else is refused with the formats that can be read."""
    file = tmp_path / "notes.txt"
    file.write_text("hello\n", encoding="utf-8")
    with pytest.raises(SourceError, match="Azure CSV"):
        read_requests(file)


def test_the_published_traces(shared: Path) -> None:
    """Azure's code service: 8,819 requests, mean 2,048 in and 27.9 out; Mooncake's first half hour: 5,719 requests."""
    folder = shared / "data" / "serving"
    _, prompts, outputs = whole(list(read_requests(folder / "AzureLLMInferenceTrace_code.csv.gz")))
    assert (prompts.size, round(prompts.mean()), round(outputs.mean(), 1)) == (8819, 2048, 27.9)
    report = TraceReport()
    chunks = read_requests(folder / "mooncake_conversation_trace_first30min.jsonl.gz", report)
    assert sum(c.at_ns.size for c in chunks) == 5719


DUTY = "value,timestamp_anon,container_ip\n"
T0 = 1_662_858_000  # seconds, as the trace writes times


def test_the_real_fleet_adds_up_to_the_checked_hours(shared: Path) -> None:
    """123 devices; 1342.0492 allocated, 1318.3625 observed, 148.9108 effective and 720.5908 idle GPU-hours."""
    got = read(SOURCE, shared / "data" / "utilization")
    devices = got.tables["devices"].to_pylist()
    allocations = got.tables["allocations"].to_pylist()
    assert len(devices) == len(allocations) == 123
    assert {(d["device_id"], d["from_utc"], d["to_utc"]) for d in devices} == {
        (a["device_id"], a["from_utc"], a["to_utc"]) for a in allocations
    }
    assert sum(a["to_utc"] - a["from_utc"] for a in allocations) / 3.6e6 == pytest.approx(1342.0492, abs=5e-5)
    series = defaultdict(list)
    for s in got.tables["samples"].select(["device_id", "to_utc", "busy_share"]).to_pylist():
        series[s["device_id"]].append((s["to_utc"], s["busy_share"]))
    steps = [b[0] - a[0] for rows in series.values() for a, b in zip(sorted(rows), sorted(rows)[1:], strict=False)]
    step = median(steps)
    assert step == 57_000
    observed = effective = idle = 0.0
    for rows in series.values():
        before = None
        for at, busy in sorted(rows):
            covered = step if before is None or at - before > 1.5 * step else at - before
            before = at
            observed += covered / 3.6e6
            effective += covered * busy / 3.6e6
            idle += covered / 3.6e6 if busy < 0.05 else 0.0
    assert observed == pytest.approx(1318.3625, abs=5e-5)
    assert effective == pytest.approx(148.9108, abs=5e-5)
    assert idle == pytest.approx(720.5908, abs=5e-5)


@pytest.mark.long
def test_memory_and_requests_of_the_real_fleet_match_the_files(shared: Path) -> None:
    """Memory is joined by pod and time, requests are rate × step; what has no place is counted as a gap."""
    folder = shared / "data" / "utilization"
    got = read(SOURCE, folder)

    def rows(part: str) -> list[dict[str, str]]:
        (path,) = folder.glob(f"*{part}*")
        with gzip.open(path, "rt") as file:
            return list(csv.DictReader(file))

    duty = {(r["container_ip"], round(float(r["timestamp_anon"]) * 1000)) for r in rows("pod_gpu_duty_cycle")}
    memory = {
        (r["container_ip"], round(float(r["timestamp_anon"]) * 1000)): float(r["value"])
        for r in rows("pod_gpu_memory_used_bytes")
    }
    samples = got.tables["samples"].select(["device_id", "to_utc", "mem_used_bytes"]).to_pylist()
    assert {(s["device_id"], s["to_utc"]) for s in samples} == duty
    assert all(s["mem_used_bytes"] == memory.get((s["device_id"], s["to_utc"])) for s in samples)
    served = sum(float(r["value"]) * 57 for r in rows("qps") if r["container_ip"])
    assert sum(got.tables["progress"]["amount"].to_pylist()) == pytest.approx(served)
    assert [g.count for g in got.gaps] == [len(memory.keys() - duty), sum(not r["container_ip"] for r in rows("qps"))]


def test_any_column_order_and_slice_suffix_is_read(tmp_path: Path) -> None:
    """Files are known by a part of their name, columns by theirs; duty cycle is percent of one."""
    (tmp_path / "x_pod_gpu_duty_cycle_anon_last3h.csv").write_text(
        f"container_ip,extra,timestamp_anon,value\na,z,{T0 + 100},50\na,z,{T0 + 110},100\na,z,{T0 + 120},0\n"
    )
    got = read(SOURCE, tmp_path)
    assert got.tables["samples"]["busy_share"].to_pylist() == [0.5, 1.0, 0.0]
    assert got.tables["devices"].select(["device_id", "from_utc", "to_utc", "pool"]).to_pylist() == [
        {"device_id": "a", "from_utc": (T0 + 90) * 1000, "to_utc": (T0 + 120) * 1000, "pool": "genai"}
    ]
    assert "memory in use is not known" in got.gaps[0].what


def test_a_pod_with_one_sample_is_seen_for_one_step_of_the_trace(tmp_path: Path) -> None:
    """A lone sample covers the step that the other pods show."""
    (tmp_path / "pod_gpu_duty_cycle.csv").write_text(
        DUTY + f"1,{T0 + 100},a\n1,{T0 + 110},a\n1,{T0 + 120},a\n9,{T0 + 115},b\n"
    )
    got = read(SOURCE, tmp_path)
    lone = got.tables["samples"].to_pylist()[-1]
    assert (lone["device_id"], lone["from_utc"], lone["to_utc"]) == ("b", (T0 + 105) * 1000, (T0 + 115) * 1000)
    assert got.tables["devices"].to_pylist()[-1]["from_utc"] == (T0 + 105) * 1000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (DUTY + "50%,100,a\n", "row 1: value '50%' is not a number"),
        (DUTY + "1,100,\n", "row 1: container_ip is empty"),
        (DUTY + "1,nan,a\n", "timestamp_anon holds a number that is no time"),
        (DUTY + "1,100,a\n", "no pod has two samples"),
        ("a,b\n1,2\n", "has no column container_ip"),
        (DUTY, "no rows"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    """What is wrong is said with the file, the row and the value."""
    (tmp_path / "pod_gpu_duty_cycle.csv").write_text(text)
    with pytest.raises(SourceError, match=r"pod_gpu_duty_cycle\.csv") as caught:
        read(SOURCE, tmp_path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_the_trace_says_what_was_looked_for(tmp_path: Path) -> None:
    """The part of the name that is missing is in the message."""
    with pytest.raises(SourceError, match=r"\*pod_gpu_duty_cycle\*"):
        read(SOURCE, tmp_path)


@pytest.mark.long
def test_the_real_fleet_answers_as_checked(shared: Path, tmp_path: Path) -> None:
    """From the trace through the books: hours, utilization and cost of the GenAI fleet at $2."""
    books = loadfactor.open(tmp_path / "books", create=True)
    books.add("alibaba-genai", [shared / "data" / "utilization"], options=ReadOptions(price_per_gpu_hour=2.0))
    wanted = {"allocated_gpu_hours": 1342.0492, "observed_gpu_hours": 1318.3625, "effective_gpu_hours": 148.9108}
    wanted |= {"idle_gpu_hours": 720.5908, "utilization": 0.112951, "cost": 2684.10}
    readings = {r.metric: r for r in books.show(list(wanted))}
    for metric, value in wanted.items():
        assert readings[metric].value == pytest.approx(value, abs=0.005 if metric == "cost" else 5e-5)
    assert readings["utilization"].coverage == pytest.approx(0.98235, abs=5e-6)


NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,1,1,2,T4\nn1,1,1,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,1,1,1,500,,LS,Running,10,100,20\np1,1,1,2,1000,,LS,Pending,30,90,\np2,1,1,0,0,,BE,Running,0,50,0\n"
)


def _rows(folder: Path, part: str) -> list[dict[str, str]]:
    (path,) = folder.glob(f"*{part}*")
    with gzip.open(path, "rt") as file:
        return list(csv.DictReader(file))


def test_the_real_trace_equals_an_independent_calculation(shared: Path) -> None:
    """Devices and paid hours from the node list; allocated GPU-hours, waits and censored waits from the pod list."""
    folder = shared / "data" / "jobs"
    nodes, pods = _rows(folder, "openb_node_list"), _rows(folder, "openb_pod_list")
    asking = [p for p in pods if int(p["num_gpu"])]
    started = [p for p in asking if p["scheduled_time"]]
    end = max(int(p[c]) for p in pods for c in ("creation_time", "deletion_time", "scheduled_time") if p[c])
    got = read(OPENB, folder)

    devices = got.tables["devices"]
    gpus = sum(int(n["gpu"]) for n in nodes)
    assert (devices.num_rows, end) == (gpus, 12_902_960) == (6212, 12_902_960)
    assert len(set(devices["device_id"].to_pylist())) == gpus
    paid = sum(d["to_utc"] - d["from_utc"] for d in devices.select(["from_utc", "to_utc"]).to_pylist()) / 3.6e6
    assert paid == pytest.approx(gpus * end / 3600, rel=1e-12)

    held = sum(
        (a["to_utc"] - a["from_utc"]) * a["gpus"] * a["share"] / 3.6e6 for a in got.tables["allocations"].to_pylist()
    )
    expected = sum(
        (int(p["deletion_time"]) - int(p["scheduled_time"])) * int(p["num_gpu"]) * int(p["gpu_milli"]) / 3.6e6
        for p in started
    )
    assert held == pytest.approx(expected, rel=1e-12)

    asked, began = {}, {}
    for e in got.tables["queue_events"].to_pylist():
        (asked if e["event"] == "submitted" else began)[e["job_id"]] = (e["at_utc"], e["gpus"])
    waits = sorted((began[j][0] - asked[j][0]) / 1000 for j in began)
    assert waits == sorted(int(p["scheduled_time"]) - int(p["creation_time"]) for p in started)
    assert {j: g for j, (_, g) in asked.items()} == {
        p["name"]: int(p["num_gpu"]) * int(p["gpu_milli"]) / 1000 for p in asking
    }
    assert len(asked) - len(began) == len(asking) - len(started) == 861
    assert [g.count for g in got.gaps] == [len(pods) - len(asking)] == [1088]


def test_accelerators_get_their_catalog_id_where_it_is_known(shared: Path) -> None:
    """T4 is in the catalog; G2 is Alibaba's own name and stays."""
    found = set(read(OPENB, shared / "data" / "jobs").tables["devices"]["accelerator"].to_pylist())
    assert {"t4", "a10", "p100-sxm", "v100-sxm", "V100M16", "G2", "G3"} == found


def test_a_tiny_cluster(tmp_path: Path) -> None:
    """Two GPUs for 100 s, half a GPU held for 80 s, one pod that never started, one without a GPU."""
    (tmp_path / "openb_node_list_x.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_y.csv").write_text(PODS)
    got = read(OPENB, tmp_path)
    assert got.tables["devices"].select(["device_id", "node", "from_utc", "to_utc"]).to_pylist() == [
        {"device_id": "n0/0", "node": "n0", "from_utc": START_MS, "to_utc": START_MS + 100_000},
        {"device_id": "n0/1", "node": "n0", "from_utc": START_MS, "to_utc": START_MS + 100_000},
    ]
    (held,) = got.tables["allocations"].to_pylist()
    assert (held["job_id"], held["gpus"], held["share"], held["device_id"]) == ("p0", 1.0, 0.5, None)
    assert (held["from_utc"], held["to_utc"], held["end_state"]) == (START_MS + 20_000, START_MS + 100_000, "Running")
    events = [(e["job_id"], e["event"], e["at_utc"] - START_MS) for e in got.tables["queue_events"].to_pylist()]
    assert events == [("p0", "submitted", 10_000), ("p1", "submitted", 30_000), ("p0", "started", 20_000)]
    assert [g.count for g in got.gaps] == [1]


@pytest.mark.parametrize(
    ("nodes", "pods", "says"),
    [
        (NODES, None, "*openb_pod_list*"),
        (NODES.replace("2,T4", "1e30,T4"), PODS, "something else than a number of GPUs"),
        (NODES, PODS.replace(",100,20", ",soon,20"), "row 1: deletion_time 'soon' is not a number"),
        (NODES, PODS.replace("500", "0.5k"), "row 1: gpu_milli '0.5k'"),
    ],
)
def test_a_damaged_trace_is_named_in_one_line(tmp_path: Path, nodes: str, pods: str | None, says: str) -> None:
    """What is wrong is said, and where."""
    (tmp_path / "openb_node_list.csv").write_text(nodes)
    if pods is not None:
        (tmp_path / "openb_pod_list.csv").write_text(pods)
    with pytest.raises(SourceError) as caught:
        read(OPENB, tmp_path)
    assert says in str(caught.value)
