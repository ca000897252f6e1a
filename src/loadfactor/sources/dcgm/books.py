"""What rows do the scrapes of all GPUs make? Samples, devices and, where pods are named, allocations."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.sources.dcgm.gpu import COLUMNS, Rates, Scrape, row
from loadfactor.sources.dcgm.holders import Held, Holders
from loadfactor.sources.dcgm.installed import History, parts
from loadfactor.sources.dcgm.series import Series, slices_of
from loadfactor.sources.dcgm.window import Instances
from loadfactor.sources.parsing.devices_seen import step_ms
from loadfactor.tables import table

BATCH_ROWS: Final = 20_000
DEFAULT_STEP_S: Final = 30.0  # the exporter's own
_STEADY: Final = 1.5  # a distance of more than so many steps is a gap


class _Gpu:
    """What is remembered of one GPU from scrape to scrape."""

    def __init__(self) -> None:
        self.node: str | None = None
        self.model: str | None = None
        self.accelerator: str | None = None
        self.tdp_w: float | None = None
        self.step_ms: int | None = None
        self.last_ms: int | None = None
        self.history = History()
        self.rates: dict[str, Rates] = {}

    def called(self, of: Series) -> None:
        """The labels of a line say where it is and what it is."""
        self.node = of.node or self.node
        if of.model and of.model != self.model:
            known = find_accelerator(of.model)
            self.model, self.accelerator = of.model, known.id if known else of.model
            self.tdp_w = known.get("tdp_w") if known else None


class Books:
    """Turns scrapes into rows, in batches."""

    def __init__(self, options: ReadOptions, where: str) -> None:
        self._options = options
        self._where = where  # for messages: a scrape may come from several files
        self._gpus: dict[str, _Gpu] = {}
        self._holders = Holders()
        self._held: list[Held] = []
        self._samples: dict[str, list[Any]] = {name: [] for name in ("device_id", "to_utc", *COLUMNS)}
        self.wrong: dict[str, int] = {}  # what was no measurement, since last asked

    def add(self, gpu_id: str, scrapes: list[tuple[int, Instances]], times_ms: list[int]) -> Iterator[Rows]:
        """Scrapes of one GPU in the order of time; `times_ms` are those known so far, to see its step in."""
        gpu = self._gpus.setdefault(gpu_id, _Gpu())
        if gpu.step_ms is None or len(times_ms) > 2:
            gpu.step_ms = step_ms(times_ms, self._options.step_s, DEFAULT_STEP_S)
        for at_ms, found in scrapes:
            begun = at_ms - gpu.step_ms
            if gpu.last_ms is not None and at_ms - gpu.last_ms <= _STEADY * gpu.step_ms:
                begun = gpu.last_ms
            for scrape in found.values():
                gpu.called(scrape.of)
            instances = {i: s.of.slices for i, s in found.items() if i and s.of.slices is not None}
            gpu.history.see(parts(gpu_id, instances, slices_of(gpu.model)), begun, at_ms)
            for instance, scrape in found.items():
                if instance or not instances:
                    self._sample(
                        gpu, f"{gpu_id}/gi-{instance}" if instance else gpu_id, scrape, begun, at_ms, bool(instance)
                    )
                elif scrape.values:
                    self._note("reading of a whole GPU beside those of its MIG instances")
            if sum(instances.values()) > slices_of(gpu.model):
                self._note("MIG instances that are more than their GPU")
            gpu.last_ms = at_ms
            if len(self._samples["to_utc"]) >= BATCH_ROWS:
                yield from self._flush()

    def _sample(self, gpu: _Gpu, device_id: str, scrape: Scrape, begun: int, at_ms: int, instance: bool) -> None:
        rates, reset = gpu.rates.setdefault(device_id, Rates()).of(at_ms, scrape.totals, gpu.step_ms or 0)
        values, wrong = row(scrape, rates, gpu.tdp_w, instance)
        for what in (*wrong, *(f"total of {key} set back to 0" for key in reset)):
            self._note(what)
        self._samples["device_id"].append(device_id)
        self._samples["to_utc"].append(at_ms)
        for name in COLUMNS:
            self._samples[name].append(values.get(name))
        self._held.extend(self._holders.see(device_id, scrape.holders, begun, at_ms))

    def _note(self, what: str) -> None:
        self.wrong[what] = self.wrong.get(what, 0) + 1

    def end(self) -> Iterator[Rows]:
        """The rows still held, and the devices."""
        self._held.extend(self._holders.end())
        yield from self._flush()
        rows = [(gpu, row) for gpu in self._gpus.values() for row in gpu.history.rows()]
        for i in range(0, len(rows), BATCH_ROWS):
            part = rows[i : i + BATCH_ROWS]
            yield self._rows(
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

    def _flush(self) -> Iterator[Rows]:
        if self._samples["to_utc"]:
            yield self._rows("samples", self._samples)
            self._samples = {name: [] for name in self._samples}
        held, self._held = self._held, []
        for i in range(0, len(held), BATCH_ROWS):
            part = held[i : i + BATCH_ROWS]
            yield self._rows(
                "allocations",
                {
                    "job_id": [h.job_id for h in part],
                    "device_id": [h.device_id for h in part],
                    "share": [h.share for h in part],
                    "from_utc": [h.from_ms for h in part],
                    "to_utc": [h.to_ms for h in part],
                },
            )

    def _rows(self, name: str, columns: dict[str, list[Any]]) -> Rows:
        schema = table(name).schema
        return Rows(
            name, pa.table({k: pa.array(v, type=schema.field(k).type) for k, v in columns.items()}), self._where
        )
