"""Pods that hold GPUs: since when, until when, how many, and how they ended."""

import json

import pytest
from tests.sources.kubernetes.objects import (
    at,
    condition,
    container,
    decode,
    gpu_hours,
    listed,
    ms,
    node,
    owned,
    owner,
    pod,
    workload,
)

from loadfactor import Books
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.kubernetes.fields import prune

NODE = node("n1")


def test_a_pod_holds_from_when_it_is_bound_until_its_last_container_ended():
    """Neither its creation nor the end of its first container counts."""
    both = [
        {"name": "a", "state": {"terminated": {"exitCode": 0, "finishedAt": at(3)}}},
        {"name": "b", "state": {"terminated": {"exitCode": 0, "finishedAt": at(4)}}},
    ]
    found = decode(listed(NODE, pod("p", 1, bound=2, ended=4, node="n1", status={"containerStatuses": both})))
    (row,) = found["allocations"]
    assert json.loads(row.pop("tags")) == {"namespace": "team-a"}
    held = {"job_id": "team-a/p", "node": "n1", "gpus": 1, "team": "team-a", "end_state": "completed"}
    assert row == held | {"submitted_utc": ms(1), "from_utc": ms(2), "to_utc": ms(4)}


def test_a_pod_that_runs_is_held_until_the_file_was_saved():
    """The newest instant in the file, or the one that was given."""
    running = pod("p", 1, bound=2, node="n1")
    heard = node("n1", ready=condition("Ready", "True", -100) | {"lastHeartbeatTime": at(5)})
    assert gpu_hours(decode(listed(heard, running))) == {"team-a/p": 3}
    assert gpu_hours(decode(listed(heard, running), at_ms=ms(8))) == {"team-a/p": 6}
    assert decode(listed(heard, running))["allocations"][0]["end_state"] == "running"


@pytest.mark.parametrize(
    ("told", "end_state"),
    [
        ({"phase": "Failed"}, "failed"),
        ({"phase": "Failed", "exit": "OOMKilled"}, "out_of_memory"),
        ({"phase": "Failed", "conditions": [condition("DisruptionTarget", "True", 4, "PreemptionByScheduler")]}, "preempted"),
        ({"phase": "Failed", "conditions": [condition("DisruptionTarget", "True", 4, "DeletionByTaintManager")]}, "node_lost"),
        ({"phase": "Failed", "status": {"reason": "Evicted", "containerStatuses": []}}, "evicted"),
        ({"phase": "Failed", "status": {"reason": "DeadlineExceeded"}}, "timeout"),
    ],
)  # fmt: skip
def test_how_a_pod_ended(told, end_state):
    """Preemption, eviction, a lost node, a deadline and memory are told from other failures."""
    (row,) = decode(listed(NODE, pod("p", 1, bound=2, ended=4, node="n1", **told)))["allocations"]
    assert (row["end_state"], row["to_utc"]) == (end_state, ms(4))


def test_a_pod_that_its_node_refused_held_nothing():
    """It waited, and its wait was cancelled."""
    refused = pod("p", 1, bound=2, ended=2, node="n1", phase="Failed", status={"reason": "UnexpectedAdmissionError"})
    found = decode(listed(NODE, refused))
    assert not found["allocations"]
    assert [(e["event"], e["at_utc"]) for e in found["queue_events"]] == [("submitted", ms(1)), ("cancelled", ms(2))]


def test_a_waiting_pod_says_why():
    """What the scheduler says stands in the reason; so does a gate."""
    found = decode(listed(pod("p", 1, containers=[container({"nvidia.com/gpu": 8})])))
    (event,) = found["queue_events"]
    assert (event["event"], event["at_utc"], event["gpus"]) == ("submitted", ms(1), 8)
    assert event["reason"] == "Unschedulable: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


def test_init_containers_count_only_where_they_need_more():
    """They run one after the other before the others; those that go on beside them are added."""
    init = [container({"nvidia.com/gpu": 2}), container({"nvidia.com/gpu": 3}, "other")]
    main = [container({"nvidia.com/gpu": 1}), container({"nvidia.com/gpu": 1}, "second")]
    side = container({"nvidia.com/gpu": 4}, "side", restartPolicy="Always")

    def held(first, then):
        return decode(
            listed(NODE, pod("p", 1, bound=2, ended=3, node="n1", containers=then, spec={"initContainers": first}))
        )

    assert held(init, main)["allocations"][0]["gpus"] == 3
    assert held(init[:1], main)["allocations"][0]["gpus"] == 2
    assert held([side, *init], main)["allocations"][0]["gpus"] == 7
    assert held([init[1], side], main)["allocations"][0]["gpus"] == 6


def test_a_pod_without_gpus_is_nobody():
    """Neither an allocation nor a wait."""
    for limits in ({"cpu": "2"}, {"example.com/fpga": "4"}, {"gpu.intel.com/i915_monitoring": "1"}):
        found = decode(listed(NODE, pod("web", 1, bound=2, node="n1", containers=[container(limits)])))
        assert [found["allocations"], found["queue_events"]] == [[], []]


@pytest.mark.parametrize(
    ("resources", "labels", "gpus"),
    [
        ({"nvidia.com/gpu": "8"}, {}, 8),
        ({"nvidia.com/gpu": "0"}, {}, 8),  # its device plugin is down: the label counts
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu.count": "", "nvidia.com/gpu.replicas": "4"}, 2),
        ({"nvidia.com/mig-1g.10gb": "7", "nvidia.com/mig-3g.40gb": "2"}, {"nvidia.com/gpu.count": ""}, 2),
        ({"amd.com/gpu": "4"}, {"nvidia.com/gpu.count": ""}, 4),
        ({"amd.com/cpx_nps4": "16"}, {"nvidia.com/gpu.count": ""}, 2),
        ({"google.com/tpu": "4"}, {"nvidia.com/gpu.count": ""}, 4),
        ({"aws.amazon.com/neuroncore": "32", "aws.amazon.com/neuron": "16"}, {"nvidia.com/gpu.count": ""}, 16),
        ({"aws.amazon.com/neuroncore": "32"}, {"nvidia.com/gpu.count": ""}, 0),  # of how many chips?
        ({"huawei.com/Ascend310P": "3"}, {"nvidia.com/gpu.count": ""}, 3),
        (
            {"nvidia.com/gpu.shared": "8"},
            {"nvidia.com/gpu.count": "", "nvidia.com/gpu.replicas": ""},
            0,
        ),  # into how many?
        ({"nvidia.com/gpu": "99999"}, {"nvidia.com/gpu.count": "99999"}, 0),
        ({"cpu": "8"}, {"nvidia.com/gpu.count": ""}, 0),
    ],
)
def test_nodes_say_how_many_gpus_they_have(resources, labels, gpus):
    """By label, else by capacity in whole GPUs, however they are divided; since the node is there, until the file was saved."""
    found = decode(listed(node("n1", labels=labels, resources=resources)), at_ms=ms(4))["devices"]
    assert [d["device_id"] for d in found] == [f"n1:gpu{number}" for number in range(gpus)]
    assert {(d["accelerator"], d["from_utc"], d["to_utc"]) for d in found} <= {("h100-sxm", ms(-100), ms(4))}


def test_a_cluster_of_more_gpus_than_there_are_is_not_listed_whole(monkeypatch):
    """What nodes say is bounded in all, and what is left out is said."""
    monkeypatch.setattr("loadfactor.sources.kubernetes.claims.MOST_CLUSTER_GPUS", 20)
    found = decode(listed(*(node(f"n{number}") for number in range(4))), at_ms=ms(4))
    assert len(found["devices"]) == 16
    assert [gap for gap in found["gaps"] if "not listed" in str(gap)]


@pytest.mark.long
def test_what_no_pod_holds_is_unallocated_and_what_is_not_ready_is_down(tmp_path):
    """Pods of two namespaces are those of all: 2 of 8 GPUs held for 2 of 4 hours, a free node, and one down for an hour."""
    down = node("n3", ready=condition("Ready", "Unknown", 3, "NodeStatusUnknown"))
    held = pod("a", 0, bound=0, ended=2, node="n1", containers=[container({"nvidia.com/gpu": "2"})])
    system = pod("dns", 0, bound=0, node="n1", namespace="kube-system", containers=[container({"cpu": "1"})])
    (tmp_path / "cluster.json").write_text(json.dumps(listed(node("n1"), node("n2"), down, held, system)))
    books = Books(tmp_path / "books")
    books.add("kubernetes", [tmp_path / "cluster.json"], ReadOptions(at_ms=ms(4)))
    asked = ("paid_gpu_hours", "unallocated_gpu_hours", "down_gpu_hours")
    found = {key: [r.value for r in books.show(asked, where={"node": key})] for key in ("n1", "n2", "n3")}
    assert found == {"n1": [32, 28, 0], "n2": [32, 32, 0], "n3": [32, 24, 8]}


def test_requests_without_limits_count():
    """Some admission webhooks write only requests."""
    only = {"name": "main", "resources": {"requests": {"amd.com/gpu": 4}}}
    assert gpu_hours(decode(listed(NODE, pod("p", 1, bound=2, ended=3, node="n1", containers=[only])))) == {
        "team-a/p": 4
    }


def test_an_unknown_resource_that_sounds_like_gpus_is_said():
    """Nobody guesses what a unit of it is."""
    found = decode(
        listed(NODE, pod("p", 1, bound=2, ended=3, node="n1", containers=[container({"acme.com/gpu-slice": 1})]))
    )
    assert not found["allocations"]
    assert found["gaps"] == [{"what": "pods that ask for acme.com/gpu-slice, which nobody here knows", "count": 1}]


def test_owners_are_followed_up():
    """A pod of a Deployment names it although its own owner is a ReplicaSet; labels of owners are labels of the pod."""
    above = owner("Deployment", "chat", "d1", "apps/v1")
    one = pod(
        "chat-7d9f-x", 1, bound=2, ended=3, node="n1", owner=owner("ReplicaSet", "chat-7d9f", "r1"), labels={"app": "x"}
    )
    deployment = owned("Deployment", "chat", "d1", labels={"experiment": "e7", "app": "y"})
    found = decode(listed(NODE, one, owned("ReplicaSet", "chat-7d9f", "r1", above), deployment))
    assert json.loads(found["allocations"][0]["tags"]) == {
        "namespace": "team-a",
        "owner": "Deployment/chat",
        "purpose_hint": "serving",
        "label.app": "x",
        "label.experiment": "e7",
    }


@pytest.mark.parametrize(
    ("kind", "labels", "wanted", "hint"),
    [
        ("ReplicaSet", {"pod-template-hash": "7d9f"}, "Deployment/chat", "serving"),
        ("StatefulSet", {"leaderworkerset.sigs.k8s.io/name": "llm"}, "LeaderWorkerSet/llm", "serving"),
        ("StatefulSet", {"notebook-name": "ann"}, "Notebook/ann", "notebook"),
        ("PyTorchJob", {"training.kubeflow.org/job-name": "ft"}, "PyTorchJob/chat-7d9f", "training"),
        ("RayCluster", {}, "RayCluster/chat-7d9f", None),
        ("Job", {}, "Job/chat-7d9f", "batch"),
        ("Job", {"jobset.sigs.k8s.io/jobset-name": "pre"}, "JobSet/pre", "training"),
    ],
)
def test_labels_name_owners_that_were_not_saved(kind, labels, wanted, hint):
    """What controllers write on pods says what is above a ReplicaSet or a StatefulSet."""
    one = pod("p", 1, bound=2, ended=3, node="n1", owner=owner(kind, "chat-7d9f", "r1"), labels=labels)
    tags = json.loads(decode(listed(NODE, one))["allocations"][0]["tags"])
    assert (tags["owner"], tags.get("purpose_hint")) == (wanted, hint)


def test_tags_keep_no_secrets_and_stay_small():
    """Annotations of controllers, long ones, and any whose name sounds like a secret are left out."""
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": '{"spec":{"env":"hunter2"}}',
        "vault/api-key": "hunter2",
        "owner": "ann",
        "long": "x" * 201,
        "blob": '{"password": "hunter2"}',
    }
    labels = {f"l{i:03}": "x" * 60 for i in range(100)} | {"auth-token": "hunter2"}
    one = pod("p", 1, bound=2, ended=3, node="n1", annotations=annotations, labels=labels)
    tags = decode(listed(NODE, one))["allocations"][0]["tags"]
    assert "hunter2" not in tags
    assert len(tags) <= 4096
    other = pod("p", 1, bound=2, ended=3, node="n1", annotations=annotations)
    assert json.loads(decode(listed(NODE, other))["allocations"][0]["tags"])["annotation.owner"] == "ann"


def test_events_of_a_watch_tell_of_pods_that_are_gone():
    """`kubectl get pods --watch --output-watch-events -o json`: a deleted pod ends where its containers did, or at its deletion."""
    first, second = pod("a", 1, bound=2, node="n1"), pod("b", 1, bound=2, node="n1")
    finished = pod("a", 1, bound=2, ended=3, node="n1", phase="Running", uid=first["metadata"]["uid"], deleted=3.5)
    removed = pod("b", 1, bound=2, node="n1", uid=second["metadata"]["uid"], deleted=4)
    found = decode(
        *({"type": "ADDED", "object": o} for o in (NODE, first, second)),
        {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "9"}}},
        *({"type": "DELETED", "object": o} for o in (finished, removed)),
        {"type": "ERROR", "object": {"kind": "Status", "code": 410}},
    )
    assert gpu_hours(found) == {"team-a/a": 1, "team-a/b": 2}
    assert [row["end_state"] for row in found["allocations"]] == ["cancelled", "cancelled"]


def test_nodes_that_are_not_ready_or_cordoned_are_down():
    """With the reason; what is still down is down until the file was saved."""
    lost = node(
        "n1", ready=condition("Ready", "Unknown", 2, "NodeStatusUnknown", "Kubelet stopped posting node status.")
    )
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": at(3)}
    why = {"key": "maintenance", "value": "disk", "effect": "NoSchedule"}
    drained = node("n2", spec={"unschedulable": True, "taints": [taint, why]})
    cpu_only = node("n3", ready=condition("Ready", "False", 2), resources={})
    cpu_only["metadata"]["labels"] = {}
    found = decode(listed(lost, drained, cpu_only), at_ms=ms(5))["outages"]
    silent = "not ready (NodeStatusUnknown: Kubelet stopped posting node status.)"
    assert found == [
        {"node": "n1", "from_utc": ms(2), "to_utc": ms(5), "reason": silent},
        {"node": "n2", "from_utc": ms(3), "to_utc": ms(5), "reason": "cordoned (maintenance=disk)"},
    ]  # fmt: skip


def test_nodes_whose_gpus_no_device_plugin_counts_can_be_down():
    """Labels say that they have some, or slices do; in any order."""
    silent = condition("Ready", "Unknown", 2, "NodeStatusUnknown")
    labelled, listing = (node(name, ready=silent, resources={}) for name in ("n1", "n2"))
    labelled["metadata"]["labels"] = {"feature.node.kubernetes.io/pci-10de.present": "true"}
    listing["metadata"]["labels"] = {}
    slice_ = {"driver": "gpu.amd.com", "nodeName": "n2", "pool": {"name": "n2"}, "devices": [{"name": "gpu-0-128"}]}
    slices = {"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": slice_}
    for objects in ((labelled, listing, slices), (slices, listing, labelled)):
        found = decode(*({"type": "ADDED", "object": one} for one in objects), at_ms=ms(5))
        assert {row["node"] for row in found["outages"]} == {"n1", "n2"}


def test_environments_say_runs_and_nothing_else():
    """What a pod's containers are told of their run becomes tags, also live; nothing else of an environment is kept."""
    told = [
        {"name": "WANDB_PROJECT", "value": "llm"},
        {"name": "LOADFACTOR_EXPERIMENT", "value": "e7"},
        {"name": "MLFLOW_RUN_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "WANDB_RUN_ID", "value": "$(POD_NAME)"},
        {"name": "WANDB_API_KEY", "value": "hush"},
    ]
    found = pod("p", 1, bound=2, node="n1", containers=[container(env=told), container({}, "side", env=[{"name": 1}])])
    expected = {"namespace": "team-a", "wandb.project": "llm", "env.LOADFACTOR_EXPERIMENT": "e7"}
    for one in (found, {**prune("Pod", found), "kind": "Pod"}):
        (row,) = decode(listed(NODE, one))["allocations"]
        assert json.loads(row["tags"]) == expected
    assert "hush" not in json.dumps(prune("Pod", found))


RESERVED, ADMITTED = condition("QuotaReserved", "True", 3), condition("Admitted", "True", 3, "Admitted")
PENDING = condition(
    "QuotaReserved", "False", 1, "Pending", "couldn't assign flavors to pod set main: insufficient quota"
)


def events(found):
    return [(e["event"], e["at_utc"]) for e in found["queue_events"]]


def test_a_workload_waits_until_it_is_admitted_and_its_pods_do_not_wait_beside_it():
    """One wait with the GPUs of all its pods, in the local queue; the pods say their queue too."""
    waits = workload("train", 1, [RESERVED, ADMITTED], pods=2, gpus=8)
    pods = [
        pod(f"train-{i}", 3, bound=3, ended=5, node="n1", owner=owner("Job", "train", "job-train")) for i in range(2)
    ]
    found = decode(listed(node("n1"), waits, owned("Job", "train", "job-train"), *pods))
    assert events(found) == [("submitted", ms(1)), ("started", ms(3))]
    assert {(e["job_id"], e["gpus"], e["queue"], e["team"]) for e in found["queue_events"]} == {
        ("team-a/train", 16, "research", "team-a")
    }
    assert all("submitted_utc" not in row and row["queue"] == "research" for row in found["allocations"])
    assert json.loads(found["allocations"][0]["tags"])["cluster_queue"] == "gpus"


def test_a_pending_workload_says_why():
    """What Kueue says of the quota is the reason."""
    (event,) = decode(listed(workload("train", 1, [PENDING], gpus=8)))["queue_events"]
    assert event["reason"].startswith("Pending: couldn't assign flavors")


def test_an_evicted_workload_waits_again():
    """Seen from its beginning, the first wait, the eviction with its reason, and the second wait are all there."""
    evicted = condition("Evicted", "True", 4, "Preempted", "Preempted to accommodate a higher priority Workload")
    again = [condition("QuotaReserved", "True", 6), condition("Admitted", "True", 6), condition("Evicted", "False", 6)]
    found = decode(
        *(
            {"type": "MODIFIED", "object": workload("train", 1, conditions)}
            for conditions in ([PENDING], [RESERVED, ADMITTED], [PENDING, evicted], again)
        )
    )
    expected = [("submitted", ms(1)), ("started", ms(3)), ("requeued", ms(4)), ("started", ms(6))]
    assert sorted(events(found), key=lambda e: e[1]) == expected
    reasons = {e["event"]: e.get("reason") for e in found["queue_events"]}
    assert reasons["requeued"].startswith("Preempted")
    assert reasons["submitted"].startswith("Pending: couldn't assign flavors")  # as it was before it was admitted


def test_a_wait_of_which_the_beginning_is_lost_is_none():
    """Saved after an eviction, a workload says when it was admitted last, not since when it waited."""
    again = [condition("QuotaReserved", "True", 6), condition("Admitted", "True", 6), condition("Evicted", "False", 6)]
    assert events(decode(listed(workload("train", 1, again)))) == [("started", ms(6))]
    evicted = condition("Evicted", "True", 4, "Preempted")
    watched = [{"type": "MODIFIED", "object": workload("train", 1, said)} for said in ([PENDING, evicted], again)]
    assert events(decode(*watched)) == [("requeued", ms(4)), ("started", ms(6))]


def test_a_pod_whose_workload_was_evicted_was_preempted():
    """Its containers only say that they were killed."""
    evicted = condition("Evicted", "True", 4, "Preempted")
    killed = pod("train-0", 3, bound=3, node="n1", owner=owner("Job", "train", "job-train"), deleted=4)
    there = listed(node("n1"), workload("train", 1, [PENDING, evicted]))
    found = decode(there, *({"type": what, "object": killed} for what in ("ADDED", "DELETED")))
    assert [row["end_state"] for row in found["allocations"]] == ["preempted"]


SLICED = {
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-SHARED",
    "nvidia.com/gpu.count": "2",
}
GKE = {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100", "nvidia.com/gpu.count": ""}
HAMI = {"hami.io/node-nvidia-register": "GPU-1,10,40960,100,NVIDIA-A100,0,true:GPU-2,10,40960,100,NVIDIA-A100,0,true:"}
HAMI_JSON = {
    "hami.io/node-nvidia-register": '[{"id":"GPU-1","count":10,"devmem":40960,"devcore":100,"mode":"hami-core"}]'
}


def held(labels: dict[str, str], *limits: dict[str, object], annotations: dict[str, str] | None = None, gpus: int = 8):
    """GPUs and share of a pod whose containers have these limits, on a node with these labels."""
    one = node("n1", labels=labels, annotations=annotations or {}, resources={"nvidia.com/gpu": str(gpus)})
    asks = [container(dict(limit), f"c{i}") for i, limit in enumerate(limits)]
    (row,) = decode(listed(one, pod("p", 1, bound=2, ended=3, node="n1", containers=asks)))["allocations"]
    return row["gpus"], pytest.approx(row.get("share", 1.0))


@pytest.mark.parametrize(
    ("labels", "limits", "wanted"),
    [
        ({}, {"nvidia.com/gpu": 2}, (2, 1)),
        (SLICED, {"nvidia.com/gpu": 1}, (1, 0.25)),
        (SLICED, {"nvidia.com/gpu.shared": 2}, (2, 0.25)),
        (
            {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": ""},
            {"nvidia.com/gpu": 1},
            (1, 0.25),
        ),  # 8 units of 2 GPUs
        ({}, {"nvidia.com/mig-1g.10gb": 2}, (2, 1 / 7)),
        ({}, {"nvidia.com/mig-3g.40gb": 1}, (1, 3 / 7)),
        ({}, {"nvidia.com/mig-1g.10gb.me": 1}, (1, 1 / 7)),
        ({"nvidia.com/gpu.product": "NVIDIA-A30"}, {"nvidia.com/mig-2g.12gb": 1}, (1, 0.5)),
        ({"nvidia.com/mig-1g.10gb.replicas": "2"}, {"nvidia.com/mig-1g.10gb.shared": 1}, (1, 1 / 14)),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}, {"nvidia.com/gpu": 3}, (3, 1 / 7)),
        ({**GKE, "cloud.google.com/gke-max-shared-clients-per-gpu": "5"}, {"nvidia.com/gpu": 1}, (1, 0.2)),
        ({**GKE, "cloud.google.com/gke-gpu-partition-size": "2g.10gb"}, {"nvidia.com/gpu": 1}, (1, 2 / 7)),
        ({}, {"amd.com/gpu": 8}, (8, 1)),
        ({}, {"amd.com/cpx_nps4": 2}, (2, 0.125)),
        ({}, {"amd.com/dpx_nps1": 1}, (1, 0.5)),
        ({}, {"gpu.intel.com/i915": 1, "gpu.intel.com/millicores": 100, "gpu.intel.com/memory.max": "4Gi"}, (1, 1)),
        ({}, {"k8s.amazonaws.com/vgpu": 3}, (3, 0.1)),
    ],
)
def test_a_unit_is_a_part_of_a_gpu(labels, limits, wanted):
    """Time slices, MIG instances of both strategies, GKE's sharing and AWS' shares."""
    assert held(labels, limits) == wanted


@pytest.mark.parametrize(
    ("annotations", "limits", "wanted"),
    [
        (HAMI, {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 10240, "nvidia.com/gpucores": 30}, (1, 0.25)),
        (HAMI_JSON, {"nvidia.com/gpu": 2, "nvidia.com/gpumem": "4096"}, (2, 0.1)),
        (HAMI, {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}, (1, 0.5)),
        (HAMI, {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 30}, (1, 0.3)),
        (HAMI, {"nvidia.com/gpu": 1}, (1, 1)),
    ],
)
def test_hami_divides_by_memory(annotations, limits, wanted):
    """The part of the memory counts, which HAMi never gives twice; cores where no memory is asked for, else all of the GPU."""
    assert held({"nvidia.com/gpu.count": "2"}, limits, annotations=annotations, gpus=20) == wanted


def test_containers_with_different_parts_are_added_up():
    """In whole GPUs."""
    assert held({}, {"nvidia.com/gpu": 1}, {"nvidia.com/mig-3g.40gb": 1}) == (pytest.approx(1 + 3 / 7), 1)


def test_two_pods_fill_a_divided_gpu_at_most():
    """Every unit of a node given away is its GPUs, never more."""
    one = node("n1", labels=SLICED, resources={"nvidia.com/gpu": "8"})
    pods = [pod(f"p{i}", 1, bound=2, ended=3, node="n1") for i in range(8)]
    assert sum(row["gpus"] * row["share"] for row in decode(listed(one, *pods))["allocations"]) == 2


def test_a_node_that_was_not_saved_is_said():
    """Its GPUs count as whole ones, and how many pods that concerns is a gap."""
    found = decode(listed(pod("p", 1, bound=2, ended=3, node="n1")))
    assert found["gaps"] == [{"what": "pods whose node is not in it: their GPUs count as undivided ones", "count": 1}]
