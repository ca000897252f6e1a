"""Divided GPUs: what pods claim of one sums to at most one."""

import pytest
from tests.sources.kubernetes.decoding import decode
from tests.sources.kubernetes.objects import container, listed, node, pod

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
