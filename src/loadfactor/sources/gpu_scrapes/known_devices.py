"""GPUs, their parts, labels and holders as numbers, in the order first seen."""

import json
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.gpu_scrapes.series_identity import DeviceLabels

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
    """What the labels of a series say of its GPU: where it is, what it is, its MIG instance with its slices, its number."""

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
    """What the labels say of a holder besides its name."""

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
        self.told: dict[str, HolderFacts] = {}  # by holder, where anything is
        self.retold: set[str] = set()  # holders of which more was told, until somebody takes them
        self._places = PlaceFacts(np.empty(0, bool), np.empty(0, bool))

    def list_places(self) -> PlaceFacts:
        """What is known of all places by now."""
        if len(self._places.sized) < len(self.places):
            new = self.places.all[len(self._places.sized) :]
            facts = np.array([(instance is not None, sized) for _, instance, sized in new], bool)
            self._places = PlaceFacts(*(np.append(old, of) for old, of in zip(self._places, facts.T, strict=True)))
        return self._places

    def number(self, gpu: str, of: DeviceLabels) -> DeviceNumbers:
        """The numbers of a series of this GPU."""
        number = self.gpus.number(gpu)
        if of.holder is not None and (of.user or of.experiment or of.tags):
            self._tell(of.holder, of)
        place = self.places.number((number, of.instance, of.instance is None or of.slices is not None))
        labels = self.labels.number(GpuLabels(of.node, of.model, of.instance, of.slices, of.index))
        return DeviceNumbers(number, place, labels, self.holders.number((of.holder,) if of.holder is not None else ()))

    def _tell(self, holder: str, of: DeviceLabels) -> None:
        """Keep what is said of a holder. Its processes need not all say it; of two that say different tags the first counts."""
        before = self.told.get(holder, HolderFacts())
        tags = {**dict(of.tags), **json.loads(before.tags or "{}")}
        now = HolderFacts(
            of.user or before.user,
            of.experiment or before.experiment_id,
            json.dumps(tags, sort_keys=True, ensure_ascii=False) if tags else None,
        )
        if now != before:
            self.told[holder] = now
            self.retold.add(holder)

    def name_place(self, place: int) -> str:
        """The device of a place."""
        gpu, instance, _ = self.places.all[place]
        return self.gpus.all[gpu] if instance is None else f"{self.gpus.all[gpu]}/gi-{instance}"
