"""What kube-state-metrics told, saved as a page or as an answer of Prometheus, gives the rows of the objects it is of."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

import pytest
from tests.sources.kubernetes.objects import at, ms

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.prometheus.query_answers import decode_answers
from loadfactor.store.row_checks import validate_rows

Series = tuple[str, dict[str, str], float]
STEP_H = 0.25
LABELS = {"label_nvidia_com_gpu_product": "NVIDIA-H100-80GB-HBM3", "label_nvidia_com_gpu_count": "8"}


def tell_node(name: str, ready: bool = True, gpus: int = 8, **labels: str) -> Iterator[Series]:
    """The series of a node, as kube-state-metrics writes them."""
    yield "kube_node_info", {"node": name, "kubelet_version": "v1.31.4"}, 1
    yield "kube_node_created", {"node": name}, ms(-100) / 1000
    yield "kube_node_labels", {"node": name, **(labels or LABELS)}, 1
    yield "kube_node_spec_unschedulable", {"node": name}, 0
    for status in ("true", "false", "unknown"):
        yield (
            "kube_node_status_condition",
            {"node": name, "condition": "Ready", "status": status},
            status == ("true" if ready else "unknown"),
        )
    for kind in ("capacity", "allocatable"):
        yield f"kube_node_status_{kind}", {"node": name, "resource": "nvidia_com_gpu", "unit": "integer"}, gpus
        yield f"kube_node_status_{kind}", {"node": name, "resource": "cpu", "unit": "core"}, 192


def tell_pod(
    name: str, phase: str = "Running", gpus: float = 4, node: str = "n1", uid: bool = True, **more: Any
) -> Iterator[Series]:
    """The series of a pod of team-a that was bound at hour 1."""
    of = {"namespace": more.get("namespace", "team-a"), "pod": name}
    all_of = of | ({"uid": f"uid-{name}"} if uid else {})
    yield (
        "kube_pod_info",
        {**of, "uid": f"uid-{name}", "node": node, "created_by_kind": "Job", "created_by_name": "train"},
        1,
    )
    yield "kube_pod_owner", {**all_of, "owner_kind": "Job", "owner_name": "train", "owner_is_controller": "true"}, 1
    yield "kube_pod_labels", {**all_of, "label_experiment": "e1", "label_kueue_x_k8s_io_queue_name": "q"}, 1
    yield "kube_pod_created", all_of, ms(0.5) / 1000
    for other in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
        yield "kube_pod_status_phase", {**all_of, "phase": other}, other == phase
    for kind in ("requests", "limits"):
        asks = {
            **all_of,
            "container": "main",
            "node": node,
            "resource": more.get("resource", "nvidia_com_gpu"),
            "unit": "integer",
        }
        yield f"kube_pod_container_resource_{kind}", asks, gpus
        yield f"kube_pod_container_resource_{kind}", {**asks, "resource": "memory", "unit": "byte"}, 1e9
    if node:
        yield "kube_pod_status_scheduled_time", all_of, ms(1) / 1000
        yield "kube_pod_start_time", all_of, ms(1) / 1000
    else:
        yield "kube_pod_status_unschedulable", all_of, 1
    if more.get("ended"):
        yield "kube_pod_completion_time", all_of, ms(more["ended"]) / 1000


def tell(hour: float) -> Iterator[Series]:
    """The cluster at an hour: one pod runs on, one ends at 3.1, one is deleted after 3.5, one waits; n2 is down from 2 to 3."""
    yield from tell_node("n1")
    yield from tell_node("n2", ready=not 2 <= hour < 3)
    yield (
        "kube_job_owner",
        {"namespace": "team-a", "job_name": "train", "owner_kind": "CronJob", "owner_name": "nightly"},
        1,
    )
    yield from tell_pod("on")
    yield from tell_pod("done", "Succeeded" if hour > 3.1 else "Running", 2, "n2", ended=3.1 if hour > 3.1 else 0)
    if hour <= 3.5:
        yield from tell_pod("gone", gpus=1, resource="nvidia_com_mig_3g_40gb", node="n2")
    yield from tell_pod("waits", "Pending", 8, "")
    yield from tell_pod("web", gpus=0, namespace="shop", resource="cpu")


HOURS = [1 + STEP_H * number for number in range(13)]  # until 4


def write_answer(
    hours: Iterable[float] = HOURS, told: Callable[[float], Iterable[Series]] = tell, **exporter: str
) -> bytes:
    """An answer of query_range of these hours."""
    series: dict[str, list[list[Any]]] = {}
    for hour in hours:
        for name, labels, value in told(hour):
            key = json.dumps({"__name__": name, **labels, **exporter, "job": "kube-state-metrics"})
            series.setdefault(key, []).append(
                [ms(hour) / 1000, f"{float(value):g}" if value < 1e6 else repr(float(value))]
            )
    result = [{"metric": json.loads(key), "values": values} for key, values in series.items()]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def write_page(hour: float) -> str:
    """The page of the exporter at an hour."""
    written = []
    for name, labels, value in tell(hour):
        inside = ",".join(f'{k}="{v}"' for k, v in labels.items())
        written.append(
            f"# TYPE {name} gauge\n{name}{{{inside}}} {float(value):g}\n"
            if value < 1e6
            else f"{name}{{{inside}}} {value!r}\n"
        )
    return "".join(written)


def decode(*files: bytes, name: str = "ksm.json", **options: Any) -> tuple[dict[str, list[dict[str, Any]]], list[Gap]]:
    """Rows by table as they enter the books, and gaps."""
    rows: dict[str, list[dict[str, Any]]] = {}
    gaps: list[Gap] = []
    inputs = [Input(name, [data], name) for data in files]
    for item in decode_answers(inputs, ReadOptions(**options)):
        if isinstance(item, Rows):
            rows.setdefault(item.table, []).extend(validate_rows(item, len(rows.get(item.table, ()))).to_pylist())
        else:
            gaps.append(item)
    return rows, gaps


def holds(rows: dict[str, list[dict[str, Any]]]) -> dict[str, tuple[Any, ...]]:
    """What each pod held: GPUs, share, node, from, to and how it ended."""
    columns = ("gpus", "share", "node", "from_utc", "to_utc", "end_state")
    return {row["job_id"]: tuple(row.get(column) for column in columns) for row in rows["allocations"]}


TRUE = {
    "team-a/on": (4, None, "n1", ms(1), ms(4), "running"),
    "team-a/done": (2, None, "n2", ms(1), ms(3.1), "completed"),
    "team-a/gone": (1, pytest.approx(3 / 7), "n2", ms(1), ms(3.5), "cancelled"),
}


def test_an_answer_says_who_held_what_and_which_nodes_were_down() -> None:
    """Holds from when pods were bound to their ends, by owner and label; GPUs of nodes by their capacity; outages; who waits."""
    rows, gaps = decode(write_answer())
    assert holds(rows) == TRUE
    (on,) = (row for row in rows["allocations"] if row["job_id"] == "team-a/on")
    tags = json.loads(on["tags"])
    assert (on["team"], on["queue"], tags["owner"], tags["label.experiment"]) == (
        "team-a",
        "q",
        "CronJob/nightly",
        "e1",
    )
    assert {row["node"]: sum(r["node"] == row["node"] for r in rows["devices"]) for row in rows["devices"]} == {
        "n1": 8,
        "n2": 8,
    }
    assert {row["accelerator"] for row in rows["devices"]} == {"h100-sxm"}
    (outage,) = rows["outages"]
    assert (outage["node"], outage["from_utc"], outage["to_utc"]) == ("n2", ms(2), ms(3))
    assert [(row["job_id"], row["event"], row["reason"]) for row in rows["queue_events"]] == [
        ("team-a/waits", "submitted", "Unschedulable")
    ]
    assert [gap.what for gap in gaps if "still held" in gap.what]


@pytest.mark.parametrize("kind", ["shuffled", "doubled", "renamed", "parts", "BOM", "no uid", "export"])
def test_the_same_however_it_was_saved(kind: str) -> None:
    """Series in any order, twice, with exported_ labels, in two files, as VictoriaMetrics exports it."""
    answer = json.loads(write_answer())
    result = answer["data"]["result"]
    if kind == "shuffled":
        Random(1).shuffle(result)
    elif kind == "doubled":
        result += result
    elif kind == "renamed":
        for one in result:
            own = {
                f"exported_{k}": v
                for k, v in one["metric"].items()
                if k in ("namespace", "pod", "node", "uid", "container")
            }
            named = {k: v for k, v in one["metric"].items() if f"exported_{k}" not in own}
            one["metric"] = (
                named | own | {"namespace": "monitoring", "pod": "ksm-0", "node": "n9", "container": "ksm", "uid": "u"}
            )
    elif kind == "no uid":
        for one in result:
            if one["metric"]["__name__"] != "kube_pod_info":
                one["metric"].pop("uid", None)
    files = [json.dumps(answer).encode()]
    if kind == "parts":
        files = [write_answer(HOURS[:6]), write_answer(HOURS[6:])]
    elif kind == "BOM":
        files = [b"\xef\xbb\xbf" + files[0]]
    elif kind == "export":
        lines = [
            {
                "metric": one["metric"],
                "values": [float(v) for _, v in one["values"]],
                "timestamps": [round(t * 1000) for t, _ in one["values"]],
            }
            for one in result
        ]
        files = ["\n".join(map(json.dumps, lines)).encode()]
    assert holds(decode(*files)[0]) == TRUE


def test_pages_one_after_the_other() -> None:
    """Pages with their times give what an answer gives; CRLF too; one page alone says what is held now, with --at."""
    pages = "".join(f"# {at(hour)}\n{write_page(hour)}" for hour in HOURS)
    for text in (pages, pages.replace("\n", "\r\n")):
        assert holds(decode(text.encode(), name="ksm.prom")[0]) == TRUE
    stepped = "".join(map(write_page, HOURS)).encode()
    assert holds(decode(stepped, name="ksm.prom", at_ms=ms(1), step_s=STEP_H * 3600)[0]) == TRUE
    alone, _ = decode(write_page(2).encode(), name="ksm.prom", at_ms=ms(2))
    assert {job: hold[3:5] for job, hold in holds(alone).items()} == {
        f"team-a/{pod}": (ms(1), ms(2)) for pod in ("on", "done", "gone")
    }
    with pytest.raises(SourceError, match=r"ksm\.prom: a page of metrics without its time; --at"):
        decode(write_page(2).encode(), name="ksm.prom")
    with pytest.raises(SourceError, match="in the middle of a line"):
        decode(pages[:-9].encode(), name="ksm.prom")


def test_an_instant_query_is_one_moment() -> None:
    """resultType vector: one sample of each series."""
    answer = json.loads(write_answer([2]))
    answer["data"] = {
        "resultType": "vector",
        "result": [{"metric": one["metric"], "value": one["values"][0]} for one in answer["data"]["result"]],
    }
    assert holds(decode(json.dumps(answer).encode())[0])["team-a/on"] == (4, None, "n1", ms(1), ms(2), "running")


def test_a_name_that_comes_again_is_another_pod() -> None:
    """A pod of a StatefulSet that was replaced has another uid: two holds, the first until it was seen last."""

    def told(hour: float) -> Iterator[Series]:
        yield from tell_node("n1")
        for name, labels, value in tell_pod("db-0"):
            second = hour > 2
            if second and "uid" in labels:
                labels = {**labels, "uid": "second"}
            yield name, labels, ms(2.2) / 1000 if second and name.endswith(("_time", "_created")) else value

    rows, _ = decode(write_answer(HOURS, told))
    spans = sorted((row["from_utc"], row["to_utc"]) for row in rows["allocations"])
    assert spans == [(ms(1), ms(2)), (ms(2.2), ms(4))]


def test_clusters_are_kept_apart() -> None:
    """Series of two clusters with the same names are two sets of rows, told apart by tag."""
    rows, _ = decode(write_answer(cluster="a"), write_answer(cluster="b"))
    assert {json.loads(row["tags"])["cluster"] for row in rows["allocations"]} == {"a", "b"}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_any_damage_is_one_line_or_rows(seed: int) -> None:
    """Bytes that are lost, doubled or changed, and names that are hostile: no traceback, and never more GPUs than were held."""
    random, whole = Random(seed), "".join(f"# {at(hour)}\n{write_page(hour)}" for hour in HOURS[:4])
    for _ in range(12):
        lines = whole.splitlines(keepends=True)
        for _ in range(random.randrange(1, 20)):
            place = random.randrange(len(lines))
            lines[place] = random.choice(
                [
                    "",
                    lines[place] * 2,
                    lines[place][: len(lines[place]) // 2] + "\n",
                    re.sub(r"team-a", "../\\\\x00é\\n", lines[place]),
                ]
            )
        try:
            rows, _ = decode("".join(lines).encode(), name="ksm.prom")
        except SourceError:
            continue
        for row in rows.get("allocations", ()):
            assert row["gpus"] <= 8
            assert row["to_utc"] <= ms(4)


def test_a_page_of_node_exporter() -> None:
    """Two pages give what the node did between them; the file is called like its node."""

    def page(hour: float, total: float) -> str:
        cores = "".join(
            f'node_cpu_seconds_total{{cpu="0",mode="{mode}"}} {total * part:g}\n'
            for mode, part in (("idle", 0.25), ("user", 0.75))
        )
        return f"# {at(hour)}\n{cores}node_memory_MemTotal_bytes 4e9\nnode_memory_MemAvailable_bytes 1e9\n"

    rows, _ = decode((page(1, 100) + page(1.01, 136)).encode(), name="n1.prom")
    (sample,) = (row for row in rows["node_samples"] if row.get("cpu_busy_share") is not None)
    assert (sample["node"], sample["cpu_busy_share"], sample["mem_used_bytes"]) == ("n1", 0.75, 3e9)
