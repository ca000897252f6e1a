"""Activity of the GPUs of one job over time, from its raw samples: finer than the hours of the ledger. Reads, never writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import ibis
import numpy as np

from loadfactor.books.snapshot import Snapshot
from loadfactor.ledger.activity import ACTIVITIES
from loadfactor.ledger.overlaps import resolve_overlaps
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.units import MS_PER_S, S_PER_DAY, S_PER_HOUR, S_PER_MIN

STEPS_S = (
    *(minutes * S_PER_MIN for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * S_PER_HOUR for hours in (1, 2, 4, 8)),
    S_PER_DAY,
)
MOST_STEPS = 480


@dataclass(frozen=True)
class JobActivity:
    """Activity (a share, by the best signal of each sample) in steps of `step_s` from `start_ms` on, None where unobserved.

    `mean` is that of all GPUs of the job, weighted by time; `lowest` and `highest` those of single GPUs.
    """

    start_ms: int
    step_s: int
    gpus: int
    mean: Sequence[float | None]
    lowest: Sequence[float | None]
    highest: Sequence[float | None]


def job_activity(books: Snapshot, job: str, start: datetime, end: datetime) -> JobActivity | None:
    """What the GPUs of the job did within [start, end). None where its allocations name no GPU, or no sample is of them."""
    first, last = milliseconds(start), milliseconds(end)
    rows = books.view("allocations")
    numbers = rows.filter(rows.job_id == job).select(
        name=ibis.coalesce(rows.job_number, rows.job_id)
    )  # what labels call it
    held = rows.filter(rows.device_id.notnull(), (rows.job_id == job) | rows.job_id.isin(numbers.name))
    held = held.select(
        "device_id",
        held_from=ibis.greatest(held.from_utc, first),
        held_to=ibis.least(ibis.coalesce(held.to_utc, last), last),
    ).distinct()
    samples = books.view("samples")
    samples = samples.filter(samples.from_utc < last, samples.to_utc > first).semi_join(held, "device_id")
    if books.fetch(samples.select("source").distinct()).num_rows > 1:
        samples = resolve_overlaps(samples)
    activity = ibis.coalesce(*(samples[kind.column] for kind in ACTIVITIES))
    rows = samples.mutate(activity=activity).join(
        held,
        [
            samples.device_id == held.device_id,
            samples.from_utc < held.held_to,
            samples.to_utc > held.held_from,
        ],
    )
    rows = rows.filter(rows.activity.notnull()).select(
        device=rows.device_id,
        from_ms=ibis.greatest(rows.from_utc, rows.held_from),
        to_ms=ibis.least(rows.to_utc, rows.held_to),
        activity=rows.activity,
    )
    table = books.fetch(rows)
    if not len(table):
        return None
    devices, device = np.unique(table["device"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
    return _add_up(devices.size, device, *(table[c].to_numpy() for c in ("from_ms", "to_ms", "activity")))


def _add_up(gpus: int, device: Any, from_ms: Any, to_ms: Any, activity: Any) -> JobActivity:
    """Samples (arrays of one length) as sums by GPU and step; a sample over several steps counts in each by its part."""
    span_s = (to_ms.max() - from_ms.min()) / MS_PER_S
    step_s = next((step for step in STEPS_S if span_s <= step * MOST_STEPS), STEPS_S[-1])
    step_ms = step_s * MS_PER_S
    start = int(from_ms.min() // step_ms * step_ms)
    first, last = (from_ms - start) // step_ms, (to_ms - 1 - start) // step_ms
    pieces = (last - first + 1).astype(int)
    of = np.repeat(np.arange(from_ms.size), pieces)
    step = np.repeat(first, pieces) + np.arange(of.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    edge = start + step * step_ms
    ms = np.minimum(to_ms[of], edge + step_ms) - np.maximum(from_ms[of], edge)
    steps = int(step.max()) + 1
    cell = device[of] * steps + step
    observed = np.bincount(cell, ms, gpus * steps).reshape(gpus, steps)
    active = np.bincount(cell, ms * activity[of], gpus * steps).reshape(gpus, steps)
    unknown = observed == 0
    share = np.divide(active, observed, out=np.zeros_like(active), where=~unknown)
    mean = np.divide(active.sum(0), observed.sum(0), out=np.full(steps, np.nan), where=~unknown.all(0))
    lowest = np.where(unknown, np.inf, share).min(0)
    highest = np.where(unknown, -np.inf, share).max(0)
    return JobActivity(start, step_s, gpus, *(_known(values) for values in (mean, lowest, highest)))


def _known(values: Any) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]
