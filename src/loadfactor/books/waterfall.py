"""Where the money went, on the way from paid to useful: the ledger and the work of each job, put together by group."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import S_PER_HOUR
from loadfactor.books.job_flops import view_progress
from loadfactor.ledger.columns import STATES
from loadfactor.metrics.fullness import (
    DROPS,
    EFFECTIVE_S,
    LEVELS,
    LOST_WORK,
    STEPS,
    WITHOUT_MATH,
    Drop,
    Level,
    Spent,
    Waterfall,
    WorkShares,
    count_observed,
    divide,
    join,
    measure_shares,
    pour,
)
from loadfactor.metrics.metric import CURRENCY, EFFECTIVE_COST, Made, Metric, Part, Sum
from loadfactor.metrics.money import cost
from loadfactor.metrics.query.question import OF_A_HOLDER, OF_A_JOB
from loadfactor.metrics.query.reading import Readings
from loadfactor.metrics.work import AT_PEAK, IN_SECTION, LOST_TO, MODEL_FLOP
from loadfactor.settings.config import settings
from loadfactor.store.session import Session


@dataclass(frozen=True)
class WaterfallStep:
    """One step: a level, and what is left there, or what goes on the way to it. `cost` is None where no price is known.

    All amounts are None beyond the last step that anybody knows. `share_of_paid` is of GPU-hours, `share_of_cost` of money.
    """

    name: str
    kind: str
    gpu_hours: float | None
    cost: float | None
    share_of_paid: float | None
    title: str
    meaning: str
    share_of_cost: float | None


@dataclass(frozen=True)
class LossCause:
    """A part of what went, by its cause; None where it is not known. The parts `of` one thing add up to what the steps say of it.

    `of` is lost_work, or without_math: what was held and observed and is not math, which is four steps together.
    """

    of: str
    cause: str | None
    gpu_hours: float
    cost: float | None
    share_of_paid: float | None


MOST_NAMED: Final = 10


ROUNDING: Final = 1e-9


Key = tuple[str | None, ...]
"""The values of the dimensions that a group has."""


@dataclass(frozen=True)
class HolderWork:
    """Work of one job, all of it or its part in a group, or of all there whose FLOPs nobody knows; then `job` is None."""

    job: str | None
    hours: Spent
    cost: Spent
    priced_hours: float
    made_hours: float | None
    kept_hours: float
    lost_to: Mapping[str, float]
    in_section: Mapping[str, float]


@dataclass(frozen=True)
class WaterfallGroup:
    """The way from paid to useful of one group: levels, losses and what is unknown, in order; `cost` is of priced hours alone.

    `steps` whose kind is loss or unknown, and the level useful, add up to paid. `causes` divide some of them further, as far as
    jobs say why; there are none of what nobody says anything of.
    """

    by: dict[str, str | None]
    gpu_hours: Waterfall
    cost: Waterfall | None
    priced_share: float | None
    causes: tuple[LossCause, ...]

    @property
    def steps(self) -> tuple[WaterfallStep, ...]:
        """Every level, and before it what went on the way to it."""
        out = []
        end = self._end
        is_known = True
        for level in STEPS:
            for drop in DROPS:
                if drop.to == level.name:
                    parts = (None if of is None else getattr(of, drop.name) for of in (self.gpu_hours, self.cost))
                    out.append(self._step(drop, "unknown" if drop.is_unknown else "loss", parts, is_known))
                    is_known = is_known and drop is not end
            parts = (None if of is None else of.after(level.name) for of in (self.gpu_hours, self.cost))
            out.append(self._step(level, "level", parts, is_known))
        return tuple(out)

    @property
    def known_to(self) -> str:
        """The last level that anybody knows: what is unknown takes all that is left there."""
        return LEVELS[-1] if self._end is None else LEVELS[LEVELS.index(self._end.to) - 1]

    @property
    def goes_on(self) -> str | None:
        """What would let people know the steps beyond; None where all are known."""
        return None if self._end is None else self._end.goes_on

    @property
    def _end(self) -> Drop | None:
        """The unknown that takes all that is left."""
        for drop in DROPS:
            left = self.gpu_hours.after(LEVELS[LEVELS.index(drop.to) - 1])
            if drop.is_unknown and left > 0 and getattr(self.gpu_hours, drop.name) >= left * (1 - ROUNDING):
                return drop
        return None

    def _step(self, of: Level | Drop, kind: str, parts: Iterable[float | None], is_known: bool) -> WaterfallStep:
        hours, cost = parts if is_known else (None, None)
        whole = self.gpu_hours.paid, 0.0 if self.cost is None else self.cost.paid
        shares = [
            None if part is None or not paid else part / paid for part, paid in zip((hours, cost), whole, strict=True)
        ]
        return WaterfallStep(of.name, kind, hours, cost, shares[0], of.title, of.meaning, shares[1])


@dataclass(frozen=True)
class FleetWaterfall:
    """The way from paid to useful of everything requested, and by group.

    `too_many_flops`: jobs whose model FLOPs are more than their activity allows; the surplus does not count.
    """

    currency: str
    basis: str
    all: WaterfallGroup
    rows: tuple[WaterfallGroup, ...]
    too_many_flops: tuple[str, ...]


Ask = Callable[[tuple[Metric, ...], tuple[str, ...]], Readings]
"""Readings of some metrics by dimensions, in the window and with the filters of one question."""
FAILED: Final = ("failed", "node_fail", "out_of_memory", "oom", "boot_fail", "error")
"""Ends of jobs, in small letters, after which what they made is of no use. Who cancels a job or runs into a limit may use it."""


OBSERVED_STATES: Final = ("idle", "busy")


def _hours(name: str, part: Part) -> Metric:
    return Metric(name, "GPU-hours", "", "", "neither", Sum(part, S_PER_HOUR))


def _money(name: str, part: Part) -> Metric:
    return Metric(name, CURRENCY, "", "", "neither", Sum(part))


ASKED: Final = (
    *(_hours(state, Part(("gpu_s",), (state,))) for state in STATES),
    _hours("active", Part(EFFECTIVE_S, OBSERVED_STATES)),
    *(_money(f"{state}_cost", cost(state).part) for state in STATES),
    _money("active_cost", Part((EFFECTIVE_COST,), OBSERVED_STATES)),
    _hours("priced", Part(("gpu_s",), priced=True)),
    Metric("made", "GPU-seconds", "", "", "neither", Made(AT_PEAK[MODEL_FLOP])),
    Metric("kept", "GPU-seconds", "", "", "neither", Made(AT_PEAK[MODEL_FLOP], is_kept=True)),
    *(Metric(cause, "GPU-seconds", "", "", "neither", Made(AT_PEAK[MODEL_FLOP], lost_to=cause)) for cause in LOST_TO),
    *(Metric(kind, "GPU-seconds", "", "", "neither", Made(unit)) for kind, unit in IN_SECTION.items()),
)
"""Metrics that are read from the ledger and from progress, job by job."""
_UNITS: Final = tuple(dict.fromkeys(unit for metric in ASKED for unit in metric.units))


def find_waterfall(session: Session, ask: Ask, by: Sequence[str], basis: str) -> FleetWaterfall:
    """The waterfall by group. Raises InputError for a dimension that work cannot be stated by."""
    for name in by:
        if name not in OF_A_JOB:
            raise InputError(f"nobody knows what was made by {name}; split the waterfall by {', '.join(OF_A_JOB)}")
    if _knows_work(session):
        return read_waterfall(session, ask(ASKED, tuple(dict.fromkeys((*by, "job")))), by, basis)
    spent = tuple(metric for metric in ASKED if not metric.units)  # alike of every job: no need to tell them apart
    return read_waterfall(session, ask(spent, tuple(by)), by, basis)


def _knows_work(session: Session) -> bool:
    """Whether of any job it is known what it made, or in which section it was."""
    networks = settings().network

    def look() -> bool:
        view_progress(session, _UNITS, networks)
        units = ", ".join(f"'{unit}'" for unit in _UNITS)
        return bool(session.fetch_one(f"SELECT count(*) FROM progress WHERE unit IN ({units})")[0])

    return session.find_once(("work is known", repr(networks)), look)


def read_waterfall(session: Session, found: Readings, by: Sequence[str], basis: str) -> FleetWaterfall:
    """The same out of readings of `ASKED`, split by the job, the dimensions of `by`, and perhaps others.

    Where no work of any job is known they may be without its metrics, and without the job. What a job made counts up to its
    activity as a whole, whoever used it and however it is split; of a split by time up to that of the time.
    """
    nothing = [None] * len(found.keys)
    columns = {of.name: found.column(of.name) if of.name in found.metrics else nothing for of in ASKED}
    jobs = [of[found.by.index("job")] if "job" in found.by else None for of in found.keys]
    key = [found.by.index(name) for name in by]
    counted = {job for job, made in zip(jobs, columns["made"], strict=True) if made is not None}
    stated = [columns["made"], *(columns[kind] for kind in IN_SECTION)]
    known = {job for job, *reported in zip(jobs, *stated, strict=True) if any(part is not None for part in reported)}
    failed = session.find_once(_list_failed, lambda: _list_failed(session)) if counted else set()
    when = [number for number, name in enumerate(by) if name not in OF_A_HOLDER]
    of_cells: dict[tuple[Key, str | None], list[int]] = {}
    of_jobs: dict[tuple[Key, str | None], list[int]] = {}
    for place, (of, job) in enumerate(zip(found.keys, jobs, strict=True)):
        group, name = tuple(of[number] for number in key), job if job in known else None
        of_cells.setdefault((group, name), []).append(place)
        for then in {(), tuple(group[number] for number in when)}:
            of_jobs.setdefault((then, name), []).append(place)
    each = {(then, job): _read(columns, places, job) for (then, job), places in of_jobs.items()}
    shares = {
        (then, job): measure_shares(cell.hours, cell.made_hours or 0.0, cell.kept_hours, job in failed)
        for (then, job), cell in each.items()
        if job in counted
    }
    groups: dict[Key, list[tuple[HolderWork, WorkShares | None]]] = {}
    for (group, job), places in of_cells.items() if by else ():
        then = tuple(group[number] for number in when)
        groups.setdefault(group, []).append((_read(columns, places, job), shares.get((then, job))))
    ordered = dict.fromkeys(tuple(of[number] for number in key) for of in found.keys) if by else {}
    rows = tuple(_add_up(dict(zip(by, group, strict=True)), groups[group]) for group in ordered)
    whole = [(cell, shares.get((then, job))) for (then, job), cell in each.items() if not then]
    surplus = find_surplus([cell for cell, _ in whole])
    return FleetWaterfall(session.currency, basis, _add_up({}, whole), rows, surplus)


def _read(columns: Mapping[str, Sequence[Any]], places: Sequence[int], job: str | None) -> HolderWork:

    def add(name: str) -> float:
        column = columns[name]
        return fsum(column[place] or 0.0 for place in places) if len(places) > 1 else column[places[0]] or 0.0

    def list_known(names: Iterable[str]) -> dict[str, float]:
        return {} if job is None else {name: amount / S_PER_HOUR for name in names if (amount := add(name))}

    return HolderWork(
        job,
        Spent(**{name: add(name) for name in (*STATES, "active")}),
        Spent(**{name: add(f"{name}_cost") for name in (*STATES, "active")}),
        add("priced"),
        None if job is None or all(columns["made"][place] is None for place in places) else add("made") / S_PER_HOUR,
        add("kept") / S_PER_HOUR,
        list_known(LOST_TO),
        list_known(IN_SECTION),
    )


def _add_up(by: dict[str, str | None], cells: Sequence[tuple[HolderWork, WorkShares | None]]) -> WaterfallGroup:
    each = [(cell, pour(cell.hours, shares), pour(cell.cost, shares)) for cell, shares in cells]
    hours = join([fall for _, fall, _ in each])
    priced = sum(cell.priced_hours for cell, _ in cells)
    money = join([fall for _, _, fall in each]) if priced else None
    causes = (*divide_lost(each, hours, money), *divide_without_math(each, hours, money))
    return WaterfallGroup(by, hours, money, priced / hours.paid if hours.paid else None, causes)


def _list_failed(session: Session) -> set[str]:
    session.view_table("allocations", "allocations")
    states = ", ".join(f"'{state}'" for state in FAILED)
    rows = session.raw.execute(
        f"""SELECT job_id FROM (SELECT job_id, end_state FROM allocations
              QUALIFY row_number() OVER (PARTITION BY job_id ORDER BY from_utc DESC, attempt DESC, end_state) = 1)
            WHERE lower(end_state) IN ({states})"""
    ).fetchall()
    return {job for (job,) in rows}


Poured = tuple[HolderWork, Waterfall, Waterfall]
"""The work of a holder, and where its hours and its money went."""


def divide_lost(each: Sequence[Poured], hours: Waterfall, money: Waterfall | None) -> list[LossCause]:
    """Lost work by cause: in proportion to the FLOPs lost to each."""
    parts: list[Mapping[str, float]] = []
    for cell, of_hours, of_money in each:
        if not cell.lost_to:
            continue
        whole = (cell.made_hours or 0.0) - cell.kept_hours
        parts += [divide(fall.lost_work, cell.lost_to, whole) for fall in (of_hours, of_money)]
    return _list_causes(LOST_WORK, LOST_TO, parts, hours, money)


def divide_without_math(each: Sequence[Poured], hours: Waterfall, money: Waterfall | None) -> list[LossCause]:
    """Held and observed time that was not math, by the sections that it was spent in; of unobserved time in proportion."""
    parts: list[Mapping[str, float]] = []
    for cell, of_hours, of_money in each:
        if not cell.in_section:
            continue
        observed = {kind: count_observed(cell.hours, spent) for kind, spent in cell.in_section.items()}
        whole = of_hours.without_math
        parts += [divide(fall.without_math, observed, whole) for fall in (of_hours, of_money)]
    return _list_causes(WITHOUT_MATH, tuple(IN_SECTION), parts, hours, money)


def _list_causes(
    of: str, causes: Sequence[str], parts: Sequence[Mapping[str, float]], hours: Waterfall, money: Waterfall | None
) -> list[LossCause]:
    """The sum of `parts` by cause, of hours and of money in turn, and what of the whole has no known cause."""
    if not parts:
        return []
    sums = [{cause: fsum(part.get(cause, 0.0) for part in parts[n::2]) for cause in causes} for n in range(2)]
    if not any(sums[0].values()):
        return []
    known = [(cause, sums[0][cause], sums[1][cause]) for cause in causes if sums[0][cause]]
    rest = [getattr(fall, of) - fsum(added.values()) for fall, added in ((hours, sums[0]), (money, sums[1])) if fall]
    rest = [max(0.0, left) for left in rest]
    return [
        LossCause(of, cause, spent, None if money is None else cost, spent / hours.paid)
        for cause, spent, cost in (*known, (None, rest[0], rest[-1]))
    ]


def find_surplus(cells: Sequence[HolderWork]) -> tuple[str, ...]:
    """Some of the jobs, a cell each, that made more FLOPs than they were active for, those with most first."""
    surplus: dict[str, float] = {}
    active: dict[str, float] = {}
    for cell in cells:
        if cell.job is not None and cell.made_hours is not None:
            surplus[cell.job] = count_observed(cell.hours, cell.made_hours) - cell.hours.active
            active[cell.job] = cell.hours.active
    over = [job for job, hours in surplus.items() if hours > ROUNDING * active[job]]
    return tuple(sorted(over, key=lambda job: (-surplus[job], job))[:MOST_NAMED])
