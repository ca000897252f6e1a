"""Quotas of Kueue's ClusterQueues: how many GPUs of which flavor, borrowed and lent in a cohort, and where LocalQueues lead."""

import json

import pytest
from tests.sources.kubernetes.objects import at, condition, decode, listed, ms, node, pod, workload

from loadfactor import Books
from loadfactor.interfaces.pages.waits import build_waits
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.kubernetes.fields import prune
from loadfactor.sources.kubernetes.live_decoder import ALIVE, LISTED, LISTING, LiveKubernetesDecoder

PENDING = condition(
    "QuotaReserved", "False", 1, "Pending", "couldn't assign flavors to pod set main: insufficient quota"
)
ADMITTED = [condition("QuotaReserved", "True", 3), condition("Admitted", "True", 3, "Admitted")]


def cluster_queue(name="gpus", flavors=None, api="v1beta2", cohort="all", generation=1):
    """A ClusterQueue; `flavors`: by name the quotas of resources, each a number or what the API says of it."""
    groups = [
        {
            "coveredResources": ["cpu", "memory", *{r for of in (flavors or {}).values() for r in of}],
            "flavors": [
                {
                    "name": flavor,
                    "resources": [
                        {"name": "cpu", "nominalQuota": "512"},
                        *({"name": r, **(q if isinstance(q, dict) else {"nominalQuota": q})} for r, q in of.items()),
                    ],
                }
                for flavor, of in (flavors or {}).items()
            ],
        }
    ]
    usage = [{"name": "h100", "resources": [{"name": "nvidia.com/gpu", "total": "3", "borrowed": "0"}]}]
    return {
        "apiVersion": f"kueue.x-k8s.io/{api}",
        "kind": "ClusterQueue",
        "metadata": {"name": name, "uid": f"queue-{name}", "generation": generation, "creationTimestamp": at(0)},
        "spec": {
            "cohortName" if api == "v1beta2" else "cohort": cohort,
            "resourceGroups": groups,
            "namespaceSelector": {},
            "queueingStrategy": "BestEffortFIFO",
        },
        "status": {"flavorsUsage": usage, "pendingWorkloads": 2, "conditions": [condition("Active", "True", 0, "Ready")]},
    }  # fmt: skip


def cohort(name, above="", quotas=None, api="v1beta2"):
    found = cluster_queue(name, quotas, api) | {"kind": "Cohort", "status": {}}
    parent = {"parent" if api == "v1alpha1" else "parentName": above} if above else {}
    return found | {"spec": {"resourceGroups": found["spec"]["resourceGroups"] if quotas else []} | parent}


def local_queue(name="research", leads_to="gpus"):
    metadata = {"name": name, "namespace": "team-a", "uid": f"local-{name}", "creationTimestamp": at(0)}
    spec = {"clusterQueue": leads_to, "stopPolicy": "None"}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": metadata, "spec": spec}


def flavor(name, product):
    labels = {"nvidia.com/gpu.product": product, "cloud.provider.com/spot": "false"}
    metadata = {"name": name, "uid": f"flavor-{name}", "creationTimestamp": at(0)}
    spec = {"nodeLabels": labels}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": metadata, "spec": spec}


def gpus(found):
    return {
        (row["queue"], row["flavor"], row["resource"]): (
            row["gpus"],
            row.get("borrowing_gpus"),
            row.get("lending_gpus"),
        )
        for row in found["quotas"]
    }


@pytest.mark.parametrize("api", ["v1beta1", "v1beta2"])
def test_a_quota_is_what_a_queue_may_hold(api):
    """Own GPUs by flavor, what it may borrow and lend; without limits these are open. Other resources are left out."""
    limits = {"nominalQuota": "16", "borrowingLimit": 8, "lendingLimit": "4"}
    queue = cluster_queue(flavors={"h100": {"nvidia.com/gpu": limits}, "any": {"amd.com/gpu": 8}}, api=api)
    found = decode(listed(queue))
    expected = {("gpus", "h100", "nvidia.com/gpu"): (16, 8, 4), ("gpus", "any", "amd.com/gpu"): (8, None, None)}
    assert gpus(found) == expected
    assert {(row["cohort"], row["from_utc"], row.get("to_utc")) for row in found["quotas"]} == {("all", ms(0), None)}
    alone = cluster_queue(flavors={"h100": {"nvidia.com/gpu": "16"}}, cohort="", api=api)
    assert gpus(decode(listed(alone))) == {("gpus", "h100", "nvidia.com/gpu"): (16, 0, 0)}


def test_units_are_counted_in_whole_gpus():
    """Instances of MIG by the model of the flavor's nodes, time slices as these nodes divide their GPUs."""
    sliced = {"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "4"}
    quotas = {"a30": {"nvidia.com/mig-1g.6gb": 8}, "h100": {"nvidia.com/mig-1g.10gb": 14}, "t4": {"nvidia.com/gpu": 8}}
    there = [flavor("a30", "NVIDIA-A30"), flavor("t4", "Tesla-T4-SHARED"), node("n1"), node("n2", labels=sliced)]
    found = gpus(decode(listed(cluster_queue(flavors=quotas, cohort=""), *there)))
    assert [own for own, _, _ in found.values()] == [pytest.approx(2), pytest.approx(2), pytest.approx(2)]


def test_resources_that_nobody_knows_are_said():
    """A name that sounds like GPUs."""
    found = decode(listed(cluster_queue(flavors={"any": {"example.com/gpu": 8}})))
    assert found["gaps"] == [{"what": "quotas of example.com/gpu, which nobody here knows", "count": 1}]


def test_a_quota_holds_until_it_changes():
    """Watched: a change ends it, so does the end of the queue, seen or found out by a list; a new process goes on."""
    decoder, rows = LiveKubernetesDecoder("prod"), {}

    def see(*events):
        nonlocal decoder
        decoder.feed(
            [[ms(hour), "ClusterQueue", what, one and prune("ClusterQueue", one)] for hour, what, one in events]
        )
        for item in decoder.drain():
            rows.update(
                {(row["queue"], row["from_utc"]): (row["gpus"], row.get("to_utc")) for row in item.data.to_pylist()}
            )
        decoder = LiveKubernetesDecoder("prod", decoder.state())

    first, second, other = ({"h100": {"nvidia.com/gpu": n}} for n in (8, 16, 4))
    there = [(2, "ADDED", cluster_queue(flavors=first)), (2, "ADDED", cluster_queue("b", other, generation=3))]
    see((2, LISTING, None), *there, (2, LISTED, None))
    see((3, "MODIFIED", cluster_queue(flavors=first)), (4, "MODIFIED", cluster_queue(flavors=second, generation=2)))
    see((6, "DELETED", cluster_queue(flavors=second, generation=2)), (7, ALIVE, None))
    see((9, LISTING, None), (9, LISTED, None))
    assert rows == {("gpus", ms(0)): (8, ms(4)), ("gpus", ms(4)): (16, ms(6)), ("b", ms(2)): (4, ms(7))}


def test_what_waits_in_a_local_queue_waits_in_the_one_it_leads_to():
    """In any order."""
    objects = [{"type": "ADDED", "object": one} for one in (local_queue(), workload("train", 1, [PENDING], gpus=8))]
    for events in (objects, objects[::-1]):
        (event,) = decode(*events)["queue_events"]
        assert json.loads(event["tags"])["cluster_queue"] == "gpus"


def test_quotas_stand_beside_what_is_held_and_waits(tmp_path):
    """`waits` says of each queue how many GPUs it may hold, holds and keeps waiting, at the end of the window."""
    some, none = ({"nominalQuota": own, "borrowingLimit": more} for own, more in ((8, 4), (2, 0)))
    queues = [
        cluster_queue(flavors={"h100": {"nvidia.com/gpu": some}, "a100": {"nvidia.com/gpu": 4}}),
        cluster_queue("idle", {"h100": {"nvidia.com/gpu": none}}),
    ]
    running = [workload(f"r{i}", 1, ADMITTED, gpus=3) for i in range(2)]
    waiting = [workload("w", 2, [PENDING], gpus=8, pods=2)]
    pods = [
        pod(f"r{i}-0", 3, bound=3, node="n1", owner=running[i]["metadata"]["ownerReferences"][0],
            containers=[{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "3"}}}])
        for i in range(2)
    ]  # fmt: skip
    pods.append(pod("other", 3, bound=3, ended=5, node="n1"))
    saved = tmp_path / "all.json"
    saved.write_text(json.dumps(listed(node("n1"), *queues, local_queue(), *running, *waiting, *pods)))
    books = Books.open(tmp_path / "books", create=True)
    books.add("kubernetes", [saved])
    found = books.find_waits()
    assert [(q.queue, q.gpus, q.borrowing_gpus, q.held_gpus, q.waiting_gpus, q.waiting_jobs) for q in found.quotas] == [
        ("gpus", 12, None, 6, 16, 1),
        ("idle", 2, 0, 0, 0, 0),
    ]
    assert found.quotas[0].flavors == {"a100": 4, "h100": 8}
    page = build_waits(found, "")
    assert page.sections[-1].title == "Quotas"
    assert page.sections[-1].tables[0].text_rows()[0][-1] == "a100 4, h100 8"


def test_several_resource_groups():
    """Each covers its resources with its flavors; one flavor may have whole GPUs and instances of MIG."""
    queue = cluster_queue(flavors={"h100": {"nvidia.com/gpu": 8, "nvidia.com/mig-1g.10gb": 7}})
    more = cluster_queue(
        flavors={"mi300x": {"amd.com/gpu": {"nominalQuota": 4, "borrowingLimit": 0, "lendingLimit": 1}}}
    )
    queue["spec"]["resourceGroups"] += more["spec"]["resourceGroups"]
    assert gpus(decode(listed(queue))) == {
        ("gpus", "h100", "nvidia.com/gpu"): (8, None, None),
        ("gpus", "h100", "nvidia.com/mig-1g.10gb"): (pytest.approx(1), None, None),
        ("gpus", "mi300x", "amd.com/gpu"): (4, 0, 1),
    }


@pytest.mark.parametrize("api", ["v1alpha1", "v1beta1", "v1beta2"])
def test_a_cohort_has_quotas_and_a_cohort_above_it(api):
    """It is told as a queue; one without GPUs of its own says at least what is above it, the topmost one then nothing."""
    shared = {"h100": {"nvidia.com/gpu": {"nominalQuota": 16, "borrowingLimit": 4, "lendingLimit": 2}}}
    found = decode(listed(cohort("vision", "all", shared, api), cohort("nlp", "all", api=api), cohort("all", api=api)))
    assert [(r["queue"], r["cohort"], r.get("flavor"), r["gpus"], r.get("lending_gpus")) for r in found["quotas"]] == [
        ("cohort/nlp", "all", None, 0, None),
        ("cohort/vision", "all", "h100", 16, 2),
    ]


def test_a_cohort_that_is_gone_ends():
    """Seen, or found out by a list, which says nothing of queues."""
    decoder, rows = LiveKubernetesDecoder("prod"), {}
    queue, above = (
        cluster_queue(flavors={"h100": {"nvidia.com/gpu": 8}}),
        cohort("all", "", {"h100": {"nvidia.com/gpu": 4}}),
    )
    decoder.feed([[ms(2), "Cohort", LISTING, None]])
    decoder.feed([[ms(2), one["kind"], "ADDED", prune(one["kind"], one)] for one in (queue, above)])
    decoder.feed([[ms(2), "Cohort", LISTED, None]])
    decoder = LiveKubernetesDecoder("prod", decoder.state())
    decoder.feed([[ms(5), "Cohort", ALIVE, None], [ms(9), "Cohort", LISTING, None], [ms(9), "Cohort", LISTED, None]])
    for item in decoder.drain():
        rows.update({row["queue"]: row.get("to_utc") for row in item.data.to_pylist()})
    assert rows == {"cohort/all": ms(5)}


def admitted(name, queue, flavors, gpus=1):
    """A workload that a queue admitted with pod sets of these flavors, and a pod of each."""
    found = workload(name, 1, ADMITTED, gpus=gpus)
    sets = [
        {"name": f"set-{n}", "count": 1, "flavors": {"cpu": "any", "nvidia.com/gpu": flavor}}
        for n, flavor in enumerate(flavors)
    ]
    found["status"]["admission"] = {"clusterQueue": queue, "podSetAssignments": sets}
    owned_by = found["metadata"]["ownerReferences"][0]
    limits = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]
    labels = [{"kueue.x-k8s.io/podset": one["name"]} for one in sets]
    return found, *(
        pod(f"{name}-{n}", 3, bound=3, node="n1", owner=owned_by, containers=limits, labels=one)
        for n, one in enumerate(labels)
    )


def test_how_full_each_flavor_is_and_what_is_borrowed(tmp_path):
    """A queue holds more of a flavor than its own: that is another one's, and counts once in the cohort and in the one above it."""
    limited = {"nominalQuota": 4, "borrowingLimit": 4, "lendingLimit": 2}
    there = [
        cluster_queue("a", {"h100": {"nvidia.com/gpu": limited}, "a100": {"nvidia.com/gpu": 8}}, cohort="vision"),
        cluster_queue("b", {"h100": {"nvidia.com/gpu": 8}}, cohort="vision"),
        cohort("vision", "all", {"h100": {"nvidia.com/gpu": 2}}),
        *admitted("x", "a", ["h100", "a100"], 6),
        *admitted("y", "b", ["h100"], 5),
    ]
    saved = tmp_path / "all.json"
    saved.write_text(json.dumps(listed(node("n1", 32), *there)))
    books = Books.open(tmp_path / "books", create=True)
    books.add("kubernetes", [saved], ReadOptions(at_ms=ms(5)))
    found = books.find_waits()
    assert [(q.queue, q.gpus, q.held_gpus) for q in found.quotas] == [("a", 12, 12), ("b", 8, 5)]
    assert [
        (q.queue, f.flavor, f.gpus, f.held_gpus, f.borrowed_gpus, f.borrowing_gpus, f.lending_gpus)
        for q in found.quotas
        for f in q.by_flavor
    ] == [("a", "a100", 8, 6, 0, None, None), ("a", "h100", 4, 6, 2, 4, 2), ("b", "h100", 8, 5, 0, None, None)]
    assert [(c.cohort, c.flavor, c.gpus, c.held_gpus, c.borrowed_gpus) for c in found.cohorts] == [
        ("all", "a100", 8, 6, 0), ("all", "h100", 14, 11, 2), ("vision", "a100", 8, 6, 0), ("vision", "h100", 14, 11, 2),
    ]  # fmt: skip
    _, flavors, cohorts = build_waits(found, "").sections[-1].tables
    assert flavors.text_rows()[1] == ["a", "h100", "4", "6", "2", "4", "2"]
    assert cohorts.text_rows()[1] == ["all", "h100", "14", "11", "2"]
