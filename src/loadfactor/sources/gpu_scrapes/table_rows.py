"""Scrapes of all GPUs → rows: samples, devices and, where pods are named, allocations."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.sources.base import Rows
from loadfactor.sources.gpu_scrapes.known_devices import GpuLabels, HolderFacts, KnownDevices, count_slices, find_team
from loadfactor.sources.gpu_scrapes.sample_columns import (
    CounterRates,
    find_hot,
    make_samples,
    read_values,
)
from loadfactor.sources.gpu_scrapes.scrape_table import IS_VALUE, ScrapeColumns, TextGaps, Timeline
from loadfactor.tables.schema import BRIDGED, LABELS, LINGER_MS, REST, table
from loadfactor.tables.signals import PROFILED, find_failed_profiling

PARTS_EQUAL: Final = "holders of one GPU at once: an equal part of it each, as labels say no more"
Parts = tuple[tuple[str, float | None], ...]  # device and its share of the GPU; None is the whole


def divide(gpu: str, instances: dict[str, int], slices: int) -> Parts:
    """The devices of a GPU: their shares sum to one, so that its hours do, also of instances that are more than the GPU.

    >>> divide("G", {}, 7)
    (('G', None),)
    >>> divide("G", {"1": 3, "2": 2}, 7)
    (('G/gi-1', 0.42857142857142855), ('G/gi-2', 0.2857142857142857), ('G/rest', 0.2857142857142857))
    """
    if not instances:
        return ((gpu, None),)
    used = sum(instances.values())
    whole = max(slices, used)
    found: list[tuple[str, float | None]] = [(f"{gpu}/gi-{i}", n / whole) for i, n in sorted(instances.items())]
    return (*found, (f"{gpu}{REST}", (whole - used) / whole)) if used < whole else tuple(found)


@dataclass(frozen=True)
class InstalledSpan:
    """One row of the table `devices`."""

    device_id: str
    share: float | None
    from_ms: int
    to_ms: int


class MigHistory:
    """The parts of one GPU over time: those that are, and those that were until somebody takes them."""

    def __init__(self) -> None:
        self.open: dict[str, tuple[float | None, int]] = {}  # share and since when, by device
        self.to_ms = 0  # when the open ones were last seen
        self._parts: Parts | None = None
        self._closed: list[InstalledSpan] = []

    def see(self, now: Parts, from_ms: int, to_ms: int) -> None:
        """From `from_ms` to `to_ms` the GPU was these parts. One that stays while others change is one row."""
        if now != self._parts:
            since, parts = self.to_ms if self.open else from_ms, dict(now)
            for device_id, (share, begun_ms) in list(self.open.items()):
                if device_id not in parts or parts[device_id] != share:
                    self._closed.append(InstalledSpan(device_id, share, begun_ms, self.to_ms))
                    del self.open[device_id]
            for device_id, share in now:
                self.open.setdefault(device_id, (share, since))
            self._parts = now
        self.to_ms = to_ms

    def take_spans(self) -> Iterator[InstalledSpan]:
        """Every device that ended since the last time, and those that are, up to where they were last seen."""
        closed, self._closed = self._closed, []
        yield from closed
        for device_id, (share, from_ms) in self.open.items():
            yield InstalledSpan(device_id, share, from_ms, self.to_ms)


BATCH_ROWS: Final = 20_000
_ALSO_PROFILED: Final = ("dram_active_share", "fp32_active_share", "sm_occupancy_share")  # an idle pipe proves nothing
_Shape = tuple[bool, bool, float | None]  # divided, into more than there is, limit of power


class GpuFacts:
    """Memory of one GPU from scrape to scrape."""

    def __init__(self) -> None:
        self.node: str | None = None
        self.model: str | None = None
        self.accelerator: str | None = None
        self.index: int | None = None
        self.tdp_w: float | None = None
        self.history = MigHistory()
        self.label_numbers: tuple[int, ...] = ()  # numbers of the labels last read
        self.parts: tuple[tuple[str, float | None], ...] = ()  # what they say it is cut into
        self.is_divided = False  # into MIG instances
        self.is_too_much = False  # more of them than the GPU

    def read_labels(self, node: str | None, model: str | None, index: int | None = None) -> None:
        """The labels of a line say where it is, what it is, and its number there."""
        self.node = node or self.node
        self.index = self.index if index is None else index
        if model and model != self.model:
            known = find_accelerator(model)
            self.model, self.accelerator = model, known.id if known else model
            self.tdp_w = known.get("tdp_w") if known else None

    def read_all(self, gpu_id: str, labels: list[GpuLabels]) -> None:
        """The labels of all lines of one scrape."""
        for label in labels:
            self.read_labels(label.node, label.model, label.number)
        instances = {label.instance: label.slices for label in labels if label.instance and label.slices is not None}
        whole = count_slices(self.model)
        self.parts = divide(gpu_id, instances, whole)
        self.is_divided, self.is_too_much = bool(instances), sum(instances.values()) > whole


@dataclass(frozen=True)
class HeldSpan:
    """One row of the table `allocations`. `place` is the device, a number of KnownDevices."""

    job_id: str
    place: int
    share: float | None  # None: all of it
    from_ms: int
    to_ms: int
    known_from: str = LABELS


class ScrapeRows:
    """Turns scrapes into rows, in batches. Gaps are counted under `where`: a scrape may come from several inputs."""

    def __init__(self, pool: str | None, where: str, known: KnownDevices, gaps: TextGaps) -> None:
        self._pool, self._where, self._known, self._gaps = pool, where, known, gaps
        self.gpus: dict[int, GpuFacts] = {}
        self.changed: set[int] = set()  # GPUs whose labels changed, until the change is taken
        self.rates = CounterRates()
        self.holders = Holders()
        self._names = pa.array([], pa.string())  # of the places

    def add(self, scrapes: ScrapeColumns, line: Timeline) -> Iterator[Rows]:
        """Samples, and the allocations that ended, of scrapes that are sorted by GPU, then time."""
        if not len(scrapes):
            return
        is_divided, tdp = self._read_labels(line, scrapes)
        is_instance = self._known.list_places().is_instance[scrapes.place]
        beside = is_divided[line.of_row] & ~is_instance
        extra = beside & (scrapes.state == IS_VALUE).any(axis=1)
        self._gaps.add(self._where, "values of a whole GPU beside those of its MIG instances", int(extra.sum()))
        order = np.flatnonzero(~beside)
        if is_instance.any():  # each device's own in a row
            of_gpu = np.cumsum(np.append(True, scrapes.gpu[1:] != scrapes.gpu[:-1]))
            order = order[np.lexsort((scrapes.at_ms[order], scrapes.place[order], of_gpu[order]))]
        tdp_w = np.where(is_instance, np.nan, tdp[line.of_row])[order]
        at = line.of_row[order]
        yield from self._make_samples(scrapes.pick(order), line.step_ms[at], tdp_w)
        yield from self.make_allocations(self._see_holders(scrapes.pick(order), line.start_ms[at]))

    def make_devices(self, gpus: Iterable[int]) -> Iterator[Rows]:
        """The devices that these GPUs were and are."""
        rows = [(gpu, row) for gpu in map(self.gpus.__getitem__, gpus) for row in gpu.history.take_spans()]
        for i in range(0, len(rows), BATCH_ROWS):
            part = rows[i : i + BATCH_ROWS]
            yield self._make_rows(
                "devices",
                {
                    "device_id": [r.device_id for _, r in part],
                    "node": [g.node for g, _ in part],
                    "accelerator": [g.accelerator for g, _ in part],
                    "pool": [self._pool] * len(part),
                    "share": [r.share for _, r in part],
                    "gpu_index": [g.index for g, _ in part],
                    "from_utc": [r.from_ms for _, r in part],
                    "to_utc": [r.to_ms for _, r in part],
                },
            )

    def begin_earlier(self, begins_ms: Mapping[int, int]) -> None:
        """GPUs begin, and are held, earlier than was assumed when their only scrape was read."""
        for gpu, begin_ms in begins_ms.items():
            devices = self.gpus[gpu].history.open
            devices.update({device: (share, begin_ms) for device, (share, _) in devices.items()})
            self.changed.add(gpu)
        for place, span in self.holders.open.items() if begins_ms else ():
            begin = begins_ms.get(self._known.places.all[place][0])
            if begin is not None:
                span.from_ms = begin
                self.holders.changed.add(place)

    def name_model(self, gpu: int, node: str | None, model: str | None) -> None:
        """Says where a GPU is and what it is, where the labels of its fields do not."""
        facts = self.gpus.setdefault(gpu, GpuFacts())
        facts.read_labels(node, model)
        facts.label_numbers = ()
        self.changed.add(gpu)

    def _read_labels(self, line: Timeline, scrapes: ScrapeColumns) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Of the GPU of each scrape, by its labels: whether MIG divides it, and its limit of power (W, NaN unknown)."""
        firsts, ends = line.first.tolist(), np.append(line.first[1:], len(scrapes)).tolist()
        labels = scrapes.labels.tolist()
        if len(firsts) == len(scrapes):
            new = scrapes.labels[1:] != scrapes.labels[:-1]
        else:
            labels_now = [tuple(labels[a:b]) for a, b in zip(firsts, ends, strict=True)]
            new = np.array([now != before for now, before in zip(labels_now[1:], labels_now, strict=False)], bool)
        begins = np.flatnonzero(np.append(True, new) | line.is_first)
        lasts = np.append(begins[1:], len(line.gpu)) - 1
        start_ms, at_ms = line.start_ms[begins].tolist(), line.at_ms[lasts].tolist()
        runs = zip(begins.tolist(), line.gpu[begins].tolist(), start_ms, at_ms, strict=True)
        seen = [self._read_run(gpu, tuple(labels[firsts[a] : ends[a]]), since, until) for a, gpu, since, until in runs]
        lengths = lasts - begins + 1
        is_divided, is_too_much, tdp_w = zip(*seen, strict=True)
        self._gaps.add(self._where, "MIG instances that are more than their GPU", int(lengths[list(is_too_much)].sum()))
        return np.repeat(np.array(is_divided, bool), lengths), np.repeat(np.array(tdp_w, float), lengths)

    def _read_run(self, number: int, labels_now: tuple[int, ...], from_ms: int, to_ms: int) -> _Shape:
        """The shape of the GPU in these scrapes in a row, which have the same labels."""
        gpu = self.gpus.get(number)
        if gpu is None:
            gpu = self.gpus[number] = GpuFacts()
        if labels_now != gpu.label_numbers:
            gpu.label_numbers = labels_now
            self.changed.add(number)
            gpu.read_all(self._known.gpus.all[number], [self._known.labels.all[label] for label in labels_now])
        gpu.history.see(gpu.parts, from_ms, to_ms)
        return gpu.is_divided, gpu.is_too_much, gpu.tdp_w

    def _make_samples(
        self, scrapes: ScrapeColumns, step_ms: NDArray[np.int64], tdp_w: NDArray[np.float64]
    ) -> Iterator[Rows]:
        with np.errstate(all="ignore"):  # cells where nothing was read hold anything
            rates, resets = self.rates.compute(scrapes, step_ms)
            values = read_values(scrapes)
            columns, wrong = make_samples(values, rates)
            hot = find_hot(values, rates, tdp_w)
        for what, count in (*wrong.items(), *((f"total of {key} set back to 0", n) for key, n in resets.items())):
            self._gaps.add(self._where, what, count)
        schema = table("samples").schema
        data = {"device_id": self._name_devices(scrapes.place), "to_utc": pa.array(scrapes.at_ms)}
        for name, column in columns.items():
            kind = schema.field(name).type
            numbers = column.get(0).astype(np.int64) if kind == pa.int64() else column.values
            data[name] = pa.array(numbers, kind, mask=~column.known)
        rows = pa.table(data)
        for i in range(0, len(scrapes), BATCH_ROWS):
            part = Rows("samples", rows.slice(i, BATCH_ROWS), self._where)
            yield self._clear_failed_profiling(part, pa.array(hot[i : i + BATCH_ROWS]))

    def _name_devices(self, place: NDArray[np.int32]) -> pa.Array:
        if len(self._names) < len(self._known.places):
            new = range(len(self._names), len(self._known.places))
            self._names = pa.concat_arrays([self._names, pa.array(map(self._known.name_place, new), pa.string())])
        return self._names.take(pa.array(place))

    def _see_holders(self, scrapes: ScrapeColumns, start_ms: NDArray[np.int64]) -> list[HeldSpan]:
        """The allocations that ended; scrapes of a device that follow each other with the same holders are seen as one."""
        place, holders, at_ms = scrapes.place, scrapes.holders, scrapes.at_ms
        new = (place[1:] != place[:-1]) | (holders[1:] != holders[:-1]) | (start_ms[1:] != at_ms[:-1])
        begins = np.flatnonzero(np.append(True, new)[: len(place)])
        ends = np.append(begins[1:], len(place))[: len(begins)] - 1
        of = (place[begins], holders[begins], start_ms[begins], at_ms[ends])
        found: list[HeldSpan] = []
        for number, held, from_ms, to_ms in zip(*(column.tolist() for column in of), strict=True):
            found.extend(self.holders.see(number, self._known.holders.all[held], from_ms, to_ms))
        return found

    def make_allocations(self, held: Iterable[HeldSpan]) -> Iterator[Rows]:
        """These, as rows."""
        held = list(held)
        self._gaps.add(self._where, PARTS_EQUAL, sum(h.share is not None for h in held))
        for i in range(0, len(held), BATCH_ROWS):
            part = held[i : i + BATCH_ROWS]
            facts = [self._known.holder_facts.get(h.job_id, HolderFacts()) for h in part]
            yield self._make_rows(
                "allocations",
                {
                    "team": [find_team(h.job_id) for h in part],
                    "user": [t.user for t in facts],
                    "experiment_id": [t.experiment_id for t in facts],
                    "tags": [t.tags for t in facts],
                    "job_id": [h.job_id for h in part],
                    "device_id": self._name_devices(np.array([h.place for h in part], np.int32)),
                    "share": [h.share for h in part],
                    "from_utc": [h.from_ms for h in part],
                    "to_utc": [h.to_ms for h in part],
                    "known_from": [h.known_from for h in part],
                },
            )

    def _clear_failed_profiling(self, rows: Rows, hot: pa.Array) -> Rows:
        data = rows.data
        failed = find_failed_profiling({name: data[name] for name in data.column_names}, hot)
        count = pc.sum(failed).as_py() or 0
        self._gaps.add(self._where, "PROF fields all 0 while the GPU was at work", count)
        for name in (*PROFILED, *_ALSO_PROFILED) if count else ():
            known = pc.if_else(failed, pa.scalar(None, data[name].type), data[name])
            data = data.set_column(data.column_names.index(name), name, known)
        return Rows(rows.table, data, rows.where)

    def _make_rows(self, name: str, columns: dict[str, Any]) -> Rows:
        schema = table(name).schema
        data = pa.table({k: pa.array(v, type=schema.field(k).type) for k, v in columns.items()})
        return Rows(name, data, self._where)


@dataclass
class OpenSpan:
    """The same holders so far, sorted."""

    holders: tuple[str, ...]
    from_ms: int
    to_ms: int


class Holders:
    """The open allocations of all devices."""

    def __init__(self) -> None:
        self.open: dict[int, OpenSpan] = {}  # by place
        self.changed: set[int] = set()  # places with other holders, until somebody takes them

    def see(self, place: int, holders: tuple[str, ...], from_ms: int, to_ms: int) -> Iterable[HeldSpan]:
        """In this interval these, sorted, held the device; what that ends is handed over. n that share it hold 1/n each.

        Who held it before and after a gap of its scrapes held it through the gap: one that is no longer than labels linger makes no
        difference, of a longer one lists may know better (`BRIDGED`).
        """
        span = self.open.get(place)
        if span is not None and span.holders == holders and span.to_ms >= from_ms - LINGER_MS:
            span.to_ms = max(span.to_ms, to_ms)
            return ()
        if span is None and not holders:
            return ()
        self.changed.add(place)
        if span is not None:
            del self.open[place]
        if holders:
            self.open[place] = OpenSpan(holders, from_ms, to_ms)
        if span is None:
            return ()
        stayed = tuple(h for h in span.holders if h in holders) if span.to_ms < from_ms else ()
        bridge = _list_spans(place, OpenSpan(stayed, span.to_ms, from_ms), BRIDGED)
        return (*_list_spans(place, span), *bridge)

    def list_open(self, places: Iterable[int]) -> Iterator[HeldSpan]:
        """The open allocations of these devices, up to where it was last seen."""
        for place in places:
            if (span := self.open.get(place)) is not None:
                yield from _list_spans(place, span)


def _list_spans(place: int, span: OpenSpan, known_from: str = LABELS) -> Iterator[HeldSpan]:
    share = 1 / len(span.holders) if len(span.holders) > 1 else None
    for holder in span.holders:
        yield HeldSpan(holder, place, share, span.from_ms, span.to_ms, known_from)
