"""Scrapes of all GPUs → rows: samples, devices and, where pods are named, allocations."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.signals import PROFILED, find_failed_profiling
from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.sources.dcgm.holders import HeldSpan, Holders
from loadfactor.sources.dcgm.mig_history import MigHistory, divide
from loadfactor.sources.dcgm.scrape import COLUMNS, CounterRates, Scrape, is_hot, make_sample
from loadfactor.sources.dcgm.scrape_window import Instances
from loadfactor.sources.dcgm.series_identity import SeriesIdentity, count_slices
from loadfactor.sources.parsing.gaps import Gaps
from loadfactor.sources.parsing.steps import find_start, learn_step_of
from loadfactor.tables import table

BATCH_ROWS: Final = 20_000
DEFAULT_STEP_S: Final = 30.0  # the exporter's own


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
        self.rates: dict[str, CounterRates] = {}

    def read_labels(self, of: SeriesIdentity) -> None:
        """The labels of a line say where it is and what it is."""
        self.node = of.node or self.node
        if of.model and of.model != self.model:
            known = find_accelerator(of.model)
            self.model, self.accelerator = of.model, known.id if known else of.model
            self.tdp_w = known.get("tdp_w") if known else None


class DcgmRows:
    """Turns scrapes into rows, in batches. Gaps are counted under `where`: a scrape may come from several inputs."""

    def __init__(self, options: ReadOptions, where: str, gaps: Gaps) -> None:
        self._options, self._where, self._gaps = options, where, gaps
        self._gpus: dict[str, _Gpu] = {}
        self._holders = Holders()
        self._held: list[HeldSpan] = []
        self._samples: dict[str, list[Any]] = {name: [] for name in ("device_id", "to_utc", *COLUMNS)}
        self._hot: list[bool] = []  # beside each sample: its power alone says that it worked

    def add(self, gpu_id: str, scrapes: list[tuple[int, Instances]], times_ms: list[int]) -> Iterator[Rows]:
        """Scrapes of one GPU in the order of time; `times_ms` are those known so far, to see its step in."""
        gpu = self._gpus.setdefault(gpu_id, _Gpu())
        if not gpu.step_ms or len(times_ms) > 2:
            gpu.step_ms = learn_step_of(times_ms, self._options.step_s, DEFAULT_STEP_S)
        for at_ms, found in scrapes:
            start_ms = find_start(at_ms, gpu.last_ms, gpu.step_ms)
            for scrape in found.values():
                gpu.read_labels(scrape.of)
            instances = {i: s.of.slices for i, s in found.items() if i and s.of.slices is not None}
            gpu.history.see(divide(gpu_id, instances, count_slices(gpu.model)), start_ms, at_ms)
            for instance, scrape in found.items():
                if instance:
                    self._add_sample(gpu, f"{gpu_id}/gi-{instance}", scrape, start_ms, at_ms, None)
                elif not instances:
                    self._add_sample(gpu, gpu_id, scrape, start_ms, at_ms, gpu.tdp_w)
                elif scrape.values:
                    self._gaps.add(self._where, "values of a whole GPU beside those of its MIG instances")
            if sum(instances.values()) > count_slices(gpu.model):
                self._gaps.add(self._where, "MIG instances that are more than their GPU")
            gpu.last_ms = at_ms
            if len(self._samples["to_utc"]) >= BATCH_ROWS:
                yield from self._flush()

    def end(self) -> Iterator[Rows]:
        """The rows still held, and the devices."""
        self._held.extend(self._holders.end())
        yield from self._flush()
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

    def _add_sample(
        self, gpu: _Gpu, device_id: str, scrape: Scrape, start_ms: int, at_ms: int, tdp_w: float | None
    ) -> None:
        """`tdp_w` is None where the power is not the device's own: that of a MIG instance is that of the whole GPU."""
        rates, reset = gpu.rates.setdefault(device_id, CounterRates()).compute(at_ms, scrape.totals, gpu.step_ms)
        values, wrong = make_sample(scrape, rates)
        for what in (*wrong, *(f"total of {key} set back to 0" for key in reset)):
            self._gaps.add(self._where, what)
        self._samples["device_id"].append(device_id)
        self._samples["to_utc"].append(at_ms)
        for name in COLUMNS:
            self._samples[name].append(values.get(name))
        self._hot.append(is_hot(scrape, rates, tdp_w))
        self._held.extend(self._holders.see(device_id, scrape.holders, start_ms, at_ms))

    def _flush(self) -> Iterator[Rows]:
        if self._hot:
            yield self._clear_failed_profiling(self._make_rows("samples", self._samples))
            self._samples, self._hot = {name: [] for name in self._samples}, []
        held, self._held = self._held, []
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

    def _clear_failed_profiling(self, rows: Rows) -> Rows:
        data = rows.data
        failed = find_failed_profiling({name: data[name] for name in data.column_names}, pa.array(self._hot))
        self._gaps.add(self._where, "PROF fields all 0 while the GPU was at work", pc.sum(failed).as_py() or 0)
        for name in (*PROFILED, "dram_active_share"):
            known = pc.if_else(failed, pa.scalar(None, data[name].type), data[name])
            data = data.set_column(data.column_names.index(name), name, known)
        return Rows(rows.table, data, rows.where)

    def _make_rows(self, name: str, columns: dict[str, list[Any]]) -> Rows:
        schema = table(name).schema
        data = pa.table({k: pa.array(v, type=schema.field(k).type) for k, v in columns.items()})
        return Rows(name, data, self._where)
