"""GPUs, their parts, labels and holders as numbers, in the order first seen."""

import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

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
_INSTANCE: Final = re.compile(r"(?:^|\.)([1-9])g\.")
_EXPORTERS: Final = ("dcgm-exporter", "metrics-exporter", "gpu-exporter")  # in the names of their own pods


@dataclass(frozen=True)
class DeviceLabels:
    """The GPU of a series by its labels."""

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


def read_labels(
    labels: Mapping[str, str], node: str | None, machine: str, names: Mapping[str, tuple[str, ...]] = LABELS
) -> DeviceLabels:
    """Read the GPU from labels, their names in lower case.

    `node` is what the caller calls the machine, `machine` what to call it where nobody says; `names` as LABELS.
    """
    found = {ours: next((labels[n] for n in all_ if labels.get(n)), None) for ours, all_ in names.items()}
    places = [labels[n] for n in names["node"] if labels.get(n)]
    node = node or next((p for p in places if not _is_exporter(p)), None)  # Hostname may be the exporter's own pod
    gpu, index = found["uuid"], found["index"]
    if gpu is not None:
        gpu = _UUID.sub(r"\1", gpu)  # replicas of a time-sliced GPU are one GPU
    elif index is not None:
        node = node or found["node"]
        gpu = f"{node or machine}/{index}"
    slices = _INSTANCE.search(found["profile"] or "")
    holder = _find_holder(found["job"], found["pod"], found["namespace"])
    return DeviceLabels(
        gpu,
        node,
        found["model"],
        found["instance"],
        int(slices[1]) if slices else None,
        holder,
        found.get("user"),
        found.get("experiment"),
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


T = TypeVar("T", bound=Hashable)


class Numbering(Generic[T]):
    """Things numbered from 0 in the order first seen."""

    def __init__(self) -> None:
        self.all: list[T] = []
        self._numbers: dict[T, int] = {}

    def __len__(self) -> int:
        return len(self.all)

    def number(self, thing: T) -> int:
        """Its number, a new one where it is new."""
        found = self._numbers.setdefault(thing, len(self.all))
        if found == len(self.all):
            self.all.append(thing)
        return found


Place = tuple[int, str | None, bool]  # GPU, MIG instance, whether that says its size


class GpuLabels(NamedTuple):
    """The GPU of a series by its labels: where it is, what it is, its MIG instance with its slices, its number."""

    node: str | None
    model: str | None
    instance: str | None
    slices: int | None
    number: int | None


class PlaceFacts(NamedTuple):
    """Of each place: whether it is a MIG instance, and whether the size of the device is known."""

    is_instance: NDArray[np.bool_]
    sized: NDArray[np.bool_]


class HolderFacts(NamedTuple):
    """Facts about a holder from labels, besides its name."""

    user: str | None = None
    experiment_id: str | None = None
    tags: str | None = None  # a JSON object


class DeviceNumbers(NamedTuple):
    """The numbers of what the labels of a series say."""

    gpu: int
    place: int
    labels: int
    holders: int


class KnownDevices:
    """Numbers of names, GPUs, places, labels and holders; only ever more."""

    def __init__(self) -> None:
        self.names: Numbering[str] = Numbering()
        self.gpus: Numbering[str] = Numbering()
        self.places: Numbering[Place] = Numbering()
        self.labels: Numbering[GpuLabels] = Numbering()
        self.holders: Numbering[tuple[str, ...]] = Numbering()
        self.holder_facts: dict[str, HolderFacts] = {}  # by holder, where anything is
        self.changed_holders: set[str] = set()  # holders of which more is known, until the change is taken
        self._places = PlaceFacts(np.empty(0, bool), np.empty(0, bool))

    def list_places(self) -> PlaceFacts:
        """Facts about all places known by now."""
        if len(self._places.sized) < len(self.places):
            new = self.places.all[len(self._places.sized) :]
            facts = np.array([(instance is not None, sized) for _, instance, sized in new], bool)
            self._places = PlaceFacts(*(np.append(old, of) for old, of in zip(self._places, facts.T, strict=True)))
        return self._places

    def number(self, gpu: str, of: DeviceLabels) -> DeviceNumbers:
        """The numbers of a series of this GPU."""
        number = self.gpus.number(gpu)
        if of.holder is not None and (of.user or of.experiment or of.tags):
            self._note_holder(of.holder, of)
        place = self.places.number((number, of.instance, of.instance is None or of.slices is not None))
        labels = self.labels.number(GpuLabels(of.node, of.model, of.instance, of.slices, of.index))
        return DeviceNumbers(number, place, labels, self.holders.number((of.holder,) if of.holder is not None else ()))

    def _note_holder(self, holder: str, of: DeviceLabels) -> None:
        """Keep what is known of a holder. Its processes need not all say it; of two that say different tags the first counts."""
        before = self.holder_facts.get(holder, HolderFacts())
        tags = {**dict(of.tags), **json.loads(before.tags or "{}")}
        now = HolderFacts(
            of.user or before.user,
            of.experiment or before.experiment_id,
            json.dumps(tags, sort_keys=True, ensure_ascii=False) if tags else None,
        )
        if now != before:
            self.holder_facts[holder] = now
            self.changed_holders.add(holder)

    def name_place(self, place: int) -> str:
        """The device of a place."""
        gpu, instance, _ = self.places.all[place]
        return self.gpus.all[gpu] if instance is None else f"{self.gpus.all[gpu]}/gi-{instance}"
