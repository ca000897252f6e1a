"""Kubernetes: pods that hold or wait for GPUs, nodes, Kueue workloads and claims, as `kubectl get … -o json` prints them."""

from loadfactor.sources.base import Source
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.kubernetes.saved import decode_objects

SOURCE = Source(
    "kubernetes",
    find_with((".json", ".json.gz"), "objects saved as JSON"),
    read_with(decode_objects),
    watches=True,
    uses=("at",),
)
