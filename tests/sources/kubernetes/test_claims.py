"""Claims of dynamic resource allocation, and GPUs that ResourceSlices list: which a pod was given, on which node and when."""

from collections import defaultdict
from itertools import pairwise

import pytest
from tests.sources.kubernetes.objects import container, decode, listed, ms, node, pod

from loadfactor.sources.kubernetes.fields import prune
from loadfactor.sources.kubernetes.live_decoder import LISTED, LISTING, LiveKubernetesDecoder

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


def test_claimed_parts_sum_to_at_most_one():
    """Ten pods of one claim that come and go: at each moment what they hold is the GPU."""
    pods = [asking(f"p{i}", "all", bound=1 + i * 0.3, ended=3 + i * 0.7) for i in range(10)]
    found = spans(decode(listed(node("n1"), resource_slice(gpu(0)), claim("all", "gpu-0"), *pods)))
    pieces = [piece for (_, name), of in found.items() if name for piece in of]
    for begin, end in pairwise(sorted({at for piece in pieces for at in piece[:2]})):
        assert sum(part.expected for a, b, part in pieces if a <= begin and b >= end) == pytest.approx(1)


CREATED = -24.0
"""The hour at which the slices of these tests were created."""


def texts(**said):
    return {name: {"string": text} for name, text in said.items()}


def at_address(address, **said):
    return {"resource.kubernetes.io/pciBusID": {"string": address}, **texts(**said)}


def sliced(name, *devices, generation=1, count=1, **more):
    """A slice of this name, one of `count` of its pool."""
    found = resource_slice(*devices, **more)
    found["metadata"]["name"] = name
    found["spec"]["pool"] |= {"generation": generation, "resourceSliceCount": count}
    return found


def names(found):
    return {(row["device_id"], row["node"], row.get("accelerator")) for row in found["devices"]}


@pytest.mark.parametrize("api", LAYERS)
def test_whole_gpus_are_called_by_their_uuid(api):
    """With node and model, since the slice was created, until the file was saved; in every version of the API."""
    found = decode(listed(node("n1"), resource_slice(gpu(0), gpu(1), api=api)), at_ms=ms(5))
    assert names(found) == {(GPUS[0], "n1", "h100-sxm"), (GPUS[1], "n1", "h100-sxm")}
    assert {(row["from_utc"], row["to_utc"]) for row in found["devices"]} == {(ms(CREATED), ms(5))}
    assert not found["gaps"]


def test_a_gpu_that_may_be_cut_is_one():
    """Whole, as each instance of MIG it could be, and for a virtual machine: one GPU, by its number, behind those with a UUID."""
    counters = [{"counterSet": "gpu-0-counter-set", "counters": {"memory-slice-0": {"value": "1"}}}]
    whole = gpu(0)
    whole["attributes"] |= at_address("0000:0f:00.0")
    parts = [
        {**mig(0, profile), "name": f"gpu-0-mig-{n}", "consumesCounters": counters}
        for n, profile in enumerate(("1g.10gb", "1g.10gb", "3g.40gb"))
    ]
    vfio = {"name": "gpu-vfio-0", "attributes": at_address("0000:0F:00.0", type="vfio", uuid="5e0d4d6a-1111")}
    found = decode(listed(node("n1"), resource_slice({**whole, "consumesCounters": counters}, *parts, vfio, gpu(1))))
    assert names(found) == {(GPUS[1], "n1", "h100-sxm"), ("n1:gpu1", "n1", "h100-sxm")}


def test_instances_of_mig_are_parts_of_the_gpu_that_they_name():
    """Cut beforehand, the driver lists the instances alone."""
    found = decode(listed(resource_slice(mig(0), {**mig(0), "name": "gpu-0-mig-19-1-1"}, mig(1))))
    assert names(found) == {("n1:gpu0", "n1", "h100-sxm"), ("n1:gpu1", "n1", "h100-sxm")}


def test_partitions_of_amd_are_equal_parts():
    """At one address of the PCI bus: eight of them are a GPU, and a claim of two holds a quarter."""
    cpx = [
        {"name": f"gpu-{n}-{128 + n}", "attributes": at_address("0000:19:00.0", type="amdgpu-partition", productName="MI300X")}
        for n in range(8)
    ]  # fmt: skip
    whole = {"name": "gpu-8-136", "attributes": at_address("0000:1a:00.0", type="amdgpu", productName="MI300X")}
    there = [
        resource_slice(*cpx, whole, driver="gpu.amd.com"),
        claim("two", "gpu-0-128", "gpu-3-131", driver="gpu.amd.com"),
    ]
    found = decode(listed(node("n1"), *there, asking("a", "two", ended=3)))
    assert names(found) == {("n1:gpu0", "n1", "mi300x"), ("n1:gpu1", "n1", "mi300x")}
    assert spans(found) == {("a", None): [(ms(2), ms(3), 0.25)]}


def test_modes_that_amd_could_cut_a_gpu_into_are_one_gpu():
    """A claim consumes a partition of a mode: one of its eight, whatever memory it has."""
    modes = [
        {
            "name": f"gpu-0-{mode}",
            "attributes": at_address("0000:19:00.0", type="amdgpu-partition", productName="MI300X"),
            "capacity": {"partitions": {"value": str(n)}, "memory": {"value": f"{192 // n}Gi"}},
            "consumesCounters": [{"counterSet": "gpu-0-mutex", "counters": {"partition-mode": {"value": "1"}}}],
        }
        for mode, n in (("dpx-nps2", 2), ("cpx-nps4", 8))
    ]
    given = {"device": "gpu-0-cpx-nps4", "shareID": "s", "consumedCapacity": {"partitions": "1", "memory": "24Gi"}}
    there = [resource_slice(*modes, driver="gpu.amd.com"), claim("one", given, driver="gpu.amd.com")]
    found = decode(listed(node("n1"), *there, asking("a", "one", ended=3)))
    assert names(found) == {("n1:gpu0", "n1", "mi300x")}
    assert spans(found) == {("a", None): [(ms(2), ms(3), 0.125)]}


def test_gpus_without_a_uuid_are_known_by_their_number():
    """Intel's driver names none."""
    said = [texts(model="Max 1550", pciAddress=f"0000:{number}:00.0") for number in (3, 4)]
    intel = [{"name": f"0000-0{n}-00-0-0x0bda", "attributes": one} for n, one in enumerate(said)]
    found = decode(listed(resource_slice(*intel, driver="gpu.intel.com")))
    assert {name for name, _, _ in names(found)} == {"n1:gpu0", "n1:gpu1"}


def test_devices_may_name_their_nodes_themselves():
    """One of which no node is said cannot be counted, and that is said."""
    pool = resource_slice({**gpu(0), "nodeName": "n7"}, gpu(1))
    del pool["spec"]["nodeName"]
    found = decode(listed(pool))
    assert names(found) == {(GPUS[0], "n7", "h100-sxm")}
    assert found["gaps"] == [{"what": "GPUs of resourceslices that name no node: not listed", "count": 1}]


def test_only_the_newest_generation_of_a_pool_counts():
    """As soon as all its slices are there; other drivers' slices say nothing of GPUs."""
    old = [sliced("a", gpu(0), count=2), sliced("b", gpu(1), count=2)]
    new = [sliced("c", gpu(0), generation=2, count=2), sliced("d", gpu(2), generation=2, count=2)]
    network = sliced("e", {"name": "nic-0", "attributes": {}}, driver="dra.net")
    wanted = [GPUS[:2], GPUS[:2], [GPUS[0], GPUS[2]]]
    for slices, gpus in zip((old, [*old, new[0]], [*old, *new]), wanted, strict=True):
        assert {name for name, _, _ in names(decode(listed(*slices, network)))} == set(gpus)


def test_one_gpu_of_two_drivers_is_one():
    """HAMi's driver lists the GPUs of NVIDIA's."""
    found = decode(listed(resource_slice(gpu(0)), sliced("h", gpu(0), driver="hami-core-gpu.project-hami.io")))
    assert names(found) == {(GPUS[0], "n1", "h100-sxm")}


def slice_follow(*steps):
    """When each GPU was there, from what a watch tells, a new process for each step."""
    decoder, rows = LiveKubernetesDecoder("prod"), {}
    for at, what, one in steps:
        pruned = one and prune("ResourceSlice", one)
        decoder.feed([[ms(at), "ResourceSlice", what, pruned]])
        for item in decoder.drain():
            for row in item.data.to_pylist() if hasattr(item, "data") else ():
                rows[row["device_id"], row["from_utc"]] = row.get("to_utc")
        decoder = LiveKubernetesDecoder("prod", decoder.state())
    return rows


def test_a_watch_tells_when_gpus_come_and_go():
    """Since they were seen; one that is left out later ended then; what a list does not have ended when it was seen last."""
    both, one = sliced("s", gpu(0), gpu(1)), sliced("s", gpu(0), generation=2)
    first = ((2, LISTING, None), (2, "ADDED", both), (2, LISTED, None))
    assert slice_follow(*first, (4, "MODIFIED", one)) == {(GPUS[0], ms(2)): None, (GPUS[1], ms(2)): ms(4)}
    expected = {(GPUS[0], ms(2)): ms(4), (GPUS[1], ms(2)): ms(4)}
    assert slice_follow(*first, (4, "MODIFIED", one), (9, LISTING, None), (9, LISTED, None)) == expected


def test_a_driver_that_starts_again_takes_no_gpu_away():
    """Its slices are deleted and published anew within minutes; after hours they are new ones."""
    there = sliced("s", gpu(0))
    gone = ((2, "ADDED", there), (4, "DELETED", there))
    assert slice_follow(*gone) == {(GPUS[0], ms(2)): ms(4)}
    assert slice_follow(*gone, (4.1, "ADDED", sliced("t", gpu(0)))) == {(GPUS[0], ms(2)): None}
    assert slice_follow(*gone, (6, "ADDED", sliced("t", gpu(0)))) == {(GPUS[0], ms(2)): ms(4), (GPUS[0], ms(6)): None}
