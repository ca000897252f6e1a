"""The page of `loadfactor record`: what a command cost, how full its GPUs were, and what stood out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from loadfactor.base.units import MS_PER_S
from loadfactor.books.snapshot import Snapshot
from loadfactor.collect.own_gpus import Recording
from loadfactor.interfaces.document import Assumption, DataTable, Document, Section, Style, Tile
from loadfactor.interfaces.formats import duration, money, number, percent
from loadfactor.interfaces.tables import FilledColumn, col, table
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.query.reading import Reading

METRICS = (
    "allocated_gpu_hours",
    "observed_gpu_hours",
    "utilization",
    "gpu_util",
    "sm_activity",
    "tensor_activity",
    "mem_utilization_peak",
    "power_w",
    "energy_kwh",
    "throttled_share",
    "cost",
    "idle_cost",
)
LOW_SHARE, LITTLE_MEMORY, THROTTLED, UNEVEN = 0.5, 0.3, 0.05, 0.2
"""Limits of a remark: utilization and memory below, throttling and differences between GPUs above."""


@dataclass(frozen=True)
class RecordedRun:
    """The command, how it ended, and the readings of it and of each of its GPUs."""

    job: str
    exit_code: int
    seconds: float
    gpus: tuple[str, ...]
    readings: tuple[Reading, ...]
    by_device: tuple[Reading, ...]
    stood_out: tuple[str, ...]


def build_document(run: Recording, books: Snapshot) -> Document:
    """The page of a run that is in the books; of one that used no GPU it says that."""
    seconds = (run.to_ms - run.from_ms) / MS_PER_S
    if not run.gpus:
        data = RecordedRun(run.job, run.exit_code, seconds, (), (), (), ())
        return Document(f"{run.job} ran {duration(seconds)} and used none of the {run.there} GPUs here.", data=data)
    window: dict[str, Any] = {"start": instant(run.from_ms), "end": instant(run.to_ms), "where": {"job": run.job}}
    of_run = {reading.metric: reading for reading in books.show(METRICS, **window)}
    by_device: dict[str, dict[str, Reading]] = {}
    for reading in books.show(METRICS, by="device", **window):
        by_device.setdefault(reading.by["device"] or "", {})[reading.metric] = reading
    values = {name: _value(reading) for name, reading in of_run.items()}
    stood_out = tuple(_find_outstanding(run, values, by_device))
    cost = of_run["cost"]
    currency = cost.currency or ""
    gpus = f"{len(run.gpus)} GPU{'s' if len(run.gpus) > 1 else ''}"
    paid = "its cost is not known" if values["cost"] is None else f"it cost {money(values['cost'], currency)}"
    full = "" if values["utilization"] is None else f", {percent(values['utilization'])} full"
    end = "" if not run.exit_code else f" It ended with code {run.exit_code}."
    return Document(
        f"{run.job} ran {duration(seconds)} on {gpus}{full}; {paid}.{end}",
        (
            Section("Its GPUs", tables=(_tabulate(by_device, currency),)),
            Section(
                "What stood out",
                " ".join(stood_out) or "Nothing: its GPUs were busy all the time, alike, and nothing slowed them down.",
            ),
        ),
        tiles=(
            Tile("cost", money(values["cost"], currency), f"{number(values['allocated_gpu_hours'])} GPU-hours"),
            Tile("utilization", percent(values["utilization"]), "of the time its GPUs were held"),
            Tile("idle", money(values["idle_cost"], currency), "of its cost"),
            Tile("energy", f"{number(values['energy_kwh'])} kWh", f"{number(values['power_w'])} W a GPU"),
        ),
        assumptions=()
        if cost.cost_basis is None
        else (Assumption("price", f"{cost.cost_basis} prices", "the books; --price-per-gpu-hour says your own"),),
        data=RecordedRun(
            run.job,
            run.exit_code,
            seconds,
            run.gpus,
            tuple(of_run.values()),
            tuple(reading for device in by_device.values() for reading in device.values()),
            stood_out,
        ),
    )


def _value(reading: Reading | None) -> float | None:
    return reading.value if reading is not None and isinstance(reading.value, float) else None


def _tabulate(by_device: dict[str, dict[str, Reading]], currency: str) -> DataTable:
    def reading(title: str, metric: str, style: Style) -> FilledColumn:
        return col(title, lambda row: _value(row[1].get(metric)), style)

    return table(
        sorted(by_device.items()),
        col("GPU"),
        reading("utilization", "utilization", "percent"),
        reading("GPU_UTIL", "gpu_util", "percent"),
        reading("SM activity", "sm_activity", "percent"),
        reading("tensor activity", "tensor_activity", "percent"),
        reading("peak memory", "mem_utilization_peak", "percent"),
        reading("power, W", "power_w", "number"),
        reading("cost", "cost", "money"),
        currency=currency,
    )


def _find_outstanding(
    run: Recording, values: dict[str, float | None], by_device: dict[str, dict[str, Reading]]
) -> Iterator[str]:
    full, resident, active = values["utilization"], values["gpu_util"], values["sm_activity"]
    if full is not None and full < LOW_SHARE:
        yield f"Its GPUs were {percent(full)} full: look at loading of data, checkpoints and waiting for other processes."
    if resident is not None and active is not None and resident >= LOW_SHARE > active:
        yield (
            f"A kernel was resident {percent(resident)} of the time, but SMs were active {percent(active)}:"
            " kernels are small or wait; larger batches help."
        )
    if (tensor := values["tensor_activity"]) == 0:
        yield "Tensor cores did nothing: check the precision (bf16, fp16 or tf32)."
    elif tensor is None:
        yield "These GPUs do not say what their tensor cores did."
    if (memory := values["mem_utilization_peak"]) is not None and memory < LITTLE_MEMORY:
        yield f"At most {percent(memory)} of the memory was used: a larger batch or a smaller GPU fits."
    if (slowed := values["throttled_share"]) is not None and slowed > THROTTLED:
        yield f"Clocks were held down {percent(slowed)} of the time: look at power limits and cooling."
    each = [value for of in by_device.values() if (value := _value(of.get("utilization"))) is not None]
    if each and max(each) - min(each) > UNEVEN:
        yield f"Its GPUs were not alike: {percent(min(each))} to {percent(max(each))} full."
    if len(run.gpus) < run.there:
        yield f"{run.there - len(run.gpus)} of the {run.there} GPUs here were not used by it."
