"""Page of `forecast`: GPU-hours, cost and waits of the next weeks, when pools run out, and what a new team does to the queue."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from loadfactor.base.errors import InputError
from loadfactor.base.request import make_request
from loadfactor.base.units import H_PER_DAY, H_PER_MONTH, S_PER_DAY, S_PER_HOUR
from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Document, Section
from loadfactor.interfaces.formats import counted, duration, instant, money, number, percent
from loadfactor.interfaces.functions import Page
from loadfactor.interfaces.plans.inputs import find_demand, read_jobs
from loadfactor.interfaces.plans.marginal import draw_marginal
from loadfactor.interfaces.requests import ForecastRequest
from loadfactor.interfaces.tables import col, cols, table
from loadfactor.planner.hardware.marginal import NEXT_GPUS, Marginal, list_enlargements
from loadfactor.planner.sizing.weekly_forecast import (
    COVERED_SHARE,
    LEAST_DAYS,
    WEEK,
    find_growth,
    find_weeks_left,
    forecast_weeks,
    hold_back,
)

if TYPE_CHECKING:
    from loadfactor.planner.sizing.cluster import Outcome
    from loadfactor.planner.sizing.cluster.jobs import Jobs

HOURS: Final = "allocated_gpu_hours"
COST: Final = "cost"
WAIT: Final = "queue_wait_s_mean"
TITLES: Final = {HOURS: "GPU-hours held", COST: "cost", WAIT: "mean wait"}
"""What is forecast, by metric; the mean wait is the mean of those of days."""
CAPACITY: Final = ("paid_gpu_hours", "down_gpu_hours")
NOTHING: Final = "(none)"
MOST_GROUPS: Final = 12
SEED: Final = 32
"""Of the draw of jobs for a new team."""


@dataclass(frozen=True)
class ForecastWeek:
    """A week and the range that four in five such weeks lie in."""

    from_: datetime
    to: datetime
    low: float
    value: float
    high: float


@dataclass(frozen=True)
class ForecastSeries:
    """The weeks of a metric, of the fleet or a group. `held_back_share` of `held_back` known weeks lay in ranges made before."""

    metric: str
    unit: str
    by: Mapping[str, str | None]
    growth_share: float | None
    weeks: tuple[ForecastWeek, ...]
    held_back: int
    held_back_share: float | None


@dataclass(frozen=True)
class PoolLeft:
    """A pool: GPUs usable in the last week and held of them, growth a week, and when all are held; None where it does not grow."""

    pool: str | None
    gpus: float
    held_gpus: float
    growth_share: float | None
    runs_out: datetime | None


@dataclass(frozen=True)
class NewTeam:
    """The queue of the history, simulated as it was and with a team that keeps `gpus` GPUs busy with jobs like those there are."""

    gpus: int
    jobs: int
    mean_wait_s: float
    mean_wait_s_with: float
    p90_wait_s: float
    p90_wait_s_with: float
    utilization_share: float
    utilization_share_with: float


@dataclass(frozen=True)
class FleetForecast:
    """The fleet's GPU-hours by week, every series, the pools, and a new team where one was asked for."""

    weeks: tuple[ForecastWeek, ...]
    series: tuple[ForecastSeries, ...]
    pools: tuple[PoolLeft, ...]
    new_team: NewTeam | None
    covered_share: float
    days: int
    currency: str
    remarks: tuple[str, ...]
    marginal: tuple[Marginal, ...] = ()
    """How much later growing pools are full with more GPUs, where requested."""


def forecast(**given: object) -> Page:
    """The answer of `loadfactor forecast` as a page.

    Arguments:
        by: team or pool. weeks: how many. new_team: GPUs of a team that would come.
        start, end, last, timezone, basis, store: of which history.
    """
    return Page(build_page(make_request(ForecastRequest, given)))


def build_page(request: ForecastRequest) -> Document:
    """The page of a request. Raises InputError where there is too little history."""
    with request.books.snapshot() as snapshot:
        found = forecast_fleet(request, snapshot)
    return build_forecast(found)


def forecast_fleet(request: ForecastRequest, snapshot: Snapshot) -> FleetForecast:
    """What the history of these books says of the next weeks."""
    if any(name not in ("team", "pool") for name in request.by):
        raise InputError(f"--by {','.join(request.by)}: forecasts are by team or pool")
    start, end = request.window(snapshot)
    ask = _Days(snapshot, request, start, end)
    if len(ask.days) < LEAST_DAYS:
        raise InputError(
            f"{counted(len(ask.days), 'whole day')} of history: a forecast needs {LEAST_DAYS} to learn its ranges from; import what"
            " came before, or come back then"
        )
    remarks: list[str] = []
    series = [of for name in TITLES for of in ask.forecast(name, (), request.weeks, remarks)]
    for dimension in request.by:
        series += [of for name in (HOURS, COST) for of in ask.forecast(name, (dimension,), request.weeks, remarks)]
    team = None if request.new_team is None else _add_team(request, request.new_team)
    currency = next((of.currency for of in ask.readings(COST, ()) if of.currency), "USD")
    weeks = next((of.weeks for of in series if of.metric == HOURS and not of.by), ())
    pools = tuple(ask.list_pools())
    more = (
        tuple(row for pool in pools for row in _add_gpus(pool, ask.find_price(), currency)) if request.marginal else ()
    )
    return FleetForecast(
        weeks, tuple(series), pools, team, COVERED_SHARE, len(ask.days), currency, tuple(remarks), more
    )


def _add_gpus(pool: PoolLeft, price_per_gpu_hour: float | None, currency: str) -> Iterator[Marginal]:
    """Weeks until a pool that grows is full, with each enlargement; nothing of one that does not grow."""
    per_month = None if price_per_gpu_hour is None else price_per_gpu_hour * H_PER_MONTH
    now = find_weeks_left(pool.held_gpus, pool.growth_share, pool.gpus)
    if now is None or not pool.growth_share or pool.growth_share <= 0:
        return
    where = f" in {pool.pool}" if pool.pool else ""
    for step in list_enlargements(NEXT_GPUS, per_month, currency):
        then = find_weeks_left(pool.held_gpus, pool.growth_share, pool.gpus + step.gpus)
        assert then is not None
        cost = None if per_month is None else step.gpus * per_month
        reason = "" if then > now else "more than that is held already"
        yield Marginal(f"{step.name}{where}", step.gpus, "weeks until full", now, then, then - now, cost, None, reason)


class _Days:
    """Whole days of a history: what they held, cost and waited, by day and group."""

    def __init__(
        self, snapshot: Snapshot, request: ForecastRequest, start: datetime | None, end: datetime | None
    ) -> None:
        self._snapshot, self._request, self._window = snapshot, request, (start, end)
        self._zone = request.zone
        whole = [
            (r.by["day"], r.end)
            for r in self.readings(HOURS, ())
            if r.by["day"] and _is_whole(r.start.astimezone(self._zone)) and _is_whole(r.end.astimezone(self._zone))
        ]
        self.days = sorted(str(day) for day, _ in whole)
        self.end = max((end for _, end in whole), default=snapshot.span[1])

    def readings(self, metric: str, by: Sequence[str]) -> Any:
        """Readings of a metric by group and day."""
        basis = self._request.basis if metric == COST else None
        return self._snapshot.show(metric, (*by, "day"), *self._window, self._zone, basis)

    def read(self, metric: str, by: Sequence[str]) -> dict[tuple[str | None, ...], list[float | None]]:
        """The days of every group: 0 where it has no row, None where it is not known."""
        groups: dict[tuple[str | None, ...], dict[str, float | None]] = {}
        for r in self.readings(metric, by):
            key = tuple(r.by[name] for name in by)
            groups.setdefault(key, {})[str(r.by["day"])] = r.value
        return {key: [of.get(day, 0.0) for day in self.days] for key, of in groups.items()}

    def forecast(self, metric: str, by: tuple[str, ...], weeks: int, remarks: list[str]) -> "list[ForecastSeries]":
        """The series of a metric; of groups those that held most, and none of which a day is not known."""
        found = []
        unit = next((r.unit for r in self.readings(metric, by)), "")
        per = WEEK if metric == WAIT else 1
        for key, days in self.read(metric, by).items():
            named = dict(zip(by, key, strict=True))
            known = [day for day in days if day is not None]
            if len(known) < len(days):
                missing = counted(len(days) - len(known), "day")
                who = f" of {key[0] or NOTHING}" if by else ""
                remarks.append(f"{TITLES[metric]}{who} is not forecast: it is not known of {missing}")
            elif sum(known):
                tried = hold_back(known)
                coming = forecast_weeks(known, weeks)
                listed = tuple(
                    ForecastWeek(
                        self._after(WEEK * at),
                        self._after(WEEK * (at + 1)),
                        of.low / per,
                        of.value / per,
                        of.high / per,
                    )
                    for at, of in enumerate(coming)
                )
                growth = find_growth(known)
                found.append(ForecastSeries(metric, unit, named, growth, listed, tried.weeks, tried.held_share))
        found.sort(key=lambda of: -of.weeks[0].value)
        return found[:MOST_GROUPS]

    def list_pools(self) -> "list[PoolLeft]":
        """Every pool with GPUs in the last week."""
        held = self.read(HOURS, ("pool",))
        paid, down = (self.read(name, ("pool",)) for name in CAPACITY)
        found = []
        for key, days in paid.items():
            hours = [day or 0.0 for day in held.get(key, [0.0] * len(self.days))]
            usable = sum((a or 0.0) - (b or 0.0) for a, b in zip(days[-WEEK:], down[key][-WEEK:], strict=True))
            if usable > 0 and len(hours) >= LEAST_DAYS:
                level, growth = sum(hours[-WEEK:]), find_growth(hours)
                left = find_weeks_left(level, growth, usable)
                at = None if left is None or left > _FAR_WEEKS else self.end + timedelta(weeks=left)
                found.append(PoolLeft(key[0], usable / (WEEK * H_PER_DAY), level / (WEEK * H_PER_DAY), growth, at))
        return sorted(found, key=lambda of: (of.runs_out is None, str(of.runs_out), str(of.pool)))

    def find_price(self) -> float | None:
        """What a paid GPU-hour cost in the last week; None where that is not known."""
        of_cost, of_hours = (self.read(name, ()).get((), [None])[-WEEK:] for name in (COST, CAPACITY[0]))
        cost, hours = (sum(day or 0.0 for day in of) for of in (of_cost, of_hours))
        return cost / hours if cost and hours and None not in of_cost else None

    def _after(self, days: int) -> datetime:
        """The midnight so many local days after the history."""
        local = self.end.astimezone(self._zone).replace(tzinfo=None) + timedelta(days=days)
        return local.replace(tzinfo=self._zone)


_FAR_WEEKS: Final = 520
"""Ten years: later is never."""


def _is_whole(at: datetime) -> bool:
    return (at.hour, at.minute, at.second, at.microsecond) == (0, 0, 0, 0)


def _add_team(request: ForecastRequest, gpus: int) -> NewTeam:
    """Simulate the queue of the history as it was, and with a team that brings jobs drawn from it."""
    import numpy as np

    from loadfactor.interfaces.requests import find_store
    from loadfactor.planner.sizing.cluster import SCHEDULERS, Cluster, simulate
    from loadfactor.planner.sizing.cluster.jobs import make_jobs

    trace: Any = find_demand(None, find_store(request.store))
    jobs: Jobs = read_jobs(trace)
    installed = trace.have_gpus
    if not installed:
        raise InputError("the books list no GPUs, and so not how long a queue for them is; import devices")
    fits = (jobs.gpus <= gpus).nonzero()[0]
    if not len(fits):
        raise InputError(f"no job of the history ran on {gpus} GPUs or fewer; give --new-team more GPUs")
    random = np.random.default_rng(SEED)
    drawn, hours, wanted = [], 0.0, gpus * max(jobs.span_s, S_PER_DAY) / S_PER_HOUR
    while hours < wanted:
        job = int(random.choice(fits))
        drawn.append(job)
        hours += float(jobs.gpus[job] * jobs.duration_s[job]) / S_PER_HOUR
    at = random.uniform(jobs.submit_s[0], jobs.submit_s[0] + max(jobs.span_s, S_PER_DAY), len(drawn))
    both = make_jobs(
        np.concatenate([jobs.submit_s, at]),
        np.concatenate([jobs.gpus, jobs.gpus[drawn]]),
        np.concatenate([jobs.duration_s, jobs.duration_s[drawn]]),
        np.concatenate([jobs.limit_s, jobs.limit_s[drawn]]),
    )
    policy, cluster = SCHEDULERS["slurm"][0], Cluster.of_gpus(max(installed, int(np.ceil(jobs.gpus.max()))))
    outcomes: list[Outcome] = [simulate(of, cluster, policy) for of in (jobs, both)]
    means = [float(np.nanmean(of.wait_s)) for of in outcomes]
    p90s = [float(of.wait_quantiles_s()[1]) for of in outcomes]
    used = [float(of.utilization_share) for of in outcomes]
    return NewTeam(gpus, len(drawn), *means, *p90s, *used)


def build_forecast(found: FleetForecast) -> Document:
    """The sentence, the weeks of the fleet and of groups, pools and a new team."""
    whole = [of for of in found.series if not of.by]
    sections = [_list_fleet(found, whole)]
    for dimension in dict.fromkeys(name for of in found.series for name in of.by):
        groups = [of for of in found.series if dimension in of.by]
        sections.append(_list_groups(found, dimension, groups))
    if found.pools:
        sections.append(_list_pools(found))
    sections += draw_marginal(found.marginal, found.currency, " a month")
    if found.new_team is not None:
        sections.append(_tell_team(found.new_team))
    tried = next((of for of in whole if of.held_back), None)
    checked = (
        f"{percent(tried.held_back_share)} of {tried.held_back} known weeks lay in ranges made before them"
        if tried
        else "the history is too short to hold weeks back"
    )
    return Document(
        _say_next(found),
        tuple(sections),
        f"From {counted(found.days, 'whole day')} of history.",
        assumptions=(
            Assumption("value", "the last week again", "seasonal naive; ranges, not values, say what may come"),
            Assumption("ranges", f"four weeks in five; {checked}", "split conformal, errors of the last four weeks"),
        ),
        notes=found.remarks,
        data=found,
    )


def _say_next(found: FleetForecast) -> str:
    if not found.weeks:
        return "Nothing is known of the GPU-hours of the next weeks."
    week = found.weeks[0]
    hours = f"{number(week.value)} GPU-hours next week, {number(week.low)} to {number(week.high)} in four weeks of five"
    soon = next((of for of in found.pools if of.runs_out is not None), None)
    if soon is None or soon.runs_out is None:
        return f"{hours}; no pool runs out at this growth."
    name = f"pool {soon.pool}" if soon.pool else "the fleet"
    if soon.held_gpus >= soon.gpus:
        return f"{hours}; {name} is full now."
    return f"{hours}; {name} is full on {soon.runs_out:%Y-%m-%d} at this growth."


def _write(found: FleetForecast, metric: str, value: float) -> str:
    if metric == WAIT:
        return duration(value)
    return money(value, found.currency) if metric == COST else number(value)


def _list_fleet(found: FleetForecast, series: Sequence[ForecastSeries]) -> Section:
    rows = [(of, week) for of in series for week in of.weeks]
    weeks = table(
        rows,
        col("of", lambda row: TITLES[row[0].metric]),
        col("week from", lambda row: f"{row[1].from_:%Y-%m-%d}"),
        *cols(("low", "value", "high"), lambda row, name: _write(found, row[0].metric, getattr(row[1], name))),
    )
    held = next((of for of in series if of.metric == HOURS), None)
    charts: tuple[Chart, ...] = ()
    if held is not None and len(held.weeks) > 1:
        at = tuple(range(1, len(held.weeks) + 1))
        lines = tuple(
            Series(name, tuple(getattr(week, name) for week in held.weeks)) for name in ("low", "value", "high")
        )
        charts = (Chart("GPU-hours held", "line", at, lines, x_label="weeks from now", y_label="GPU-hours"),)
    return Section("The next weeks", charts=charts, tables=(weeks,))


def _list_groups(found: FleetForecast, dimension: str, series: Sequence[ForecastSeries]) -> Section:
    weeks = table(
        [of for of in series if of.weeks],
        col(dimension, lambda of: of.by[dimension] or NOTHING),
        col("of", lambda of: TITLES[of.metric]),
        col("growth a week", "growth_share", "percent"),
        *cols(("low", "value", "high"), lambda of, name: _write(found, of.metric, getattr(of.weeks[0], name))),
        note="low, value and high: of the next week",
    )
    return Section(f"By {dimension}", tables=(weeks,))


def _list_pools(found: FleetForecast) -> Section:
    pools = table(
        found.pools,
        col("pool", lambda of: of.pool or NOTHING),
        col("usable GPUs", "gpus", "number"),
        col("held", "held_gpus", "number"),
        col("growth a week", "growth_share", "percent"),
        col("all held on", lambda of: "not at this growth" if of.runs_out is None else instant(of.runs_out)),
    )
    return Section("When pools run out", tables=(pools,))


def _tell_team(team: NewTeam) -> Section:
    rows = (
        ("mean wait", duration(team.mean_wait_s), duration(team.mean_wait_s_with)),
        ("9 jobs in 10 wait at most", duration(team.p90_wait_s), duration(team.p90_wait_s_with)),
        ("GPUs held", percent(team.utilization_share), percent(team.utilization_share_with)),
    )
    more = counted(team.jobs, "more job")
    lead = f"The history simulated as it was, and with {more} drawn from it that keep {team.gpus} GPUs busy."
    return Section("A new team", lead, tables=(table(rows, "queue", "as it was", "with the team"),))
