"""The identity of a series by its labels: its GPU or MIG instance, and who held that."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from loadfactor.sources.gpu_scrapes.fields import Field
from loadfactor.sources.parsing.environment_tags import tag_labels

LABELS: Final = {
    "uuid": ("uuid", "gpu_uuid"),
    "index": ("gpu",),
    "model": ("modelname", "model_name"),
    "node": ("hostname", "node", "kubernetes_node"),
    "instance": ("gpu_i_id",),
    "profile": ("gpu_i_profile", "dra_mig_profile"),
    "job": ("hpc_job", "exported_hpc_job"),
    "pod": ("exported_pod", "pod", "pod_name"),
    "namespace": ("exported_namespace", "namespace", "pod_namespace"),
    "user": ("user",),
    "experiment": ("experiment",),
}
"""Labels in lower case, best first. Prometheus calls a pod's labels exported_… where it keeps `pod` for the exporter's own."""

SLICES: Final = {"A30": 4, "RTX PRO 6000": 4, "RTX PRO 5000": 4}
SLICES_ELSE: Final = 7
"""Compute slices that MIG cuts a GPU into, by model."""


_UUID: Final = re.compile(r"(GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})(?:::|-)\d+")
_INDEX: Final = re.compile(r"[0-9]{1,3}")
_INSTANCE: Final = re.compile(r"(?:^|\.)(\d+)g\.")
_EXPORTERS: Final = ("dcgm-exporter", "metrics-exporter", "gpu-exporter")  # in the names of their own pods


@dataclass(frozen=True)
class DeviceLabels:
    """What the labels of a series say of its GPU."""

    gpu: str | None  # its UUID, or node/number; None: the series is of no GPU
    node: str | None
    model: str | None
    instance: str | None  # id of the MIG instance
    slices: int | None  # compute slices of that instance; None: the labels do not say
    holder: str | None  # the job or pod
    user: str | None = None  # whose it is
    experiment: str | None = None  # of which it is a run
    tags: tuple[tuple[str, str], ...] = ()  # what its environment says
    index: int | None = None  # the GPU's number on its node


@dataclass(frozen=True)
class SeriesIdentity:
    """What a metric name with its labels says."""

    name: str
    field: Field | None  # None: a field that the tables do not keep
    device: DeviceLabels


def read_labels(
    labels: Mapping[str, str], node: str | None, machine: str, names: Mapping[str, tuple[str, ...]] = LABELS
) -> DeviceLabels:
    """What these labels, their names in lower case, say.

    `node` is what the caller calls the machine, `machine` what to call it where nobody says; `names` as LABELS.
    """
    said = {ours: next((labels[n] for n in all_ if labels.get(n)), None) for ours, all_ in names.items()}
    places = [labels[n] for n in names["node"] if labels.get(n)]
    node = node or next((p for p in places if not _is_exporter(p)), None)  # Hostname may be the exporter's own pod
    gpu, index = said["uuid"], said["index"]
    if gpu is not None:
        gpu = _UUID.sub(r"\1", gpu)  # replicas of a time-sliced GPU are one GPU
    elif index is not None:
        node = node or said["node"]
        gpu = f"{node or machine}/{index}"
    slices = _INSTANCE.search(said["profile"] or "")
    holder = _find_holder(said["job"], said["pod"], said["namespace"])
    return DeviceLabels(
        gpu,
        node,
        said["model"],
        said["instance"],
        int(slices[1]) if slices else None,
        holder,
        said.get("user"),
        said.get("experiment"),
        tag_labels(labels),
        read_index(index),
    )


def read_index(text: str | None) -> int | None:
    """A GPU's number on its node; None where the text is none.

    >>> read_index("3"), read_index("nvidia3"), read_index("")
    (3, None, None)
    """
    return int(text) if text and _INDEX.fullmatch(text) else None


def count_slices(model: str | None) -> int:
    """Compute slices that MIG cuts a GPU of this model into.

    >>> count_slices("NVIDIA A30"), count_slices("NVIDIA A100-SXM4-40GB")
    (4, 7)
    """
    words = f" {(model or '').replace('-', ' ')} "
    return next((count for name, count in SLICES.items() if f" {name} " in words), SLICES_ELSE)


def _find_holder(job: str | None, pod: str | None, namespace: str | None) -> str | None:
    if job:
        return job
    if not pod or _is_exporter(pod):  # a scraped label of the exporter itself
        return None
    return f"{namespace}/{pod}" if namespace else pod


def find_team(holder: str) -> str | None:
    """The team of a holder where nobody says it: the namespace of its pod.

    >>> find_team("research/llm-0"), find_team("4711")
    ('research', None)
    """
    namespace, slash, _ = holder.partition("/")
    return namespace if slash else None


def _is_exporter(name: str) -> bool:
    return any(exporter in name for exporter in _EXPORTERS)
