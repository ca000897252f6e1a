"""Cost and output of a job, where its money leaked, and jobs like it: the answer of its page."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from loadfactor.base.units import MS_PER_S
from loadfactor.books.waterfall import ASKED, WaterfallGroup
from loadfactor.metrics.fullness import DROPS, LOST_WORK
from loadfactor.metrics.metric import Made, Metric
from loadfactor.metrics.money import UNITS
from loadfactor.metrics.query.reading import Readings, rank
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session

SPENT_ON: Final = ("effective", "underused", "idle", "unobserved")
"""Parts of the held time of a job: their GPU-hours and costs add up to those of the job."""
MADE: Final = {unit: Metric(f"{unit}_made", unit, "", "", "neither", Made(unit)) for _, unit in UNITS}
KEPT: Final = {unit: Metric(f"{unit}_kept", unit, "", "", "neither", Made(unit, is_kept=True)) for _, unit in UNITS}
UNIT_COSTS: Final = {unit: f"cost_per_{name}" for name, unit in UNITS}
OF_THE_INVOICE: Final = (
    *("allocated_gpu_hours", "cost", "utilization"),
    *(f"{name}_{unit}" for unit in ("gpu_hours", "cost") for name in SPENT_ON),
)
OF_WHAT_WAS_MADE: Final = (
    *("mfu", "hfu", "model_flops", "tokens_per_gpu_s"),
    *UNIT_COSTS.values(),
    *(of.name for of in (*MADE.values(), *KEPT.values())),
)
"""Names of what the page of a job shows."""
ASKED_OF_JOBS: Final[tuple[str | Metric, ...]] = (
    *OF_THE_INVOICE,
    *OF_WHAT_WAS_MADE[: -2 * len(UNITS)],
    *MADE.values(),
    *KEPT.values(),
    *ASKED,
)
"""All that is requested, job by job, in one question."""
FEWEST_ALIKE: Final = 3
"""Of fewer jobs a median says nothing."""
MOST_TIMES_GPUS: Final = 2.0
"""Jobs are alike whose GPUs are at most so many times as many, or as few."""


@dataclass(frozen=True)
class AlikeJobs:
    """The GPUs a job held at most, and the jobs like it: of its team or experiment and of no other purpose, of about its size.

    Where it has neither team nor experiment, those of its purpose.
    """

    gpus: float
    jobs: tuple[str, ...]


@dataclass(frozen=True)
class AlikeValue:
    """A metric of a job beside the median of jobs like it that have it; None where they are fewer than `FEWEST_ALIKE`."""

    metric: str
    unit: str
    value: float | None
    median: float | None
    jobs: int


@dataclass(frozen=True)
class Leak:
    """A loss on the way from paid to useful, by its cause where that divides it; or, where `is_unknown`, what may be one."""

    name: str
    cause: str | None
    is_unknown: bool
    gpu_hours: float
    cost: float | None
    share_of_cost: float | None


def find_alike(session: Session, job: str, start_ms: int, end_ms: int) -> AlikeJobs:
    """The jobs like one within [start, end); reads `ledger` once."""
    rows = session.raw.execute(
        f"""WITH hours AS (
                SELECT job_id, sum(gpu_s) * {MS_PER_S} / (max(to_utc) - min(from_utc)) AS gpus,
                       max(team) AS team, max(experiment_id) AS experiment, max(purpose) AS purpose
                FROM ledger WHERE job_id IS NOT NULL AND from_utc < {end_ms} AND to_utc > {start_ms} GROUP BY job_id, hour_utc),
            jobs AS (
                SELECT job_id, max(gpus) AS gpus, max(team) AS team, max(experiment) AS experiment, max(purpose) AS purpose
                FROM hours GROUP BY job_id)
            SELECT other.job_id, other.gpus FROM jobs AS other, (FROM jobs WHERE job_id = {quote(job)}) AS one
            WHERE other.job_id = {quote(job)} OR (
                other.gpus BETWEEN one.gpus / {MOST_TIMES_GPUS} AND one.gpus * {MOST_TIMES_GPUS}
                AND coalesce(other.purpose = one.purpose, true)
                AND (other.team = one.team OR other.experiment = one.experiment
                     OR (coalesce(one.team, one.experiment) IS NULL AND other.purpose = one.purpose)))
            ORDER BY other.job_id"""
    ).fetchall()
    gpus = next((gpus for name, gpus in rows if name == job), 0.0)
    return AlikeJobs(gpus, tuple(name for name, _ in rows if name != job))


def compare_jobs(found: Readings, job: str, alike: AlikeJobs) -> tuple[AlikeValue, ...]:
    """Utilization, MFU and the cost of each unit that the job made, beside jobs like it; `found` is by job alone."""
    places = {key[0]: place for place, key in enumerate(found.keys)}
    others = [places[name] for name in alike.jobs if name in places]
    one = places[job]
    made = [name for unit, name in UNIT_COSTS.items() if found.column(MADE[unit].name)[one] is not None]
    units = {reading.metric: reading.unit for reading in found.pick([one])}
    out = []
    for metric in ("utilization", "mfu", *made):
        column = found.column(metric)
        known = [value for place in others if isinstance(value := column[place], float)]
        middle = median(known) if len(known) >= FEWEST_ALIKE else None
        value = column[one]
        out.append(AlikeValue(metric, units[metric], value if isinstance(value, float) else None, middle, len(known)))
    return tuple(out)


def list_leaks(group: WaterfallGroup) -> tuple[Leak, ...]:
    """Losses with the largest first, then what may be one; they and what was useful add up to what was paid."""
    is_unknown = {drop.name: drop.is_unknown for drop in DROPS}
    causes = [part for part in group.causes if part.of == LOST_WORK]
    paid = None if group.cost is None else group.cost.paid
    leaks = []
    for step in group.steps:
        parts: Sequence[tuple[str | None, float, float | None]] = [(None, step.gpu_hours or 0.0, step.cost)]
        if step.name == LOST_WORK and causes:
            parts = [(part.cause, part.gpu_hours, part.cost) for part in causes]
        for cause, hours, cost in parts if step.kind != "level" else ():
            if hours or cost:
                share = cost / paid if cost is not None and paid else None
                leaks.append(Leak(step.name, cause, is_unknown[step.name], hours, cost, share))
    return tuple(sorted(leaks, key=lambda leak: (leak.is_unknown, -rank(leak.cost), -rank(leak.gpu_hours))))
