"""One job in a few numbers: who ran it, on what, for how long, how full and at what cost; what `seff` and `jobstats` say of it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.units import MS_PER_HOUR, MS_PER_S
from loadfactor.books.job_account import find_alike
from loadfactor.books.waterfall import ASKED, FleetWaterfall
from loadfactor.metrics.fullness import DROPS
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.query.reading import Readings
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.tables.schema import DIMENSIONS, EVEN_SPLIT, IS_LISTED, Span, columns_of

SHOWN: Final = (
    *("allocated_gpu_hours", "observed_gpu_hours", "effective_gpu_hours", "idle_gpu_hours", "utilization"),
    *("mem_utilization", "mem_utilization_peak", "cost", "idle_cost"),
)
"""Metrics of a job's summary."""
MOST_PARTS: Final = 50
"""Of an array of more tasks one is to be named."""


@dataclass(frozen=True)
class JobLoss:
    """The largest loss of a job that somebody knows: the name of a step of the waterfall, its GPU-hours and cost."""

    name: str
    gpu_hours: float
    cost: float | None


@dataclass(frozen=True)
class ReportedUse:
    """What summaries of whole runs (jobstats) say of GPUs: means of GPU_UTIL, which hide idle time and are in no other number.

    `coverage` is the part of the GPU-hours held that they speak of; `mem_peak_share` the mean of the peaks of memory, None where
    they do not say it.
    """

    utilization: float
    mem_peak_share: float | None
    coverage: float
    basis: str = "jobstats: mean GPU_UTIL of whole runs"


def sum_reported(session: Session, by: str, span: Span, where: Mapping[str, str]) -> dict[str, ReportedUse]:
    """By the values of a column of `allocations` (job_id, user), what summaries say of the GPU-hours held within `span` (ms).

    `where`: dimensions and their values; nothing is known where one of them is no column of `allocations`.
    """
    chosen = _choose_allocations(session, where)
    if chosen is None:
        return {}
    rows = session.raw.execute(
        f"""
        SELECT {by}, sum(ms * summary_busy_share) / sum(ms), sum(ms * summary_mem_peak_share)
            / nullif(sum(ms) FILTER (summary_mem_peak_share IS NOT NULL), 0), least(1.0, sum(ms) / any_value(held_ms))
        FROM (
          SELECT *, summary_gpus * part AS ms,
            sum(part * coalesce(gpus, 1) * coalesce(share, 1)) OVER (PARTITION BY {by}) AS held_ms
          FROM (
            SELECT *, least(coalesce(to_utc, {span[1]}), {span[1]}) - greatest(from_utc, {span[0]}) AS part FROM allocations
            WHERE {by} IS NOT NULL{chosen}) WHERE part > 0)
        WHERE summary_busy_share IS NOT NULL AND ms > 0 GROUP BY {by}"""
    ).fetchall()
    return {name: ReportedUse(busy, peak, part) for name, busy, peak, part in rows}


def _choose_allocations(session: Session, where: Mapping[str, str]) -> str | None:
    """SQL of the rows of `allocations` that `where` names, to be read after other conditions; None where there can be none."""
    columns = {DIMENSIONS[name]: value for name, value in where.items()}
    if not session.has_rows("allocations") or not set(columns) <= set(columns_of("allocations")):
        return None
    session.view_table("allocations", "allocations")
    return "".join(f" AND {column} = {quote(value)}" for column, value in columns.items())


@dataclass(frozen=True)
class HeldPart:
    """The parts of GPUs that a job held, from the smallest to the largest, and how they are known, in a word and in full."""

    smallest: float
    largest: float
    word: Literal["requested", "equal"]
    basis: str


OF_EQUALS: Final = "how many held a GPU at once, as labels say no more"
OF_SHARES: Final = "what it was given of a GPU: slices of MIG, time slices, replicas"
OF_SHARDS: Final = "its shards or MPS percentages ÷ those of a GPU of its node"


def list_parts(session: Session, span: Span, where: Mapping[str, str]) -> dict[str, HeldPart]:
    """The jobs that held parts of GPUs within `span` (ms); as of `sum_reported` for `where`. GPUs split over nodes are no parts."""
    chosen = _choose_allocations(session, where)
    if chosen is None:
        return {}
    rows = session.raw.execute(
        f"""
        SELECT job_id, coalesce(min(part) FILTER (is_listed), min(part)), coalesce(max(part) FILTER (is_listed), max(part)),
            bool_or(share < 1), bool_or(is_listed) FROM (
          SELECT job_id, share, if(share < 1, share, gpus) AS part, {IS_LISTED} AS is_listed FROM allocations
          WHERE job_id IS NOT NULL AND known_from IS DISTINCT FROM '{EVEN_SPLIT}'{chosen}
            AND coalesce(from_utc, {span[0]}) < {span[1]} AND coalesce(to_utc, {span[1]}) > {span[0]})
        WHERE part > 0 AND part < 1 GROUP BY job_id"""
    ).fetchall()
    return {
        job: HeldPart(low, high, "requested", OF_SHARES if is_share else OF_SHARDS)
        if is_listed
        else HeldPart(low, high, "equal", OF_EQUALS)
        for job, low, high, is_share, is_listed in rows
    }


@dataclass(frozen=True)
class JobSummary:
    """A job, or a task of an array or a component of a het job. None is not known.

    `wall_s` is the time in which it held GPUs, over its attempts; `gpus` the most it held in an hour. `coverage` is the part of its
    held time that was observed, to which `utilization` and memory speak; `loss` is None where nothing was lost that is known.
    """

    job: str
    name: str | None
    user: str | None
    team: str | None
    project: str | None
    state: str | None
    attempts: int
    nodes: int | None
    gpus: float | None
    accelerators: tuple[str, ...]
    submitted: datetime | None
    start: datetime
    end: datetime | None
    wall_s: float
    gpu_hours: float | None
    observed_gpu_hours: float | None
    effective_gpu_hours: float | None
    idle_gpu_hours: float | None
    coverage: float | None
    utilization: float | None
    mem_utilization: float | None
    mem_utilization_peak: float | None
    cost: float | None
    idle_cost: float | None
    currency: str
    loss: JobLoss | None
    reported: ReportedUse | None = None


Ask = Callable[..., Readings]
ReadWaterfall = Callable[[Readings], FleetWaterfall]


def find_jobs(session: Session, given: str) -> tuple[str, ...]:
    """The jobs of an id as Slurm writes it: the job, by its raw number too, or tasks of an array and components of a het job.

    Steps (`.batch`) are left out. Raises InputError for one that the books do not know, or that waits still.
    """
    session.view_table("allocations", "allocations")
    session.view_table("queue_events", "queue_events")
    plain = given.partition(".")[0] if given.partition(".")[0].replace("_", "").replace("+", "").isdigit() else given
    is_one = (
        f"job_id IN ({quote(given)}, {quote(plain)})",
        f"starts_with(job_id, {quote(plain + '_')}) OR starts_with(job_id, {quote(plain + '+')})",
        f"CAST(job_number AS VARCHAR) = {quote(plain)}",
    )
    for where in is_one:
        query = f"SELECT DISTINCT job_id FROM allocations WHERE {where} ORDER BY length(job_id), job_id"
        if found := session.raw.execute(query).fetchall():
            if len(found) > MOST_PARTS:
                raise InputError(f"job {plain} has {len(found):,} parts; name one of them, like {found[0][0]}")
            return tuple(job for (job,) in found)
    (waiting,) = session.fetch_one(f"SELECT count(*) FROM queue_events WHERE job_id = {quote(plain)}")
    if waiting:
        raise InputError(f"job {plain!r} held no GPU yet; `loadfactor waits --job {plain}` says how long it may wait")
    rows = session.raw.execute("SELECT DISTINCT job_id FROM allocations WHERE job_id IS NOT NULL").fetchall()
    raise no_such(
        "job", plain, [job for (job,) in rows], "the books know jobs as their scheduler or exporter names them"
    )


def summarize_job(
    session: Session, job: str, ask: Ask, read_waterfall: ReadWaterfall, span: tuple[datetime, datetime]
) -> JobSummary:
    """The summary of a job that the books know; what it holds still is counted until the books end."""
    last_ms = round(span[1].timestamp() * MS_PER_S)
    rows = session.raw.execute(
        "SELECT attempt, from_utc, to_utc, submitted_utc, user, team, project, end_state, tags FROM allocations"
        f" WHERE job_id = {quote(job)} ORDER BY from_utc, attempt"
    ).fetchall()
    latest = rows[-1]
    is_held = any(row[2] is None for row in rows)
    spans = list(_merge((row[1] or 0, row[2] if row[2] is not None else max(last_ms, row[1] or 0)) for row in rows))
    start, end = spans[0][0], spans[-1][1]
    window = {"start": instant(_floor(start)), "end": instant(-_floor(-max(end, start + 1)))}
    known = _Values(ask([*SHOWN, *ASKED], ("job",), where={"job": job}, **window))
    places = ask(("allocated_gpu_hours",), ("node", "accelerator"), where={"job": job}, **window)
    held = [key for key, hours in zip(places.keys, places.column("allocated_gpu_hours"), strict=True) if hours]
    nodes = {node for node, _ in held if node}
    gpus = find_alike(session, job, start, end).gpus if known.read("allocated_gpu_hours") else None
    return JobSummary(
        job=job,
        name=_read_tag(session, latest[8]),
        user=latest[4],
        team=latest[5],
        project=latest[6],
        state="running" if is_held else latest[7],
        attempts=len({row[0] for row in rows}),
        nodes=len(nodes) or None,
        gpus=gpus or None,
        accelerators=tuple(sorted({of for _, of in held if of})),
        submitted=min((instant(row[3]) for row in rows if row[3] is not None), default=None),
        start=instant(start),
        end=None if is_held else instant(end),
        wall_s=sum(until - since for since, until in spans) / MS_PER_S,
        gpu_hours=known.read("allocated_gpu_hours"),
        observed_gpu_hours=known.read("observed_gpu_hours"),
        effective_gpu_hours=known.read("effective_gpu_hours"),
        idle_gpu_hours=known.read("idle_gpu_hours"),
        coverage=known.coverage("utilization"),
        utilization=known.read("utilization"),
        mem_utilization=known.read("mem_utilization"),
        mem_utilization_peak=known.read("mem_utilization_peak"),
        cost=known.read("cost"),
        idle_cost=known.read("idle_cost"),
        currency=session.currency,
        loss=_find_loss(read_waterfall(known.found)) if known.found.keys else None,
        reported=sum_reported(session, "job_id", (start, end), {"job": job}).get(job),
    )


class _Values:
    """Readings of one job by metric."""

    def __init__(self, found: Readings) -> None:
        self.found = found
        self._readings = {reading.metric: reading for reading in found[: len(SHOWN)]} if found.keys else {}

    def read(self, metric: str) -> float | None:
        value = self._readings[metric].value if self._readings else None
        return value if isinstance(value, float) else None

    def coverage(self, metric: str) -> float | None:
        return self._readings[metric].coverage if self._readings else None


def _find_loss(found: FleetWaterfall) -> JobLoss | None:
    """The largest loss by cost, else by GPU-hours, of those that are no question of what is not known."""
    is_unknown = {drop.name: drop.is_unknown for drop in DROPS}
    lost = [step for step in found.all.steps if step.kind == "loss" and not is_unknown[step.name] and step.gpu_hours]
    step = max(lost, key=lambda of: (of.cost or 0.0, of.gpu_hours or 0.0), default=None)
    return None if step is None else JobLoss(step.name, step.gpu_hours or 0.0, step.cost)


def _read_tag(session: Session, tags: Any) -> str | None:
    if not tags:
        return None
    (name,) = session.fetch_one(f"SELECT json_extract_string({quote(tags)}, '$.job_name')")
    return None if name is None else str(name)


def _merge(spans: Iterable[Span]) -> Iterable[Span]:
    """Spans as disjoint ones in order."""
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = out[-1][0], max(end, out[-1][1])
        else:
            out.append((start, end))
    return out


def _floor(ms: int) -> int:
    return ms // MS_PER_HOUR * MS_PER_HOUR
