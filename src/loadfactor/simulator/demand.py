"""The jobs handed in: what, when and by whom, before the queue has seen them."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from loadfactor.base.units import D_PER_WEEK, H_PER_DAY, MS_PER_DAY, MS_PER_HOUR, MS_PER_S, S_PER_HOUR
from loadfactor.simulator.fleet import Floats, Ints, SimulatedFleet
from loadfactor.simulator.scenario import WORKLOADS, Scenario, Team, find_workload

FOREVER_MS = 2**60
FIRST_JOB_NUMBER = 481_000
CLOSE_OF_FRIDAY, OPEN_OF_MONDAY = 12, 8.5  # local hours between which a notebook is forgotten
MOST_FOR_PEOPLE_SHARE = 0.3  # of a pool, for notebooks
PLATFORM_USER = "svc-serving"
SATURDAY = 5
EPOCH_WEEKDAY = 3  # 1970-01-01 was a Thursday


@dataclass(slots=True)
class SubmittedJob:
    """One request. Durations are of the compute alone: start-up and the idle tail come on top, failures repeat a part."""

    job_id: str
    workload: int
    team: str
    user: str
    project: str
    experiment_id: str | None
    pool: str
    gpus: int
    submitted_ms: int
    eligible_ms: int
    work_ms: int
    limit_ratio: float = math.inf  # time limit of one attempt, over start-up and work
    tail_ms: int = 0
    crash_after_ms: int = FOREVER_MS  # of compute, in the first attempt
    restarts: bool = False  # after its own crash
    patience_ms: int = FOREVER_MS
    urgent: bool = False
    deployment: int = -1

    @property
    def order(self) -> tuple[int, int]:
        """Its place in the queue: served networks first, then first come."""
        return (0 if self.urgent else 1, self.eligible_ms)


@dataclass(frozen=True)
class PoolSize:
    """Capacity of a pool: whole GPUs over time, and the largest gang it should get."""

    name: str
    gpu_ms: float
    per_node: int
    largest: int


def measure_pools(scenario: Scenario, fleet: SimulatedFleet) -> list[PoolSize]:
    out = []
    for pool in dict.fromkeys(g.pool for g in scenario.groups):
        nodes = [n for n in fleet.nodes if n.group.pool == pool]
        per_node = max(len(n.whole) for n in nodes)
        full = sum(len(n.whole) == per_node and n.group.bought_day is None for n in nodes)
        gpu_ms = float(sum(len(n.whole) * (n.to_ms - n.from_ms) for n in nodes))
        held = sum(d.replicas * d.gpus for d in scenario.deployments if d.pool == pool)
        largest = max(1, full // 2) * per_node
        out.append(PoolSize(pool, gpu_ms - held * scenario.days * MS_PER_DAY, per_node, largest))
    return sorted(out, key=lambda p: -p.gpu_ms)


@dataclass(frozen=True)
class Calendar:
    """The zone's offset for each hour of the scenario, and what follows from it. Daylight saving changes at whole UTC hours."""

    start_ms: int
    offset_ms: Ints

    def local_ms(self, at_ms: npt.NDArray[np.int64]) -> Ints:
        """The wall clock's milliseconds since its own 1970, for instants."""
        hour = np.clip((at_ms - self.start_ms) // MS_PER_HOUR, 0, len(self.offset_ms) - 1)
        return np.asarray(at_ms + self.offset_ms[hour])

    def hour(self, at_ms: npt.NDArray[np.int64]) -> Floats:
        """Local hour of the day, 0 … 24."""
        return np.asarray((self.local_ms(at_ms) % MS_PER_DAY) / MS_PER_HOUR)

    def weekday(self, at_ms: npt.NDArray[np.int64]) -> Ints:
        """Local weekday, Monday 0."""
        return np.asarray((self.local_ms(at_ms) // MS_PER_DAY + EPOCH_WEEKDAY) % D_PER_WEEK)

    def weekend(self, at_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """True on a local Saturday or Sunday."""
        return np.asarray(self.weekday(at_ms) >= SATURDAY)


def build_jobs(scenario: Scenario, fleet: SimulatedFleet, calendar: Calendar) -> list[SubmittedJob]:
    """Deployments, then batch jobs and notebooks in the order they are handed in."""
    rng = np.random.default_rng((scenario.seed, 2))
    pools = measure_pools(scenario, fleet)
    jobs = [job for team in scenario.teams for job in _build_team_jobs(scenario, team, pools, calendar, rng)]
    _scale_to_load(scenario, jobs, pools)
    jobs.sort(key=lambda j: (j.submitted_ms, j.team, j.user, j.work_ms))
    for number, job in enumerate(jobs):
        job.job_id = str(FIRST_JOB_NUMBER + number)
    return _build_deployments(scenario) + jobs


def _build_deployments(scenario: Scenario) -> list[SubmittedJob]:
    return [
        SubmittedJob(
            job_id=f"{d.name}-r{r}",
            workload=find_workload("serving"),
            team=d.team,
            user=PLATFORM_USER,
            project=d.name,
            experiment_id=None,
            pool=d.pool,
            gpus=d.gpus,
            submitted_ms=scenario.start_ms,
            eligible_ms=scenario.start_ms,
            work_ms=FOREVER_MS,
            urgent=True,
            deployment=i,
        )
        for i, d in enumerate(scenario.deployments)
        for r in range(d.replicas)
    ]


def _build_team_jobs(
    scenario: Scenario, team: Team, pools: list[PoolSize], calendar: Calendar, rng: np.random.Generator
) -> list[SubmittedJob]:
    total = sum(t.share for t in scenario.teams)
    count = round(scenario.jobs * team.share / total)
    odds = np.array([share for _, share in team.work])
    kinds = rng.choice(len(odds), count, p=odds / odds.sum())
    out: list[SubmittedJob] = []
    for k, (name, _) in enumerate(team.work):
        out += _build_jobs_of(scenario, team, find_workload(name), int((kinds == k).sum()), pools, calendar, rng)
    return out


def _build_jobs_of(
    scenario: Scenario,
    team: Team,
    kind: int,
    count: int,
    pools: list[PoolSize],
    calendar: Calendar,
    rng: np.random.Generator,
) -> list[SubmittedJob]:
    w = WORKLOADS[kind]
    notebook = w.shape == "notebook"
    at_ms = _draw_arrivals(scenario, count, calendar, rng, notebook)
    work_ms = np.round(w.hours * np.exp(w.hours_sigma * rng.standard_normal(count)) * S_PER_HOUR).astype(np.int64)
    work_ms = np.maximum(work_ms, 120) * MS_PER_S
    if notebook:
        work_ms = _lengthen_forgotten(at_ms, work_ms, calendar, rng)
    gpus = np.array(w.gpus)[rng.integers(0, len(w.gpus), count)]
    main = rng.random(count) < w.main_pool_share
    held = np.where(rng.random(count) < 0.05, rng.integers(60, 7200, count), 0) * MS_PER_S
    hasty = rng.random(count) < (0.3 if notebook else 0.08)
    patience_ms = rng.integers(900, 10_800 if notebook else 43_200, count) * MS_PER_S
    tail_s = np.where(rng.random(count) < w.tail_share, rng.lognormal(np.log(1800), 0.9, count), 0)
    crashes = rng.random(count) < w.crash_share
    crash_at = rng.beta(0.7, 2.0, count)  # most bugs show early
    limit = np.where(rng.random(count) < 0.03, 0.8, rng.uniform(1.3, 3.0, count))
    restarts = rng.random(count) < 0.45
    tagged = rng.random(count) < 0.8
    user, project = rng.integers(0, len(team.users), count), rng.integers(0, len(team.projects), count)
    experiment = rng.integers(1, 3 + count // 12, count)
    out = []
    for i in range(count):
        pool = pools[0] if main[i] else pools[-1]
        work = int(work_ms[i])
        name = team.projects[project[i]]
        out.append(
            SubmittedJob(
                job_id="",
                workload=kind,
                team=team.name,
                user=team.users[user[i]],
                project=name,
                experiment_id=f"{name}-{w.name}-{experiment[i]:02d}" if tagged[i] and not notebook else None,
                pool=pool.name,
                gpus=_fit_gang(int(gpus[i]), pool),
                submitted_ms=int(at_ms[i]),
                eligible_ms=int(at_ms[i] + held[i]),
                work_ms=work,
                limit_ratio=math.inf if notebook else float(limit[i]),
                tail_ms=int(tail_s[i]) * MS_PER_S,
                crash_after_ms=int(work * crash_at[i]) // MS_PER_S * MS_PER_S if crashes[i] else FOREVER_MS,
                restarts=bool(restarts[i]),
                patience_ms=int(patience_ms[i]) if hasty[i] else FOREVER_MS,
            )
        )
    return out


def _fit_gang(requested: int, pool: PoolSize) -> int:
    """GPUs of a gang that the pool can place: at most its largest, and whole nodes beyond one node."""
    gpus = min(requested, pool.largest)
    return gpus if gpus <= pool.per_node else gpus // pool.per_node * pool.per_node


def _draw_arrivals(
    scenario: Scenario, count: int, calendar: Calendar, rng: np.random.Generator, notebook: bool
) -> Ints:
    """Whole seconds of hand-in, as thick as people are awake; the first hour also brings half a day that was queued before."""
    hours = scenario.start_ms + np.arange(scenario.days * H_PER_DAY, dtype=np.int64) * MS_PER_HOUR
    weight = compute_submission_rate(calendar, hours + MS_PER_HOUR // 2, *((0.02, 0.12) if notebook else (0.22, 0.4)))
    if not notebook:
        weight[0] += 0.5 * H_PER_DAY * weight.mean()
    hour = rng.choice(len(hours), count, p=weight / weight.sum())
    return np.asarray(hours[hour] + rng.integers(0, S_PER_HOUR, count) * MS_PER_S)


def _lengthen_forgotten(at_ms: Ints, work_ms: Ints, calendar: Calendar, rng: np.random.Generator) -> Ints:
    """Some notebooks opened on a Friday afternoon are closed only on Monday morning."""
    friday = (calendar.weekday(at_ms) == 4) & (calendar.hour(at_ms) >= CLOSE_OF_FRIDAY)
    forgotten = friday & (rng.random(len(at_ms)) < 0.8)
    to_monday_h = 3 * H_PER_DAY - calendar.hour(at_ms) + OPEN_OF_MONDAY + rng.random(len(at_ms)) * 2
    weekend_ms = (to_monday_h * S_PER_HOUR).astype(np.int64) * MS_PER_S
    return np.asarray(np.where(forgotten, np.maximum(work_ms, weekend_ms), work_ms))


def _scale_to_load(scenario: Scenario, jobs: list[SubmittedJob], pools: list[PoolSize]) -> None:
    """Lengthen or shorten batch work so that requests for each pool are `scenario.load` of what it can give.

    People's sessions stay as long as they are, unless there are so many that they would take more than their part.
    """
    for pool in pools:
        people = [j for j in jobs if j.pool == pool.name and WORKLOADS[j.workload].shape == "notebook"]
        batch = [j for j in jobs if j.pool == pool.name and WORKLOADS[j.workload].shape != "notebook"]
        if people:
            _scale(scenario, people, min(1.0, MOST_FOR_PEOPLE_SHARE * pool.gpu_ms / _sum_gpu_ms(people)))
        if batch:
            overhead = sum(j.gpus * (WORKLOADS[j.workload].startup_s * MS_PER_S + j.tail_ms) for j in batch)
            left = scenario.load * pool.gpu_ms - _sum_gpu_ms(people) - overhead
            _scale(scenario, batch, max(0.05, left / _sum_gpu_ms(batch)))


def _sum_gpu_ms(jobs: list[SubmittedJob]) -> int:
    return sum(j.gpus * j.work_ms for j in jobs)


def _scale(scenario: Scenario, jobs: list[SubmittedJob], factor: float) -> None:
    longest_ms = scenario.days * MS_PER_DAY // 2
    for job in jobs:
        job.work_ms = _round_to_s(min(longest_ms, job.work_ms * factor))
        if job.crash_after_ms < FOREVER_MS:
            job.crash_after_ms = _round_to_s(min(longest_ms, job.crash_after_ms * factor))


def _round_to_s(ms: float) -> int:
    return max(60, round(ms / MS_PER_S)) * MS_PER_S


def build_calendar(scenario: Scenario) -> Calendar:
    """The calendar of a scenario, one day longer than the simulation so that a session may end after them."""
    hours = (scenario.days + 1) * H_PER_DAY
    offsets = []
    for h in range(hours):
        at = datetime.fromtimestamp((scenario.start_ms + h * MS_PER_HOUR) / MS_PER_S, UTC).astimezone(scenario.zone)
        offset = at.utcoffset()
        offsets.append(0 if offset is None else round(offset.total_seconds()) * MS_PER_S)
    return Calendar(scenario.start_ms, np.array(offsets, dtype=np.int64))


def compute_submission_rate(calendar: Calendar, at_ms: npt.NDArray[np.int64], night: float, weekend: float) -> Floats:
    """How much work people hand in, relative: late morning and late afternoon of a working day, `night` always."""
    hour = calendar.hour(at_ms)
    day = np.exp(-(((hour - 11) / 2.4) ** 2)) + 0.9 * np.exp(-(((hour - 16) / 2.4) ** 2))
    return np.asarray((night + day) * np.where(calendar.weekend(at_ms), weekend, 1.0))


def compute_request_rate(calendar: Calendar, at_ms: npt.NDArray[np.int64]) -> Floats:
    """Requests to a served network as a share of the top of a working day: a broad day, a deep night, a weekend dip.

    Highest near 14:00 local; at 04:00 about a tenth of it; a weekend has a bit more than half.
    """
    hour = calendar.hour(at_ms)
    day = 0.08 + 0.92 * np.exp(-((np.abs((hour - 14 + H_PER_DAY / 2) % H_PER_DAY - H_PER_DAY / 2) / 5.2) ** 2))
    return np.asarray(day * np.where(calendar.weekend(at_ms), 0.55, 1.0))
