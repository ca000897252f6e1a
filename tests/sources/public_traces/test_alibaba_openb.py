"""The openb trace, compared with a calculation straight from its two CSVs."""

import csv
import gzip
from pathlib import Path

import pytest
from tests.sources.reading import read

from loadfactor.base.errors import SourceError
from loadfactor.sources.public_traces.alibaba_openb import SOURCE, START_MS

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
    got = read(SOURCE, folder)

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
    found = set(read(SOURCE, shared / "data" / "jobs").tables["devices"]["accelerator"].to_pylist())
    assert {"t4", "a10", "p100-sxm", "v100-sxm", "V100M16", "G2", "G3"} == found


def test_a_tiny_cluster(tmp_path: Path) -> None:
    """Two GPUs for 100 s, half a GPU held for 80 s, one pod that never started, one without a GPU."""
    (tmp_path / "openb_node_list_x.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_y.csv").write_text(PODS)
    got = read(SOURCE, tmp_path)
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
        read(SOURCE, tmp_path)
    assert says in str(caught.value)
