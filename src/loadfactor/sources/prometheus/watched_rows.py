"""Devices and allocations as far as they were seen: each time those of the scrapes at hand, few of which say anything new."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.sources.base import Rows
from loadfactor.sources.gpu_scrapes.known_devices import HolderFacts, KnownDevices
from loadfactor.sources.gpu_scrapes.scrape_table import ScrapeColumns
from loadfactor.sources.gpu_scrapes.series_identity import find_team
from loadfactor.sources.gpu_scrapes.table_rows import BATCH_ROWS, ScrapeRows
from loadfactor.sources.gpu_scrapes.timeline import Timeline
from loadfactor.sources.prometheus.seen_rows import SeenRows
from loadfactor.tables.schema import LABELS, table

_DEVICE: Final = ("device_id", "node", "accelerator", "gpu_index", "from_utc")
_ALLOCATION: Final = ("job_id", "device_id", "team", "user", "experiment_id", "tags", "known_from", "from_utc")


class WatchedRows:
    """Rows of whole GPUs, and of holders that share with nobody, are made once and get another end; others are made each time."""

    def __init__(self, rows: ScrapeRows, known: KnownDevices, where: str) -> None:
        self._rows, self._known, self._where = rows, known, where
        self._devices = SeenRows(_pick_schema("devices", _DEVICE))
        self._allocations = SeenRows(_pick_schema("allocations", _ALLOCATION))
        self._divided: set[int] = set()  # GPUs
        self._shared: set[int] = set()  # places

    def list_devices(self, line: Timeline) -> Iterator[Rows]:
        """What the GPUs of these scrapes are, and what they were until now."""
        begins = np.flatnonzero(line.is_first)
        gpus, to_ms = line.gpu[begins], line.at_ms[np.append(begins[1:], len(line.gpu)) - 1]
        seen = set(gpus.tolist())
        slow = (self._rows.changed | self._divided) & seen
        fast = _exclude(gpus, slow)
        yield from self._make("devices", self._devices.take(gpus[fast], to_ms[fast]))
        yield from self._rows.make_devices(sorted(slow))
        for gpu in self._rows.changed & seen:
            facts = self._rows.gpus[gpu]
            self._devices.forget(gpu)
            self._divided.discard(gpu)
            if facts.is_divided:
                self._divided.add(gpu)
            else:
                ((device_id, (_, from_ms)),) = facts.history.open.items()
                self._devices.put(gpu, (device_id, facts.node, facts.accelerator, facts.index, from_ms))
        self._rows.changed -= seen

    def list_allocations(self, scrapes: ScrapeColumns) -> Iterator[Rows]:
        """Who holds the devices of these scrapes."""
        places, last = np.unique(scrapes.place[::-1], return_index=True)
        to_ms = scrapes.at_ms[::-1][last]
        places_of_all = self._known.places.all
        if self._known.retold:
            retold, self._known.retold = self._known.retold, set()
            spans = self._rows.holders.open.items()
            self._rows.holders.changed |= {place for place, span in spans if not retold.isdisjoint(span.holders)}
        changed = self._rows.holders.changed
        seen = set(places.tolist())
        beside = {p for p in seen if places_of_all[p][0] in self._divided} if self._divided else set()
        slow = (changed | self._shared | beside) & seen
        fast = _exclude(places, slow)
        yield from self._make("allocations", self._allocations.take(places[fast], to_ms[fast]))
        yield from self._rows.make_allocations(self._rows.holders.list_open(sorted(slow)))
        for place in changed & seen:
            span = self._rows.holders.open.get(place)
            self._allocations.forget(place)
            self._shared.discard(place)
            if span is not None and len(span.holders) > 1:
                self._shared.add(place)
            elif span is not None:
                holder = span.holders[0]
                told = self._known.told.get(holder, HolderFacts())
                device = self._known.name_place(place)
                self._allocations.put(place, (holder, device, find_team(holder), *told, LABELS, span.from_ms))
        self._rows.holders.changed = changed - seen

    def _make(self, name: str, data: pa.Table) -> Iterator[Rows]:
        for i in range(0, data.num_rows, BATCH_ROWS):
            yield Rows(name, data.slice(i, BATCH_ROWS), self._where)


def _exclude(numbers: NDArray[np.int32], others: Iterable[int]) -> NDArray[np.bool_]:
    return ~np.isin(numbers, np.array(sorted(others), np.int64))


def _pick_schema(name: str, columns: tuple[str, ...]) -> pa.Schema:
    schema = table(name).schema
    return pa.schema([schema.field(column) for column in columns])
