"""Rows of `loadfactor top`: what one GPU, node, job or team does, and the questions that they answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Literal

from loadfactor.base.errors import InputError
from loadfactor.base.units import S_PER_HOUR, S_PER_MIN
from loadfactor.interfaces.top.readers import ReadingsReader, TopQuestion
from loadfactor.metrics.query.reading import iso
from loadfactor.tables.schema import DEFAULT_CURRENCY

Grouping = Literal["gpu", "node", "job", "team"]
DIMENSIONS: dict[str, tuple[str, ...]] = {
    "gpu": ("device", "node", "job"),
    "node": ("node",),
    "job": ("job", "team"),
    "team": ("team",),
}
"""What the rows of a grouping are split by."""
METRICS = (
    *("paid_gpu_hours", "allocation", "utilization", "sm_activity", "mem_utilization", "power_w", "temperature_c_max"),
    "cost",
)
STEP = timedelta(seconds=5 * S_PER_MIN)
STEPS = 12


@dataclass(frozen=True)
class TopRow:
    """What one group did over the window; None where it is unknown. `gpus` is their mean number, shares are of 1."""

    names: tuple[str | None, ...]
    gpus: float | None
    held: float | None
    utilization: float | None
    sm_activity: float | None
    memory: float | None
    power_w: float | None
    temperature_c: float | None
    cost_per_hour: float | None


@dataclass(frozen=True)
class TopAnswer:
    """The fleet and its groups over [start, end)."""

    grouping: Grouping
    start: datetime | None
    end: datetime | None
    currency: str
    fleet: TopRow | None
    rows: tuple[TopRow, ...]


@dataclass(frozen=True)
class GpuHistory:
    """One GPU's last hour: its step that ends at `ends[i]` is `steps[i]`."""

    gpu: str
    ends: tuple[datetime, ...]
    steps: tuple[TopRow, ...]
    currency: str


def ask_top(reader: ReadingsReader, grouping: Grouping, last: str, where: Sequence[str] = ()) -> TopAnswer:
    """What the fleet and its groups did last. Raises as the reader."""
    whole = TopQuestion(METRICS, last=last, where=where)
    fleet, split = reader.ask([whole, replace(whole, by=DIMENSIONS[grouping])])
    groups: dict[tuple[str | None, ...], list[Mapping[str, Any]]] = {}
    for reading in split:
        groups.setdefault(tuple(reading["by"].values()), []).append(reading)
    rows = tuple(read_row(names, readings) for names, readings in groups.items())
    start, end = _read_window(fleet)
    currency = next((r["currency"] for r in fleet if r["currency"]), DEFAULT_CURRENCY)
    return TopAnswer(grouping, start, end, currency, read_row((), fleet) if fleet else None, rows)


def find_gpu(answer: TopAnswer, begins: str) -> str:
    """The GPU whose name begins so. Raises InputError where none or several do."""
    found = {row.names[0] for row in answer.rows if row.names[0] and row.names[0].startswith(begins)}
    if len(found) == 1:
        (name,) = found
        assert name is not None
        return name
    some = "several GPUs begin" if found else "no GPU begins"
    raise InputError(f"{some} with {begins!r}; `loadfactor top --by gpu --once` lists them")


def ask_history(reader: ReadingsReader, gpu: str, end: datetime, known: GpuHistory | None = None) -> GpuHistory:
    """One GPU's hour up to `end`, in steps of the clock; steps of `known` that are over are not asked again."""
    size_s = STEP.total_seconds()
    last = datetime.fromtimestamp(ceil(end.timestamp() / size_s) * size_s, end.tzinfo)
    ends = tuple(last - STEP * back for back in reversed(range(STEPS)))
    over = dict(zip(known.ends[:-2], known.steps, strict=False)) if known is not None and known.gpu == gpu else {}
    new = [at for at in ends if at not in over]
    where = (f"device={gpu}",)
    asked = [
        TopQuestion(METRICS, start=iso(at - STEP), end=iso(min(at, end)), where=where, may_lack=True) for at in new
    ]
    answers = dict(zip(new, reader.ask(asked), strict=True))
    currency = next((r["currency"] for readings in answers.values() for r in readings if r["currency"]), "")
    steps = tuple(over[at] if at in over else read_row((gpu,), answers[at]) for at in ends)
    return GpuHistory(gpu, ends, steps, currency or (known.currency if known is not None else DEFAULT_CURRENCY))


def read_row(names: tuple[str | None, ...], readings: Sequence[Mapping[str, Any]]) -> TopRow:
    """A row from the readings of one group."""
    value = {reading["metric"]: reading["value"] for reading in readings}
    start, end = _read_window(readings)
    hours = (end - start).total_seconds() / S_PER_HOUR if start and end else 0.0

    def each_hour(amount: float | None) -> float | None:
        return None if amount is None or not hours else amount / hours

    return TopRow(
        names,
        each_hour(value.get("paid_gpu_hours")),
        value.get("allocation"),
        value.get("utilization"),
        value.get("sm_activity"),
        value.get("mem_utilization"),
        value.get("power_w"),
        value.get("temperature_c_max"),
        each_hour(value.get("cost")),
    )


def _read_window(readings: Sequence[Mapping[str, Any]]) -> tuple[datetime | None, datetime | None]:
    if not readings:
        return None, None
    return datetime.fromisoformat(readings[0]["from"]), datetime.fromisoformat(readings[0]["to"])
