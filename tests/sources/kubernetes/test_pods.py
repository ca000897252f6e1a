"""Pods that hold GPUs: since when, until when, how many, and how they ended."""

import json

import pytest
from tests.sources.kubernetes.decoding import decode, gpu_hours
from tests.sources.kubernetes.objects import at, condition, container, listed, ms, node, owned, owner, pod

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
    tags = {"namespace": "team-a"}
    assert json.loads(row.pop("tags")) == tags
    assert row == {
        "job_id": "team-a/p",
        "node": "n1",
        "gpus": 1,
        "team": "team-a",
        "submitted_utc": ms(1),
        "from_utc": ms(2),
        "to_utc": ms(4),
        "end_state": "completed",
    }


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
    for limits in ({"cpu": "2"}, {"google.com/tpu": "4"}, {"gpu.intel.com/i915_monitoring": "1"}):
        found = decode(listed(NODE, pod("web", 1, bound=2, node="n1", containers=[container(limits)])))
        assert not any(found.values())


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
