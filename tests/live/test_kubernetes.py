"""A story of a cluster, watched by `loadfactor up` through cuts, 410 Gone and kill -9: every GPU-hour once, worked out by hand."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.live.fake_kubernetes import FakeKubernetes
from tests.live.up_process import UpProcess
from tests.sources.kubernetes.objects import Object, condition, container, ms, node, owned, owner, pod, workload
from tests.waiting import wait_until

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.collect.kubernetes_api import GONE, PODS, KubernetesApi, KubernetesError
from loadfactor.settings.sources import KubernetesCluster

SLICED = node("n1", 2, labels={"nvidia.com/gpu.replicas": "4"}, resources={"nvidia.com/gpu": "8"})
MIG = node("n2", 1, resources={"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"})
GPUS = {"hami.io/node-nvidia-register": "GPU-1,10,81920,100,H100,0,true:GPU-2,10,81920,100,H100,0,true:"}
HAMI = node("n3", 2, resources={"nvidia.com/gpu": "20"}, annotations=GPUS)
QUARTER = [container({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 25})]
SEVENTH = [container({"nvidia.com/mig-1g.10gb": 1})]
ALL = [container({"nvidia.com/gpu": 8})]
HALF = [container({"nvidia.com/gpu": 4})]
TWO = [container({"nvidia.com/gpu": 2})]
PENDING = condition("QuotaReserved", "False", 1, "Pending", "insufficient unused quota for nvidia.com/gpu")
EVICTED = condition("Evicted", "True", 4, "Preempted", "Preempted to accommodate a higher priority Workload")
HOURS = {
    "team-a/s1": 0.25 * 4,
    "team-a/s2": 0.25 * 2,
    "team-a/m": 7 / 7,
    "team-a/h": 0.25 * 4,
    "team-a/web-0": 8 * 2 + 8 * 2,  # on one node, and after it was deleted on another one
    "team-a/lost": 2 * 1.5,
    "team-a/train-0": 4 * 2,
    "team-a/train-1": 4 * 2,
    "team-a/train-2": 4 * 2,
    "team-a/train-3": 4 * 2,
    "team-a/unseen": 8 * 1,  # began and ended while nobody watched
}
WAITS = [
    ("team-a/late", "cancelled", None),
    ("team-a/late", "submitted", "Unschedulable: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu."),
    ("team-a/train", "requeued", "Preempted: Preempted to accommodate a higher priority Workload"),
    ("team-a/train", "started", None),
    ("team-a/train", "started", None),
    ("team-a/train", "submitted", "Pending: insufficient unused quota for nvidia.com/gpu"),
]


class Story:
    """Events of a cluster, chapter by chapter; every event is remembered."""

    def __init__(self, api: FakeKubernetes) -> None:
        self.api = api
        self.events: list[Object] = []
        self.train = owner("Job", "train", "job-train")

    def put(self, *objects: Object, silently: bool = False) -> None:
        self.events += [{"type": "MODIFIED", "object": one} for one in objects]
        self.api.put(*objects, silently=silently)

    def delete(self, *objects: Object, silently: bool = False) -> None:
        self.events += [{"type": "DELETED", "object": one} for one in objects]
        self.api.delete(*objects, silently=silently)

    def begin(self) -> None:
        """Before anybody watches."""
        self.put(SLICED, MIG, HAMI, node("n4"), node("n5"), node("n6"), owned("Job", "train", "job-train"))
        self.put(
            pod("s1", 0.5, bound=1, node="n1", uid="s1"), pod("m", 0.5, bound=1, node="n2", uid="m", containers=SEVENTH)
        )
        self.put(pod("web-0", 0.5, bound=1, node="n4", uid="a", containers=ALL))
        self.put(workload("train", 1, [PENDING], pods=2, gpus=4))

    def watch(self) -> Iterator[Callable[[], None]]:
        """Chapters that a watch sees; the watch is cut after each."""
        yield self._start
        yield self._move
        yield self._evict

    def _start(self) -> None:
        self.put(
            pod("s2", 1.5, bound=2, node="n1", uid="s2"), pod("h", 1, bound=2, node="n3", uid="h", containers=QUARTER)
        )
        self.put(
            workload(
                "train", 1, [condition("QuotaReserved", "True", 2), condition("Admitted", "True", 2)], pods=2, gpus=4
            )
        )
        for i in range(2):
            self.put(pod(f"train-{i}", 2, bound=2, node="n6", uid=f"t{i}", containers=HALF, owner=self.train))
        self.put(pod("late", 2, uid="late"))

    def _move(self) -> None:
        self.delete(
            pod("web-0", 0.5, bound=1, ended=3, phase="Running", node="n4", uid="a", containers=ALL, deleted=3.1)
        )
        self.put(pod("web-0", 3.2, bound=3.5, node="n5", uid="b", containers=ALL))
        self.put(pod("s2", 1.5, bound=2, ended=4, node="n1", uid="s2"))
        self.delete(pod("late", 2, uid="late", deleted=5))

    def _evict(self) -> None:
        self.put(workload("train", 1, [PENDING, EVICTED], pods=2, gpus=4))
        for i in range(2):
            killed = pod(f"train-{i}", 2, bound=2, node="n6", uid=f"t{i}", containers=HALF, owner=self.train, deleted=4)
            self.delete(killed)
        self.put(pod("web-0", 3.2, bound=3.5, ended=5.5, node="n5", uid="b", containers=ALL))
        self.put(pod("lost", 5, bound=5.5, node="n5", uid="lost", containers=TWO))

    def go_on_unseen(self) -> None:
        """While nobody watches, and too long ago to go on from."""
        silent = condition("Ready", "Unknown", 6, "NodeStatusUnknown")
        self.put(node("n5", ready=silent), silently=True)
        again = [
            condition("QuotaReserved", "True", 6),
            condition("Admitted", "True", 6),
            condition("Evicted", "False", 6),
        ]
        self.put(workload("train", 1, again, pods=2, gpus=4), silently=True)
        for i in (2, 3):
            ran = pod(f"train-{i}", 6, bound=6, ended=8, node="n6", uid=f"t{i}", containers=HALF, owner=self.train)
            self.put(ran, silently=True)
        self.put(pod("unseen", 7, bound=7, ended=8, node="n4", uid="u", containers=ALL), silently=True)
        collected = condition("DisruptionTarget", "True", 7, "DeletionByPodGC")
        gone = pod("lost", 5, bound=5.5, node="n5", uid="lost", containers=TWO, phase="Failed", conditions=[collected])
        self.put(gone, silently=True)
        self.api.forget_history()

    def end(self) -> None:
        """Watched again."""
        self.delete(node("n5", ready=condition("Ready", "Unknown", 6, "NodeStatusUnknown")))
        self.put(pod("s1", 0.5, bound=1, ended=5, node="n1", uid="s1"))
        self.put(pod("m", 0.5, bound=1, ended=8, node="n2", uid="m", containers=SEVENTH))
        self.put(pod("h", 1, bound=2, ended=6, node="n3", uid="h", containers=QUARTER))


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a table, without empty cells, in an order."""
    with Books(folder).snapshot() as snapshot:
        rows = snapshot.fetch(snapshot.view(name)).to_pylist()
    found = [{k: v for k, v in row.items() if v is not None} for row in rows]
    return sorted(found, key=lambda row: json.dumps(row, sort_keys=True, default=str))


def list_states(health: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["name"], one["status"]) for one in health["sources"]]


def wait_until_seen(up: UpProcess, api: FakeKubernetes) -> None:
    """Until everything that happened was told to those who watch, kept by them, and booked."""
    plurals = ("nodes", "pods", *(() if "workloads" in api.forbidden else ("workloads",)))
    wait_until(lambda: all(api.delivered.get(plural, 0) >= api.version for plural in plurals))
    told = datetime.now(UTC).isoformat()

    def is_kept(health: dict[str, Any]) -> bool:
        heard = {one["name"].rpartition(" ")[2]: one["last_sample"] or "" for one in health["sources"]}
        return all(heard.get(plural, "") > told for plural in plurals)

    up.wait_for_health(is_kept)
    up.wait_until_booked()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Story, dict[str, Any], int]]:
    """The books of the story, the story, the health of the server in its middle, and how often it was killed."""
    folder = tmp_path_factory.mktemp("kubernetes")
    with FakeKubernetes() as api:
        story, config = Story(api), folder / "loadfactor.toml"
        kubeconfig = api.write_kubeconfig(folder / "kubeconfig")
        config.write_text(f'[server]\nflush_every = "2s"\n[[kubernetes]]\nkubeconfig = "{kubeconfig}"\n')
        story.begin()
        up = UpProcess(folder / "books", config=config)
        with up:
            wait_until_seen(up, api)
            for chapter in story.watch():
                chapter()
                wait_until_seen(up, api)
                api.cut()
            wait_until_seen(up, api)
            health = up.wait_for_health(
                lambda said: said["status"] == "ok"
            )  # every watch that was cut is answered again
            up.kill()
            api.cut()
            story.go_on_unseen()
            up.start()
            wait_until_seen(up, api)
            story.end()
            wait_until_seen(up, api)
            assert up.stop() == 0
        yield folder, story, health, 1


@pytest.mark.long
def test_every_gpu_hour_counts_once(told: tuple[Path, Story, dict[str, Any], int]) -> None:
    """A pod that moved, parts of GPUs, a preempted gang, a lost node: as worked out by hand, whatever was cut or killed."""
    found: dict[str, float] = {}
    for row in rows_of(told[0] / "books", "allocations"):
        hours = row["gpus"] * row.get("share", 1) * (row["to_utc"] - row["from_utc"]) / MS_PER_HOUR
        found[row["job_id"]] = found.get(row["job_id"], 0) + hours
    assert found == pytest.approx(HOURS)


@pytest.mark.long
def test_ends_queues_and_outages(told: tuple[Path, Story, dict[str, Any], int]) -> None:
    """How each pod ended, who waited and why, and the node that went away."""
    ends = {row["job_id"]: row["end_state"] for row in rows_of(told[0] / "books", "allocations")}
    assert (ends["team-a/lost"], ends["team-a/train-0"], ends["team-a/train-2"]) == (
        "node_lost",
        "preempted",
        "completed",
    )
    events = rows_of(told[0] / "books", "queue_events")
    assert [
        (e["job_id"], e["event"], e.get("reason")) for e in sorted(events, key=lambda e: (e["job_id"], e["event"]))
    ] == WAITS
    assert all(e["gpus"] == 8 and e["queue"] == "research" for e in events if e["job_id"] == "team-a/train")
    (down,) = rows_of(told[0] / "books", "outages")
    assert (down["node"], down["from_utc"], down["reason"]) == ("n5", ms(6), "not ready (NodeStatusUnknown)")


@pytest.mark.long
def test_claimed_shares_never_exceed_a_node(told: tuple[Path, Story, dict[str, Any], int]) -> None:
    """At every instant, what pods claim of a node is at most its GPUs."""
    gpus = {"n1": 2, "n2": 1, "n3": 2, "n4": 8, "n5": 8, "n6": 8}
    rows = rows_of(told[0] / "books", "allocations")
    for at_ms in {row["from_utc"] for row in rows}:
        for name, there in gpus.items():
            held = [r for r in rows if r["node"] == name and r["from_utc"] <= at_ms < r["to_utc"]]
            assert sum(r["gpus"] * r.get("share", 1) for r in held) <= there


@pytest.mark.long
def test_an_api_that_is_not_there_is_said_and_stops_no_other(told: tuple[Path, Story, dict[str, Any], int]) -> None:
    """Claims of DRA are absent; pods and workloads are watched."""
    states = {one["name"]: one["status"] for one in told[2]["sources"]}
    assert states["kubernetes: resourceclaims"] == "absent"
    assert (states["kubernetes: pods"], states["kubernetes: workloads"]) == ("ok", "ok")
    assert told[2]["status"] == "ok"


@pytest.mark.long
def test_saved_objects_make_the_same_books(told: tuple[Path, Story, dict[str, Any], int]) -> None:
    """The same events, saved in a file and imported, are the same rows."""
    folder, story = told[0], told[1]
    (folder / "events.json").write_text("\n".join(map(json.dumps, story.events)))
    Books.open(folder / "imported", create=True).add("kubernetes", [folder / "events.json"])
    for name in ("allocations", "queue_events"):
        assert rows_of(folder / "imported", name) == rows_of(folder / "books", name)


@pytest.mark.long
def test_pods_that_vanish_unseen_end_when_they_were_seen_last(tmp_path: Path) -> None:
    """Deleted while nobody watched and nothing says when: held until the pods were last heard of, and said to have vanished."""
    with FakeKubernetes() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        config = tmp_path / "loadfactor.toml"
        config.write_text(f'[[kubernetes]]\nname = "prod"\nkubeconfig = "{kubeconfig}"\nlabels = "team=vision"\n')
        api.forbidden = {"workloads"}
        ghost = pod("ghost", 1, bound=2, node="n1", uid="g", labels={"team": "vision"})
        api.put(node("n1"), ghost, pod("other", 1, bound=2, node="n1", labels={"team": "nlp"}))
        began = time.time() * 1000
        with UpProcess(tmp_path / "books", config=config) as up:
            wait_until_seen(up, api)
            health = up.wait_for_health(lambda said: ("kubernetes prod: workloads", "failing") in list_states(said))
            up.kill()
            seen = time.time() * 1000
            api.cut()
            api.delete(ghost, silently=True)
            api.forget_history()
            up.start()
            wait_until_seen(up, api)
            up.stop()
        said = {one["name"]: one for one in health["sources"]}
        assert said["kubernetes prod: workloads"]["status"] == "failing"
        assert "docs/connect-kubernetes.md has the role" in said["kubernetes prod: workloads"]["error"]
        (row,) = rows_of(tmp_path / "books", "allocations")
        assert (row["job_id"], row["end_state"]) == ("team-a/ghost", "vanished")
        assert began - 1000 <= row["to_utc"] <= seen
        assert json.loads(row["tags"])["cluster"] == "prod"
        assert any("labelSelector=team%3Dvision" in path for path in api.requests)


def test_long_lists_come_in_pages(tmp_path: Path) -> None:
    """A list is asked for page by page, and begun again where its continuation has expired."""
    with FakeKubernetes() as api:
        api.put(*(pod(f"p{i:02}", 1, bound=2, node="n1") for i in range(25)))
        client = KubernetesApi(KubernetesCluster(kubeconfig=api.write_kubeconfig(tmp_path / "kubeconfig")))
        first = client.list_page(PODS, limit=10)
        assert len(first["items"]) == 10
        second = client.list_page(PODS, first["metadata"]["continue"], 10)
        third = client.list_page(PODS, second["metadata"]["continue"], 10)
        assert [one["metadata"]["name"] for one in third["items"]] == [f"p{i}" for i in range(20, 25)]
        api.forget_history()
        with pytest.raises(KubernetesError) as gone:
            client.list_page(PODS, second["metadata"]["continue"], 10)
        assert gone.value.status == GONE
