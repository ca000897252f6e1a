"""Claims of dynamic resource allocation: which GPUs a pod was given, and how much of each."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from tests.sources.kubernetes.objects import container, decode, listed, ms, node, pod

from loadfactor.sources.kubernetes.fields import prune
from loadfactor.sources.kubernetes.live_decoder import LiveKubernetesDecoder

STATES = Path(__file__).parents[1] / "earlier_states"

GPUS = [f"GPU-0000000{i}-1111-2222-3333-444444444444" for i in range(3)]
LAYERS = {
    "v1": lambda device: device,
    "v1beta2": lambda device: device,
    "v1beta1": lambda device: {"name": device.pop("name"), "basic": device},
}


def resource_slice(*devices, api="v1", driver="gpu.nvidia.com"):
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": f"resource.k8s.io/{api}",
        "kind": "ResourceSlice",
        "metadata": {"name": f"n1-{driver}-x7k2p", "uid": "slice", "creationTimestamp": "2026-11-01T00:00:00Z"},
        "spec": {"driver": driver, "nodeName": "n1", "pool": pool, "devices": [LAYERS[api](d) for d in devices]},
    }


def gpu(number, **more):
    texts = {"type": "gpu", "uuid": GPUS[number], "productName": "NVIDIA H100 80GB HBM3", "architecture": "Hopper"}
    texts["resource.kubernetes.io/pcieRoot"] = "pci0000:01"
    attributes = {name: {"string": text} for name, text in texts.items()}
    attributes["cudaComputeCapability"] = {"version": "9.0.0"}
    capacity = {"memory": {"value": "80Gi"}}
    return {"name": f"gpu-{number}", "attributes": attributes, "capacity": capacity, **more}


def mig(number, profile="1g.10gb", product="NVIDIA H100 80GB HBM3"):
    texts = {"type": "mig", "uuid": f"MIG-{GPUS[number][4:]}", "parentUUID": GPUS[number]}
    texts |= {"profile": profile, "productName": product}
    return {"name": f"gpu-{number}-mig-19-0-1", "attributes": {name: {"string": text} for name, text in texts.items()}}  # fmt: skip


def claim(name, *devices, pods=(), driver="gpu.nvidia.com", **more):
    """A ResourceClaim, allocated where there are devices: each a name, or more of its result."""
    named = [{"device": device} if isinstance(device, str) else device for device in devices]
    results = [{"request": "gpus", "driver": driver, "pool": "n1", **one} for one in named]
    request = {"name": "gpus", "exactly": {"deviceClassName": driver, "allocationMode": "ExactCount", "count": 2}}
    status = {
        "allocation": {"devices": {"results": results, "config": [{"opaque": {"parameters": {"sharing": "secret"}}}]}},
        "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in pods],
    }
    metadata, spec = {"name": name, "namespace": "team-a", "uid": name}, {"devices": {"requests": [request]}}
    found = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
    return found | {"status": status if devices else {}, **more}


def asking(name, *claims, bound=2.0, ended=None, **more):
    """A pod with these claims; one that begins with = is made from a template and called so in its status."""
    asked = [{"name": c.strip("="), **({} if c[0] == "=" else {"resourceClaimName": c})} for c in claims]
    made = [{"name": c[1:], "resourceClaimName": c[1:]} for c in claims if c[0] == "="]
    where = {} if bound is None else {"bound": bound, "node": "n1"}
    return pod(
        name, 1, uid=name, ended=ended, containers=[container({"cpu": "1"})], spec={"resourceClaims": asked},
        status={"resourceClaimStatuses": made, **more.pop("status", {})}, **where, **more,
    )  # fmt: skip


def spans(found):
    """By job and GPU (None: what its node counts): from when to when which part."""
    rows = defaultdict(list)
    for row in sorted(found["allocations"], key=lambda row: row["from_utc"]):
        if row["to_utc"] > row["from_utc"]:
            part = (row.get("gpus") or 1) * (row.get("share") or 1)
            rows[row["job_id"][7:], row.get("device_id")].append((row["from_utc"], row["to_utc"], pytest.approx(part)))
    return dict(rows)


def hours(*pieces):
    return [(ms(begin), ms(end), part) for begin, end, part in pieces]


@pytest.mark.parametrize("api", LAYERS)
def test_a_claim_names_the_gpus_of_its_pod(api):
    """By their UUID as exporters tell it, beside the row of their node; in every version of the API."""
    there = [node("n1"), resource_slice(gpu(0), gpu(1), api=api), claim("made", "gpu-0", "gpu-1", pods=["a"])]
    found = decode(listed(*there, asking("a", "=made", ended=3)))
    assert spans(found) == {("a", name): hours((2, 3, n)) for name, n in ((None, 2), (GPUS[0], 1), (GPUS[1], 1))}
    assert [row.get("known_from") for row in found["allocations"]].count("labels") == 2
    assert not found["gaps"]


def test_parts_of_gpus_by_claims():
    """An instance of MIG is its slices, and not named. A network card is no GPU, and an administrator holds none."""
    there = [resource_slice(gpu(0), mig(1), mig(2, "2g.12gb", "NVIDIA A30")), claim("one", "gpu-1-mig-19-0-1", "gpu-0"),
             claim("half", "gpu-2-mig-19-0-1"), claim("net", "nic-0", driver="dra.net"),
             claim("admin", {"device": "gpu-0", "adminAccess": True})]  # fmt: skip
    asked = {"a": ("one", "net"), "b": ("half",), "c": ("net",), "d": ("admin",)}
    pods = [asking(name, *claims, ended=3) for name, claims in asked.items()]
    found = spans(decode(listed(node("n1"), *there, *pods)))
    expected = {("a", None): hours((2, 3, 8 / 7)), ("a", GPUS[0]): hours((2, 3, 1)), ("b", None): hours((2, 3, 0.5))}
    assert found == expected


def test_pods_that_share_a_claim_hold_equal_parts_while_they_do():
    """One alone holds all of it; a second one joins, the first one leaves."""
    there = [resource_slice(gpu(0)), claim("both", "gpu-0", pods=["a", "b"])]
    pods = [asking("a", "both", bound=2, ended=6), asking("b", "both", bound=4, ended=9)]
    found = spans(decode(listed(node("n1"), *there, *pods)))
    wanted = {"a": hours((2, 4, 1), (4, 6, 0.5)), "b": hours((4, 6, 0.5), (6, 9, 1))}
    assert found == {(name, gpu_id): wanted[name] for name in wanted for gpu_id in (None, GPUS[0])}


def test_pods_that_are_not_watched_share_too():
    """The claim is reserved for a pod that other labels keep from being seen."""
    there = [resource_slice(gpu(0)), claim("both", "gpu-0", pods=["a", "unseen"])]
    assert spans(decode(listed(node("n1"), *there, asking("a", "both", ended=3))))["a", None] == hours((2, 3, 0.5))


def test_consumable_capacity_is_the_part_of_the_memory():
    """Claims of one device have what they consume of it; pods of one claim divide that; without amounts all divide the device."""
    shared = gpu(0, allowMultipleAllocations=True)
    given = {"device": "gpu-0", "shareID": "s1", "consumedCapacity": {"memory": "20Gi"}}
    claims = [
        claim("quarter", given),
        claim("half", {**given, "shareID": "s2", "consumedCapacity": {"gpu.nvidia.com/memory": "40Gi"}}),
        claim("any", {"device": "gpu-1", "shareID": "s3"}),
        claim("other", {"device": "gpu-1", "shareID": "s4"}),
    ]
    pods = [asking("a", "quarter", ended=3), asking("b", "half", ended=3), asking("c", "half", ended=3),
            asking("d", "any", ended=3), asking("e", "other", ended=3)]  # fmt: skip
    found = spans(decode(listed(node("n1"), resource_slice(shared, gpu(1)), *claims, *pods)))
    assert {name: found[name, None] for name in "abcde"} == {
        "a": hours((2, 3, 0.25)), "b": hours((2, 3, 0.25)), "c": hours((2, 3, 0.25)),
        "d": hours((2, 3, 0.5)), "e": hours((2, 3, 0.5)),
    }  # fmt: skip


def test_claims_with_and_without_a_part_are_one_gpu_together():
    """Who was given no part of a device has what the others leave while they are there; more than there is, is scaled down."""
    quarter, most = (
        {"device": "gpu-0", "shareID": f"s{n}", "consumedCapacity": {"memory": n}} for n in ("20Gi", "75Gi")
    )
    claims = [claim("some", quarter), claim("any", {"device": "gpu-0", "shareID": "s0"}), claim("most", most)]
    pods = [
        asking("a", "some", bound=2, ended=4),
        asking("b", "any", bound=3, ended=8),
        asking("c", "most", bound=6, ended=8),
    ]
    found = spans(decode(listed(node("n1"), resource_slice(gpu(0)), *claims, *pods)))
    assert found["a", None] == hours((2, 4, 0.25))
    assert found["b", None] == hours((3, 4, 0.75), (4, 6, 1), (6, 8, 1 / 16))
    assert found["c", None] == hours((6, 8, 15 / 16))
    claims[2] = claim("most", {**most, "consumedCapacity": {"memory": "80Gi"}})
    found = spans(decode(listed(node("n1"), resource_slice(gpu(0)), *claims, *pods)))
    assert found["c", None] == found["b", None][2:] == hours((6, 8, 0.5))


def test_several_claims_of_one_pod_add_up():
    """Two GPUs of two claims, one of them named twice."""
    there = [resource_slice(gpu(0), gpu(1)), claim("one", "gpu-0"), claim("two", "gpu-1")]
    one = asking("a", "one", "two", "one", ended=3)
    assert spans(decode(listed(node("n1"), *there, one)))["a", None] == hours((2, 3, 2))


def test_a_claim_of_an_instance_of_mig_waits_with_its_part():
    """Its class is NVIDIA's for instances; the profile stands in what it selects."""
    asked = claim("later")
    selected = {"cel": {"expression": "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"}}
    asked["spec"]["devices"]["requests"][0]["exactly"] |= {"deviceClassName": "mig.nvidia.com", "selectors": [selected]}
    for one in (asked, {**prune("ResourceClaim", asked), "kind": "ResourceClaim"}):
        (event,) = decode(listed(one, asking("a", "later", bound=None)))["queue_events"]
        assert event["gpus"] == pytest.approx(2 / 7)


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu.nvidia.com"])
def test_a_claim_that_the_scheduler_made_for_a_resource_counts_once(resource):
    """What containers ask for counts; the claim that gives it is the same GPUs."""
    mapped = [{"containerName": "main", "resourceName": resource, "requestName": "container-0-request-0"}]
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "made", "requestMappings": mapped}}
    one = pod("a", 1, uid="a", bound=2, ended=3, node="n1", containers=[container({resource: 2})], status=status)
    there = [resource_slice(gpu(0), gpu(1)), claim("made", "gpu-0", "gpu-1", pods=["a"])]
    found = decode(listed(node("n1", resources={}), *there, one))
    assert spans(found) == {("a", None): hours((2, 3, 2))}
    assert not found["gaps"]


def test_a_claim_that_is_not_met_waits():
    """With the GPUs that it asks for."""
    (event,) = decode(listed(claim("later"), asking("a", "later", bound=None)))["queue_events"]
    assert (event["event"], event["gpus"]) == ("submitted", 2)


def test_what_claims_do_not_say_is_a_gap():
    """A driver that nobody knows, and devices that no slice lists: they count on the node."""
    claims = [claim("odd", "g", driver="gpu.example.com"), claim("lost", "gpu-9")]
    found = decode(listed(node("n1"), *claims, asking("a", "odd", ended=3), asking("b", "lost", ended=3)))
    assert spans(found) == {("b", None): hours((2, 3, 1))}
    said = sorted(gap["what"] for gap in found["gaps"])
    assert said[0] == "claims of devices of gpu.example.com, which nobody here knows"
    assert said[1].startswith("pods with claims of devices that no resourceslice in it lists")


def follow(*steps, restarted=False):
    """The last row of each key that a watch tells, objects coming in one by one; `restarted`: a new process for each."""
    decoder, rows = LiveKubernetesDecoder("prod"), {}
    for at, what, one in steps:
        decoder.feed([[ms(at), one["kind"], what, prune(one["kind"], one)]])
        for item in decoder.drain():
            for row in item.data.to_pylist() if hasattr(item, "data") and item.table == "allocations" else ():
                rows[row["job_id"], row.get("device_id"), row.get("node"), row["from_utc"]] = row
        if restarted:
            decoder = LiveKubernetesDecoder("prod", decoder.state())
    return {"allocations": [{k: v for k, v in row.items() if v is not None} for row in rows.values()]}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_watch_tells_the_same_in_any_order(restarted):
    """Slices that come late, a claim that is given to others after its pod, an end that is corrected: parts sum to one at most."""
    both = claim("both", "gpu-0", pods=["a", "b"])
    steps = [
        (2, "ADDED", node("n1")),
        (2, "ADDED", claim("both")),
        (2, "ADDED", asking("a", "both", bound=2)),
        (2, "MODIFIED", both),
        (4, "ADDED", asking("b", "both", bound=4)),
        (5, "ADDED", resource_slice(gpu(0))),
        (6, "DELETED", asking("a", "both", bound=2, deleted=6)),
        (9, "MODIFIED", asking("b", "both", bound=4, ended=9)),
        (9, "MODIFIED", claim("both")),
        (9, "DELETED", claim("both")),
        (10, "DELETED", asking("b", "both", bound=4, ended=9)),
    ]
    found = spans(follow(*steps, restarted=restarted))
    wanted = {"a": hours((2, 4, 1), (4, 6, 0.5)), "b": hours((4, 6, 0.5), (6, 9, 1))}
    assert found == {(name, gpu_id): wanted[name] for name in wanted for gpu_id in (None, GPUS[0])}


def test_what_was_told_and_is_not_so_is_taken_back():
    """A pod that its node refuses in the end held no device: its rows are of no time, and the other pod has it alone."""
    refused = asking("b", "both", bound=4, phase="Failed", status={"reason": "UnexpectedAdmissionError"}, ended=5)
    steps = [(2, "ADDED", one) for one in (node("n1"), resource_slice(gpu(0)), claim("both", "gpu-0", pods=["a", "b"]))]
    steps += [(4, "ADDED", asking("a", "both")), (4, "ADDED", asking("b", "both", bound=4)), (5, "MODIFIED", refused)]
    found = spans(follow(*steps, (9, "MODIFIED", asking("a", "both", ended=9))))
    assert found == {("a", gpu_id): hours((2, 9, 1)) for gpu_id in (None, GPUS[0])}


def test_a_state_of_version_1_goes_on():
    """It knew how many GPUs claims are: rows after it count the same, and end."""
    decoder = LiveKubernetesDecoder("prod", (STATES / "kubernetes-1.state").read_bytes())
    decoder.feed([[ms(9), "Pod", "MODIFIED", prune("Pod", asking("a", "one", ended=9))]])
    (rows,) = decoder.drain()
    assert spans({"allocations": rows.data.to_pylist()}) == {("a", None): hours((2, 9, 1 / 7))}


def test_claimed_parts_sum_to_at_most_one():
    """Ten pods of one claim that come and go: at each moment what they hold is the GPU."""
    pods = [asking(f"p{i}", "all", bound=1 + i * 0.3, ended=3 + i * 0.7) for i in range(10)]
    found = spans(decode(listed(node("n1"), resource_slice(gpu(0)), claim("all", "gpu-0"), *pods)))
    pieces = [piece for (_, name), of in found.items() if name for piece in of]
    for begin, end in pairwise(sorted({at for piece in pieces for at in piece[:2]})):
        assert sum(part.expected for a, b, part in pieces if a <= begin and b >= end) == pytest.approx(1)
