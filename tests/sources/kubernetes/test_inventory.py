"""GPUs that ResourceSlices list: each once, on its node, since when and until when."""

import pytest
from tests.sources.kubernetes.objects import decode, listed, ms, node
from tests.sources.kubernetes.test_claims import GPUS, LAYERS, asking, claim, gpu, mig, resource_slice, spans

from loadfactor.sources.kubernetes.fields import prune
from loadfactor.sources.kubernetes.live_decoder import LISTED, LISTING, LiveKubernetesDecoder

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


def follow(*steps):
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
    assert follow(*first, (4, "MODIFIED", one)) == {(GPUS[0], ms(2)): None, (GPUS[1], ms(2)): ms(4)}
    expected = {(GPUS[0], ms(2)): ms(4), (GPUS[1], ms(2)): ms(4)}
    assert follow(*first, (4, "MODIFIED", one), (9, LISTING, None), (9, LISTED, None)) == expected


def test_a_driver_that_starts_again_takes_no_gpu_away():
    """Its slices are deleted and published anew within minutes; after hours they are new ones."""
    there = sliced("s", gpu(0))
    gone = ((2, "ADDED", there), (4, "DELETED", there))
    assert follow(*gone) == {(GPUS[0], ms(2)): ms(4)}
    assert follow(*gone, (4.1, "ADDED", sliced("t", gpu(0)))) == {(GPUS[0], ms(2)): None}
    assert follow(*gone, (6, "ADDED", sliced("t", gpu(0)))) == {(GPUS[0], ms(2)): ms(4), (GPUS[0], ms(6)): None}
