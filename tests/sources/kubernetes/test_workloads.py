"""Waits for a quota of Kueue: from creation or eviction until admission."""

import json

from tests.sources.kubernetes.decoding import decode
from tests.sources.kubernetes.objects import condition, listed, ms, node, owned, owner, pod, workload

RESERVED, ADMITTED = condition("QuotaReserved", "True", 3), condition("Admitted", "True", 3, "Admitted")
PENDING = condition(
    "QuotaReserved", "False", 1, "Pending", "couldn't assign flavors to pod set main: insufficient quota"
)


def events(found):
    """What happened, and when."""
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
    assert sorted(events(found), key=lambda e: e[1]) == [
        ("submitted", ms(1)),
        ("started", ms(3)),
        ("requeued", ms(4)),
        ("started", ms(6)),
    ]
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
