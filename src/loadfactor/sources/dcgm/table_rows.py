"""Scrapes of all GPUs → rows: samples, devices and, where pods are named, allocations."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.signals import PROFILED, find_failed_profiling
from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.sources.dcgm.holders import HeldSpan, Holders
from loadfactor.sources.dcgm.known_series import KnownSeries, Labels
from loadfactor.sources.dcgm.mig_history import MigHistory, divide
from loadfactor.sources.dcgm.sample_columns import CounterRates, Measured, find_hot, make_samples, read_values
from loadfactor.sources.dcgm.scrape_table import IS_VALUE, ScrapeColumns
from loadfactor.sources.dcgm.scrape_window import Ripe
from loadfactor.sources.dcgm.series_identity import count_slices
from loadfactor.sources.dcgm.text_gaps import TextGaps
from loadfactor.sources.parsing.steps import is_within_reach, learn_step_of
from loadfactor.tables import table

BATCH_ROWS: Final = 20_000
DEFAULT_STEP_S: Final = 30.0  # the exporter's own

_ALSO_PROFILED: Final = ("dram_active_share", "fp32_active_share", "sm_occupancy_share")  # an idle pipe proves nothing


class _Gpu:
    """What is remembered of one GPU from scrape to scrape."""

    def __init__(self) -> None:
        self.node: str | None = None
        self.model: str | None = None
        self.accelerator: str | None = None
        self.tdp_w: float | None = None
        self.step_ms = 0
        self.last_ms: int | None = None
        self.history = MigHistory()

    def read_labels(self, node: str | None, model: str | None) -> None:
        """The labels of a line say where it is and what it is."""
        self.node = node or self.node
        if model and model != self.model:
            known = find_accelerator(model)
            self.model, self.accelerator = model, known.id if known else model
            self.tdp_w = known.get("tdp_w") if known else None


class _Timeline:
    """When the scrapes of some rows were taken: `first` is the first row of each, `of_row` numbers them by row."""

    def __init__(self, scrapes: ScrapeColumns) -> None:
        new = (scrapes.gpu[1:] != scrapes.gpu[:-1]) | (scrapes.at_ms[1:] != scrapes.at_ms[:-1])
        self.first = np.flatnonzero(np.append(True, new))
        self.of_row = np.cumsum(np.append(True, new)) - 1
        self.gpu, self.at_ms = scrapes.gpu[self.first], scrapes.at_ms[self.first]
        self.start_ms = self.at_ms.copy()
        self.step_ms = np.zeros_like(self.at_ms)
        self.is_divided = np.zeros(len(self.gpu), bool)  # into MIG instances
        self.tdp_w = np.full(len(self.gpu), np.nan)  # of the whole GPU


class DcgmRows:
    """Turns scrapes into rows, in batches. Gaps are counted under `where`: a scrape may come from several inputs."""

    def __init__(self, options: ReadOptions, where: str, known: KnownSeries, gaps: TextGaps) -> None:
        self._options, self._where, self._known, self._gaps = options, where, known, gaps
        self._gpus: dict[int, _Gpu] = {}
        self._rates = CounterRates()
        self._holders = Holders()

    def add(self, ripe: Ripe) -> Iterator[Rows]:
        """Rows of scrapes that are sorted by GPU, then time."""
        scrapes = ripe.scrapes
        if not len(scrapes):
            return
        line = _Timeline(scrapes)
        self._find_intervals(line, ripe.times_ms)
        self._read_labels(line, scrapes)
        is_instance = self._known.list_places().is_instance[scrapes.place]
        beside = line.is_divided[line.of_row] & ~is_instance
        extra = beside & (scrapes.state == IS_VALUE).any(axis=1)
        self._gaps.add(self._where, "values of a whole GPU beside those of its MIG instances", int(extra.sum()))
        order = np.flatnonzero(~beside)
        if is_instance.any():  # each device's own in a row
            of_gpu = np.cumsum(np.append(True, scrapes.gpu[1:] != scrapes.gpu[:-1]))
            order = order[np.lexsort((scrapes.at_ms[order], scrapes.place[order], of_gpu[order]))]
        tdp_w = np.where(is_instance, np.nan, line.tdp_w[line.of_row])[order]
        at = line.of_row[order]
        yield from self._make_samples(scrapes.pick(order), line.step_ms[at], tdp_w)
        yield from self._make_allocations(self._see_holders(scrapes.pick(order), line.start_ms[at]))

    def end(self) -> Iterator[Rows]:
        """The allocations still open, and the devices."""
        yield from self._make_allocations(list(self._holders.end()))
        rows = [(gpu, row) for gpu in self._gpus.values() for row in gpu.history.list_spans()]
        for i in range(0, len(rows), BATCH_ROWS):
            part = rows[i : i + BATCH_ROWS]
            yield self._make_rows(
                "devices",
                {
                    "device_id": [r.device_id for _, r in part],
                    "node": [g.node for g, _ in part],
                    "accelerator": [g.accelerator for g, _ in part],
                    "pool": [self._options.pool] * len(part),
                    "share": [r.share for _, r in part],
                    "from_utc": [r.from_ms for _, r in part],
                    "to_utc": [r.to_ms for _, r in part],
                },
            )

    def _find_intervals(self, line: _Timeline, times_ms: dict[int, NDArray[np.int64]]) -> None:
        """Steps and starts of the scrapes; `times_ms` are those known so far of each GPU, to see its step in."""
        steps: dict[bytes, int] = {}  # GPUs of one node are read at the same times
        begins = np.flatnonzero(np.append(True, line.gpu[1:] != line.gpu[:-1]))
        for a, b in zip(begins.tolist(), [*begins[1:].tolist(), len(line.gpu)], strict=True):
            number = int(line.gpu[a])
            gpu, times = self._gpus.setdefault(number, _Gpu()), times_ms[number]
            if not gpu.step_ms or len(times) > 2:
                seen = times.tobytes()
                if seen not in steps:
                    steps[seen] = learn_step_of(times, self._options.step_s, DEFAULT_STEP_S)  # type: ignore[arg-type]
                gpu.step_ms = steps[seen]
            at_ms, step_ms = line.at_ms[a:b], gpu.step_ms
            before_ms = np.append(-1 if gpu.last_ms is None else gpu.last_ms, at_ms[:-1])
            near = (before_ms >= 0) & is_within_reach(at_ms, before_ms, step_ms)  # type: ignore[arg-type]
            line.start_ms[a:b] = np.where(near, before_ms, at_ms - step_ms)
            line.step_ms[a:b] = step_ms
            gpu.last_ms = int(at_ms[-1])

    def _read_labels(self, line: _Timeline, scrapes: ScrapeColumns) -> None:
        """What the labels of each scrape say of its GPU, read where they differ from those of the scrape before."""
        ends = np.append(line.first[1:], len(scrapes))
        labels = scrapes.labels
        if len(line.first) == len(scrapes):
            new = labels[1:] != labels[:-1]
        else:
            said = [tuple(labels[a:b]) for a, b in zip(line.first.tolist(), ends.tolist(), strict=True)]
            new = np.array([now != before for now, before in zip(said[1:], said, strict=False)], bool)
        begins = np.flatnonzero(np.append(True, new | (line.gpu[1:] != line.gpu[:-1])))
        for a, b in zip(begins.tolist(), [*begins[1:].tolist(), len(line.gpu)], strict=True):
            found = [self._known.labels.all[number] for number in labels[line.first[a] : ends[a]]]
            self._read_run(line, a, b, found)

    def _read_run(self, line: _Timeline, a: int, b: int, labels: list[Labels]) -> None:
        """The scrapes from the `a`-th to before the `b`-th, of one GPU and with the same labels."""
        gpu, gpu_id = self._gpus[int(line.gpu[a])], self._known.gpus.all[line.gpu[a]]
        for node, model, _, _ in labels:
            gpu.read_labels(node, model)
        instances = {instance: slices for _, _, instance, slices in labels if instance and slices is not None}
        whole = count_slices(gpu.model)
        gpu.history.see(divide(gpu_id, instances, whole), int(line.start_ms[a]), int(line.at_ms[b - 1]))
        line.is_divided[a:b] = bool(instances)
        if gpu.tdp_w is not None:
            line.tdp_w[a:b] = gpu.tdp_w
        if sum(instances.values()) > whole:
            self._gaps.add(self._where, "MIG instances that are more than their GPU", b - a)

    def _make_samples(
        self, scrapes: ScrapeColumns, step_ms: NDArray[np.int64], tdp_w: NDArray[np.float64]
    ) -> Iterator[Rows]:
        """`tdp_w` is NaN where the power is not the device's own: that of a MIG instance is that of the whole GPU."""
        with np.errstate(all="ignore"):  # cells where nothing was read hold anything
            rates, resets = self._rates.compute(scrapes, step_ms)
            values = read_values(scrapes)
            columns, wrong = make_samples(values, rates)
            hot = find_hot(values, rates, tdp_w)
        for what, count in (*wrong.items(), *((f"total of {key} set back to 0", n) for key, n in resets.items())):
            self._gaps.add(self._where, what, count)
        schema = table("samples").schema
        data = {"device_id": self._name_devices(scrapes.place), "to_utc": pa.array(scrapes.at_ms)}
        for name, column in columns.items():
            data[name] = _make_array(column, schema.field(name).type)
        rows = pa.table(data)
        for i in range(0, len(scrapes), BATCH_ROWS):
            part = Rows("samples", rows.slice(i, BATCH_ROWS), self._where)
            yield self._clear_failed_profiling(part, pa.array(hot[i : i + BATCH_ROWS]))

    def _name_devices(self, place: NDArray[np.int32]) -> pa.Array:
        """The device of each place."""
        places, which = np.unique(place, return_inverse=True)
        names = []
        for gpu, instance, _ in (self._known.places.all[number] for number in places):
            gpu_id = self._known.gpus.all[gpu]
            names.append(gpu_id if instance is None else f"{gpu_id}/gi-{instance}")
        return pa.array(names, pa.string()).take(pa.array(which))

    def _see_holders(self, scrapes: ScrapeColumns, start_ms: NDArray[np.int64]) -> list[HeldSpan]:
        """The allocations that ended; scrapes of a device that follow each other with the same holders are seen as one."""
        place, holders, at_ms = scrapes.place, scrapes.holders, scrapes.at_ms
        new = (place[1:] != place[:-1]) | (holders[1:] != holders[:-1]) | (start_ms[1:] != at_ms[:-1])
        begins = np.flatnonzero(np.append(True, new)[: len(place)])
        ends = np.append(begins[1:], len(place))[: len(begins)] - 1
        names = self._name_devices(place[begins]).to_pylist()
        found: list[HeldSpan] = []
        for a, b, name in zip(begins, ends, names, strict=True):
            held = set(self._known.holders.all[holders[a]])
            found.extend(self._holders.see(name, held, int(start_ms[a]), int(at_ms[b])))
        return found

    def _make_allocations(self, held: list[HeldSpan]) -> Iterator[Rows]:
        for i in range(0, len(held), BATCH_ROWS):
            part = held[i : i + BATCH_ROWS]
            yield self._make_rows(
                "allocations",
                {
                    "job_id": [h.job_id for h in part],
                    "device_id": [h.device_id for h in part],
                    "share": [h.share for h in part],
                    "from_utc": [h.from_ms for h in part],
                    "to_utc": [h.to_ms for h in part],
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

    def _make_rows(self, name: str, columns: dict[str, list[Any]]) -> Rows:
        schema = table(name).schema
        data = pa.table({k: pa.array(v, type=schema.field(k).type) for k, v in columns.items()})
        return Rows(name, data, self._where)


def _make_array(column: Measured, kind: pa.DataType) -> pa.Array:
    if kind == pa.int64():
        return pa.array(column.get(0).astype(np.int64), kind, mask=~column.known)
    return pa.array(column.values, kind, mask=~column.known)
