"""Two runs side by side: each number read from the metric of its name, which one is better in money, and what differs first."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from math import log
from typing import Final, Literal

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.books.snapshot import Snapshot
from loadfactor.insight.diagnosis.diagnose import add_up_causes, diagnose_jobs
from loadfactor.insight.diagnosis.finding import CauseTotal
from loadfactor.metrics import metric
from loadfactor.metrics.money import UNITS
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.metrics.query.reading import Reading

Kind = Literal["job", "experiment", "team", "week"]
KINDS: Final[tuple[Kind, ...]] = ("job", "experiment", "team", "week")
UNIT_COSTS: Final = tuple(f"cost_per_{name}" for name, _ in UNITS)
_FIRST_UNITS: Final = ("cost_per_token", "cost_per_sample", "cost_per_output_token", "cost_per_request")
"""Of several units that both made, the one whose cost is compared first."""
SPEED: Final = "tokens_per_gpu_s"
PER_FLOP: Final = "cost_per_model_exaflop"
"""What makes tokens of networks of different size comparable."""
FULL: Final = (
    "utilization",
    "sm_activity",
    "tensor_activity",
    "idle_share",
    "unobserved_share",
    "throttled_share",
    "mem_utilization",
)
COMPARED: Final = (
    "cost", *UNIT_COSTS, PER_FLOP, "cost_per_effective_gpu_hour", SPEED, "mfu", "hfu",
    "allocated_gpu_hours", "busy_gpu_hours", "effective_gpu_hours", "allocation", *FULL,
)  # fmt: skip
"""Metrics of the page, in their order."""
SHOWN_BY: Final = ("mfu", "utilization", "sm_activity", "tensor_activity", "idle_share", "throttled_share")
"""Metrics that can show why GPUs are faster, or a full GPU-hour cheaper."""
PRICE: Final = "cost_per_effective_gpu_hour"
SAME: Final = 0.005
"""Unit costs that differ by less are the same."""
MOST_JOBS: Final = 5
"""So many jobs of each side are diagnosed, those that held most."""
_WEEK: Final = re.compile(r"(\d{4})-W(\d{2})")
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class ComparedRun:
    """One side: the causes of lost time of its jobs, `not_looked_at` of them left out, and its readings by metric."""

    name: str
    kind: Kind
    start: datetime
    end: datetime
    causes: tuple[CauseTotal, ...]
    not_looked_at: int
    _readings: dict[str, Reading] = field(repr=False)

    def reading(self, name: str) -> Reading:
        """The reading of a metric of `COMPARED`."""
        return self._readings[name]

    def value(self, name: str) -> float | None:
        """The value of a metric; None where it is not known."""
        found = self._readings[name].value
        return found if isinstance(found, float) else None


@dataclass(frozen=True)
class ComparedValue:
    """A metric of both; `ratio` is the second ÷ the first, None where one of them is not known or nothing."""

    metric: str
    unit: str
    first: float | None
    second: float | None
    ratio: float | None


@dataclass(frozen=True)
class RunComparison:
    """Both sides. `by` is the unit cost that decides, `better` the name of the side with the lower one, `saves` how much lower.

    `why`: the metric that explains most of it, speed or the price of an effective GPU-hour; `shown_by`: the one that differs most
    with it; `first_cause` is that of the other side's lost time. All are None where nobody can say.
    """

    first: ComparedRun
    second: ComparedRun
    values: tuple[ComparedValue, ...]
    by: str | None
    better: str | None
    saves: float | None
    why: str | None
    shown_by: str | None
    first_cause: str | None
    currency: str

    @property
    def better_by_flops(self) -> str | None:
        """The name of the side with the lower cost of a model FLOP; None where nobody can say, or they are the same."""
        first, second = (run.value(PER_FLOP) for run in (self.first, self.second))
        if not first or not second or abs(log(first / second)) < SAME:
            return None
        return self.first.name if first < second else self.second.name


def compare_runs(
    books: Books,
    names: tuple[str, str],
    window: tuple[datetime | None, datetime | None],
    zone: tzinfo,
    basis: str | None,
    progress: Progress,
) -> RunComparison:
    """Compare two jobs, experiments, teams or weeks (2026-W41). Raises InputError where the books do not know one of them."""
    with books.snapshot() as snapshot:
        spans = [(*find_kind(snapshot, name), *window) for name in names]
        spans = [(k, n, *(_find_week(n, zone) if k == "week" else span)) for k, n, *span in spans]
        read = [_read(snapshot, *span, zone, basis) for span in spans]
        jobs = [_list_jobs(snapshot, *span) for span in spans]
    sides = []
    for (kind, name, *_), readings, (found, rest) in zip(spans, read, jobs, strict=True):
        start, end = readings["cost"].start, readings["cost"].end
        diagnosed = diagnose_jobs(books, found, (milliseconds(start), milliseconds(end)), progress)
        sides.append(ComparedRun(name, kind, start, end, add_up_causes(diagnosed), rest, readings))
    return _judge(sides[0], sides[1])


def find_kind(snapshot: Snapshot, name: str) -> tuple[Kind, str]:
    """What a name is, the first of `KINDS` that fits, and the name itself; `team=vision` says it. Raises InputError for none."""
    stated, mark, rest = name.partition("=")
    if mark and stated in KINDS:
        return next(kind for kind in KINDS if kind == stated), rest
    if _WEEK.fullmatch(name):
        return "week", name
    for kind in KINDS[:3]:
        if snapshot.knows(kind, name):
            return kind, name
    raise InputError(
        f"the books know no job, experiment or team {name!r}; `loadfactor show cost --by experiment,job` lists them, and a week is"
        " written 2026-W41"
    )


def _find_week(name: str, zone: tzinfo) -> tuple[datetime, datetime]:
    found = _WEEK.fullmatch(name)
    with suppress(ValueError):
        if found:
            monday = datetime.fromisocalendar(int(found[1]), int(found[2]), 1).replace(tzinfo=zone)
            return monday, monday + timedelta(days=7)
    raise InputError(f"{name!r} is no week; write it as ISO 8601 does, 2026-W41")


def _read(
    snapshot: Snapshot,
    kind: Kind,
    name: str,
    start: datetime | None,
    end: datetime | None,
    zone: tzinfo,
    basis: str | None,
) -> dict[str, Reading]:
    """The readings of a side. An experiment is read as its group: what its jobs held before it began is not its own."""
    where: dict[str, str] = {} if kind in ("week", "experiment") else {kind: name}
    by = ("experiment",) if kind == "experiment" else ()
    found = snapshot.show(COMPARED, by, start, end, zone, basis, where)
    readings = {r.metric: r for r in found if not by or r.by.get("experiment") == name}
    if not readings:
        raise InputError(f"{kind} {name} held no GPU that the books know in that time")
    return readings


def _list_jobs(
    snapshot: Snapshot, kind: Kind, name: str, start: datetime | None, end: datetime | None
) -> tuple[list[str], int]:
    """The jobs of a side that held most, and how many others there are."""
    if kind == "job":
        return [name], 0
    where: dict[str, str] = {} if kind == "week" else {kind: name}
    found = snapshot.show("allocated_gpu_hours", "job", start, end, where=where)
    hours = {r.by["job"]: r.value for r in found if isinstance(r.value, float) and r.value > 0 and r.by["job"]}
    ranked = sorted((job for job in hours if job), key=lambda job: -hours[job])
    return ranked[:MOST_JOBS], max(0, len(ranked) - MOST_JOBS)


def _judge(first: ComparedRun, second: ComparedRun) -> RunComparison:
    values = tuple(
        ComparedValue(name, first.reading(name).unit, a, b, b / a if a and b is not None else None)
        for name in COMPARED
        for a, b in [(first.value(name), second.value(name))]
        if a is not None or b is not None
    )
    by = next((v.metric for v in _in_order(values) if v.ratio is not None), None)
    better = saves = why = shown_by = cause = None
    if by is not None:
        costs = {side.name: side.value(by) or 0.0 for side in (first, second)}
        low, high = sorted(costs.values())
        saves = high - low
        if high and saves / high >= SAME:
            winner, loser = (first, second) if (first.value(by) or 0.0) < (second.value(by) or 0.0) else (second, first)
            better, why, shown_by = winner.name, *_find_reason(winner, loser, by)
            cause = loser.causes[0].title if loser.causes else None
    currency = first.reading("cost").currency or ""
    return RunComparison(first, second, values, by, better, saves, why, shown_by, cause, currency)


def _in_order(values: Sequence[ComparedValue]) -> list[ComparedValue]:
    costs = [value for value in values if value.metric in UNIT_COSTS]
    return sorted(costs, key=lambda v: _FIRST_UNITS.index(v.metric) if v.metric in _FIRST_UNITS else len(_FIRST_UNITS))


def _find_reason(winner: ComparedRun, loser: ComparedRun, by: str) -> tuple[str | None, str | None]:
    """Speed where it makes half of the difference in money, as ratios, else the cost of an effective GPU-hour; what shows it."""
    gains = {name: _find_gain(winner, loser, name) for name in (by, SPEED, PRICE, *SHOWN_BY)}
    most = max(SHOWN_BY, key=lambda name: gains[name])
    shown_by = most if gains[most] > 0 else None
    if gains[SPEED] >= gains[by] / 2:
        return SPEED, shown_by
    return (PRICE, shown_by) if gains[PRICE] > 0 else (shown_by, None)


def _find_gain(winner: ComparedRun, loser: ComparedRun, name: str) -> float:
    """By how much a metric is better, as the logarithm of a ratio; 0 where it is not, not known of both, or one is nothing."""
    one, other = winner.value(name), loser.value(name)
    if not one or not other or one < 0 or other < 0:
        return 0.0
    gain = log(one / other) * (1 if metric(name).better == "higher" else -1)
    return gain if gain > SAME else 0.0
