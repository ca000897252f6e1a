"""Activity of the GPUs of one job over time, from its raw samples: finer than the hours of the ledger. Reads, never writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadfactor.base.units import MS_PER_S, S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.books.booking import may_overlap
from loadfactor.books.compiled_sql import Queries, recall
from loadfactor.store.session import Session

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


def find_job_activity(session: Session, job: str, start_ms: int, end_ms: int) -> JobActivity | None:
    """What the GPUs of the job did within [start, end). None where its allocations name no GPU, or no sample is of them."""
    session.put("asked_job", {"job_id": [job], "from_utc": [start_ms], "to_utc": [end_ms]})
    session.view_table("allocations", "allocations")
    session.materialize("held_gpus", recall("GPUs of a job", _compile_held)["held"])
    first, last = session.fetch_one("SELECT min(from_utc), max(to_utc) FROM held_gpus")
    if first is None:
        return None
    files = session.covering("samples", (first, last))
    overlaps = may_overlap([*session.parts(files), *session.live_samples])
    session.view_table("samples", "samples", files, ((first, last),))
    queries = recall(f"activity of a job {overlaps}", lambda: _compile_activity(overlaps))
    found = session.fetch_columns(queries["activity"])
    if not len(found["activity"]):
        return None
    devices, device = np.unique(found["device_id"].astype(str), return_inverse=True)
    return _add_up(devices.size, device, *(np.asarray(found[c]) for c in ("from_ms", "to_ms", "activity")))


def _compile_held() -> Queries:
    """The SQL of the GPUs that a job holds."""
    from loadfactor.books.expressions import input_table, write_sql
    from loadfactor.metrics.query.job_activity import list_held

    return {"held": write_sql(list_held(input_table("allocations")))}


def _compile_activity(overlaps: bool) -> Queries:
    """The SQL of what they did."""
    from loadfactor.books.expressions import input_table, write_sql
    from loadfactor.metrics.query.job_activity import list_activity

    return {"activity": write_sql(list_activity(input_table("samples"), overlaps))}


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
