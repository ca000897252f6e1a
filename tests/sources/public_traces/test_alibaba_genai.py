"""The GenAI trace: a real fleet, and small ones whose numbers can be checked by hand."""

import csv
import gzip
from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest
from tests.sources.reading import read

import loadfactor
from loadfactor.base.errors import SourceError
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.public_traces.alibaba_genai import SOURCE

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


def test_the_real_fleet_answers_as_checked(shared: Path, tmp_path: Path) -> None:
    """From the trace through the books: hours, utilization and cost of the GenAI fleet at $2."""
    books = loadfactor.open(tmp_path / "books", create=True)
    books.add("alibaba-genai", [shared / "data" / "utilization"], options=ReadOptions(price_per_gpu_hour=2.0))
    wanted = {
        "allocated_gpu_hours": 1342.0492,
        "observed_gpu_hours": 1318.3625,
        "effective_gpu_hours": 148.9108,
        "idle_gpu_hours": 720.5908,
        "utilization": 0.112951,
        "cost": 2684.10,
    }
    readings = {r.metric: r for r in books.show(list(wanted))}
    for metric, value in wanted.items():
        assert readings[metric].value == pytest.approx(value, abs=0.005 if metric == "cost" else 5e-5)
    assert readings["utilization"].coverage == pytest.approx(0.98235, abs=5e-6)
