"""Answering a question from what its queries add up to: sums are divided last, here.

What is not in the ledger (waits, units of progress) has queries of its own, over the same groups. Everything is worked out for all
groups at once; a reading is only put together at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import chain
from math import fsum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.ledger.columns import ACTIVITIES
from loadfactor.metrics.metric import (
    OF_WORK,
    Count,
    Coverage,
    Made,
    Metric,
    Part,
    PerUnit,
    Quantile,
    Ratio,
    Speed,
    Sum,
    UnitShare,
)
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.query.question import (
    ACTIVE,
    OF_A_HOLDER,
    UNKNOWN_HOLDER,
    Columns,
    Fetch,
    Key,
    Question,
    Row,
    list_rows,
)
from loadfactor.metrics.query.reading import Groups, MetricColumn, Readings, Value, iso
from loadfactor.metrics.work import LOST_TO, OTHER_CAUSE
from loadfactor.tables.work import RATE


def measure_waits(question: Question, fetch: Fetch) -> dict[Key, Row]:
    """Every requested wait quantile, and who still waits, by group; nothing where no wait was ever recorded."""
    if not question.waits or not len(fetch("any_wait")["job_id"]):
        return {}
    out: dict[Key, Row] = {}
    for row in list_rows(fetch("waited")):
        out[tuple(row.pop(k) for k in question.keys)] = {"waiting": 0, **row}
    for metric in question.metrics:
        kind = metric.kind
        if isinstance(kind, Quantile) and kind.of == "wait_s" and kind.weight is not None and not kind.mean:
            for row in list_rows(fetch(metric.name)):
                out[tuple(row[k] for k in question.keys)][metric.name] = row["v"]
    for row in list_rows(fetch("waiting")):
        out.setdefault(tuple(row[k] for k in question.keys), {"n": 0})["waiting"] = row["n"]
    return out


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Totals:
    """The sums of the ledger in each group: an array of groups × columns for each part, and the peaks."""

    keys: list[Key]
    sums: dict[Part, Floats]
    peaks: dict[str, list[float | None]]


def add_up(question: Question, fetch: Fetch) -> Totals:
    """The totals of a question, its groups in order."""
    table, keys = _fetch_groups(fetch), question.keys
    return Totals(
        list(zip(*(table[k].tolist() for k in keys), strict=True)) if keys else [()] * len(table["rows"]),
        _stack_parts(question, table),
        {name: table[name].tolist() for name in question.peaks},
    )


def _fetch_groups(fetch: Fetch) -> Columns:
    """The rows of the query `sums`, one a group."""
    found = fetch("sums")
    some = found["rows"] > 0  # an aggregate over nothing is a row, too
    return found if some.all() else {name: column[some] for name, column in found.items()}


def _stack_parts(question: Question, table: Columns) -> dict[Part, Floats]:
    return {
        part: np.column_stack([np.asarray(table[f"p{number}_{place}"]) for place in range(len(part.columns))])
        for number, part in enumerate(question.parts)
    }


Known = tuple[Value, float | None]
"""Value and coverage of one group."""
NOTHING: Known = (None, None)


def answer(question: Question, fetch: Fetch) -> Readings:
    """The readings; `fetch` works a query of the question out."""
    summed, waiting = add_up(question, fetch), measure_waits(question, fetch)
    keys = summed.keys  # in order
    if not waiting.keys() <= set(keys):
        keys = sorted({*keys, *waiting}, key=lambda key: [(v is None, str(v)) for v in key])
    if not question.by and not keys:
        keys = [()]
    active = _active_basis(summed)
    units = sum_units(question, fetch)
    held = {}
    if units:
        held = {key: float(s) for key, (s,) in zip(summed.keys, summed.sums.get(question.held, ()), strict=False)}
    columns = []
    for metric in question.metrics:
        kind = metric.kind
        if isinstance(kind, Sum | Ratio):
            columns.append(_within(keys, summed, _from_ledger(metric, kind, question, summed, active)))
        elif isinstance(kind, Quantile) and kind.of != "wait_s":
            none = [None] * len(summed.keys)
            columns.append(_within(keys, summed, MetricColumn(summed.peaks[kind.of], none, none)))
        elif isinstance(kind, OF_WORK):
            basis = question.basis + (", without idle" if question.without_idle else "")
            column = _spread(keys, answer_work(kind, units, held), basis if metric.is_money else None)
            columns.append(column._replace(activity_basis=_say_estimates(keys, units.get(kind.unit, {}))))
        else:
            columns.append(_spread(keys, _from_waits(metric, waiting)))
    found = Readings(question.metrics, question.by, _groups(question, keys), columns, question.currency)
    nothing = _find_nothing_unknown(question, keys, columns)
    return found.pick([number for number in range(len(keys)) if number not in nothing]) if nothing else found


def _find_nothing_unknown(question: Question, keys: list[Key], columns: Sequence[MetricColumn]) -> set[int]:
    """The groups of an unknown holder where all that is known of them is 0, so that nobody is listed who held nothing."""
    places = [place for place, name in enumerate(question.by) if name in OF_A_HOLDER]
    groups = {number for place in places for number, key in enumerate(keys) if key[place] == UNKNOWN_HOLDER}
    values = [column.values[number] for column in columns for number in groups]
    if UNKNOWN_HOLDER in dict(question.where).values():
        return set()
    is_nothing = any(value == 0.0 for value in values if isinstance(value, float)) and all(
        value is None or (isinstance(value, float) and value == 0.0) for value in values
    )
    return groups if is_nothing else set()


def tabulate(question: Question, fetch: Fetch) -> tuple[list[NDArray[Any]], dict[str, Floats]]:
    """The answer as columns, for metrics that are sums or ratios of the ledger: those of the groups in order, and values.

    An hour in ms, a name that is none None, a value NaN where not known. For hundreds of thousands of groups, of which no reading
    is put together.
    """
    table, columns = _fetch_groups(fetch), {}
    sums = _stack_parts(question, table)
    for metric in question.metrics:
        assert isinstance(metric.kind, Sum | Ratio)
        values, is_known, _ = work_out(metric.kind, sums)
        columns[metric.name] = np.where(is_known, values[:, 0], np.nan)
    return [
        np.ma.filled(table[key], None) if table[key].dtype == object else table[key] for key in question.keys
    ], columns


def _within(keys: list[Key], summed: Totals, column: MetricColumn) -> MetricColumn:
    """A column by the groups of the ledger as one by all groups."""
    if keys is summed.keys:
        return column
    place = {key: number for number, key in enumerate(summed.keys)}

    def spread(values: Sequence[Any]) -> list[Any]:
        return [values[place[key]] if key in place else None for key in keys]

    return MetricColumn(
        spread(column.values), spread(column.coverage), spread(column.activity_basis), column.cost_basis
    )


def _spread(keys: list[Key], known: Mapping[Key, Known], cost_basis: str | None = None) -> MetricColumn:
    """Known values of some groups as a column by all of them."""
    both = [known.get(key, NOTHING) for key in keys]
    return MetricColumn([v for v, _ in both], [c for _, c in both], [None] * len(keys), cost_basis)


def _groups(question: Question, keys: list[Key]) -> Groups:
    """The groups with the interval of each: its hour, day, week or month where split by one, inside the window."""
    window = question.window
    limits = {unit: window.periods(unit) for unit in question.periods}

    @cache
    def cut_interval(hour: int | None, *names: tuple[str, str]) -> tuple[datetime, datetime]:
        start, end = window.start_ms, window.end_ms
        for unit, name in names:
            start, end = max(start, limits[unit][name][0]), min(end, limits[unit][name][1])
        if hour is not None:
            start, end = max(start, hour), min(end, hour + MS_PER_HOUR)
        return instant(start), instant(end)

    if "hour" not in question.by and not limits:
        start, end = cut_interval(None)
        return Groups(keys, [start] * len(keys), [end] * len(keys))
    names, starts, ends = [], [], []
    for key in keys:
        by = dict(zip(question.by, key, strict=True))
        start, end = cut_interval(by.get("hour"), *((unit, by[unit]) for unit in limits if by[unit] is not None))
        if by.get("hour") is not None:
            by["hour"] = iso(instant(by["hour"]))
        names.append(tuple(by.values()))
        starts.append(start)
        ends.append(end)
    return Groups(names, starts, ends)


def _from_ledger(
    metric: Metric, kind: Sum | Ratio, question: Question, summed: Totals, active: Sequence[str]
) -> MetricColumn:
    """A Sum or Ratio, with the cost basis where it is money, and the activity signals where it rests on activity."""
    amounts, is_known, coverage = work_out(kind, summed.sums)
    values = _where(is_known, amounts if isinstance(kind, Sum) and kind.each else amounts[:, 0])
    rests = any(p.rests_on_activity for p in metric.parts)
    signals = [name or None for name in active] if rests else [None] * len(summed.keys)
    shares = [None if share != share else share for share in coverage.tolist()]
    return MetricColumn(values, shares, signals, question.basis if metric.is_money else None)


def work_out(kind: Sum | Ratio, sums: Mapping[Part, Floats]) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """By group, of the sums of all parts by group and column: the values, a column each; whether they are known; and coverage.

    What is not known has any value: nothing of it was measured, or there is nothing to divide by. Coverage of nothing is NaN.
    """
    if isinstance(kind, Ratio):
        over, under = (_sum(part, sums)[:, 0] for part in (kind.over, kind.under))
        coverage = _coverage({*kind.over.coverages, *kind.under.coverages}, sums, len(over))
        ratio = np.divide(over, under, out=np.zeros_like(over), where=under != 0)
        return ratio[:, np.newaxis], (coverage != 0) & (under != 0), coverage
    values = _sum(kind, sums)
    coverage = _coverage({*kind.coverages}, sums, len(values))
    return values, coverage != 0, coverage


def _sum(kind: Sum, sums: Mapping[Part, Floats]) -> Floats:
    """A Sum by group: one column, or one for `each`."""
    values = sums[kind.part] / kind.per
    return values if kind.each else values.sum(axis=1, keepdims=True)


def _coverage(needs: set[Coverage], sums: Mapping[Part, Floats], groups: int) -> Floats:
    """By group the least of what was known over what was needed; 1 for what needs nothing, NaN where nothing was needed."""
    if not needs:
        return np.ones(groups)
    shares = np.full(groups, np.nan)
    for of in needs:
        known, needed = sums[of.known].sum(axis=1), sums[of.needed].sum(axis=1)
        shares = np.fmin(shares, np.divide(known, needed, out=np.full(groups, np.nan), where=needed != 0))
    return shares


def _where(known: NDArray[np.bool_], values: Floats) -> list[Value]:
    """The values as Python's own, None where not known."""
    return [v if k else None for k, v in zip(known.tolist(), values.tolist(), strict=True)]


def _active_basis(summed: Totals) -> list[str]:
    """By group: the activity signals its observed time rests on, with shares if there are several; none where not requested."""
    if ACTIVE[0] not in summed.sums:
        return []
    names = [kind.basis + " (optimistic)" * kind.optimistic for kind in ACTIVITIES]
    seconds = np.column_stack([summed.sums[part][:, 0] for part in ACTIVE])
    used = seconds > 0
    bases = np.array([*names, ""], dtype=object)[np.where(used.any(axis=1), used.argmax(axis=1), len(names))]
    for mixed in np.flatnonzero(used.sum(axis=1) > 1):
        shares = zip(names, seconds[mixed] / seconds[mixed].sum(), strict=True)
        bases[mixed] = ", ".join(f"{name} {_of_several(share)}" for name, share in shares if share > 0)
    return list(bases)


def _of_several(share: float) -> str:
    """A share of something that has other shares: never all of it, never nothing.

    >>> _of_several(0.9995), _of_several(0.42), _of_several(0.0005)
    ('>99%', '42%', '<1%')
    """
    return "<1%" if share < 0.005 else ">99%" if share >= 0.995 else f"{share:.0%}"


def _from_waits(metric: Metric, waiting: dict[Key, Row]) -> dict[Key, Known]:
    """A wait, its coverage the share of waits that ended; or how many wait still, which is known where anybody waited."""
    if isinstance(metric.kind, Count):
        return {key: (of.get("waiting", 0), None) for key, of in waiting.items()}
    known: dict[Key, Known] = {}
    for key, of in waiting.items():
        began = of["n"] + of["waiting"]
        known[key] = (of.get(metric.name), of["n"] / began if began else None)
    return known


Units = Mapping[str, Mapping[Key, "UnitTotals"]]
"""By unit and group."""
OfWork = PerUnit | UnitShare | Made | Speed


class UnitTotals(NamedTuple):
    """How much of a unit was made, and kept of it; what the jobs that worked on it cost, and the GPU-seconds they held.

    `priced_s` are the GPU-seconds whose price is known; `lost_to` what was lost by cause, as far as it is known.
    """

    made: float
    kept: float
    cost: float
    held_s: float
    priced_s: float
    lost_to: Mapping[str, float] = MappingProxyType({})
    estimated: float = 0.0
    """How much of `made` is a rate × time."""


def _say_estimates(keys: list[Key], totals: Mapping[Key, UnitTotals]) -> list[str | None]:
    """The basis of amounts by group: how much of them is an estimate; None where they were counted."""
    shares = [of.estimated / of.made if (of := totals.get(key)) and of.made else 0.0 for key in keys]
    return [f"{RATE} {share:.0%}" if share else None for share in shares]


def sum_units(question: Question, fetch: Fetch) -> Units:
    """The totals of every unit that the question asks for, where any of it was made."""
    out: dict[str, dict[Key, UnitTotals]] = {unit: {} for unit in question.units}
    if not out:
        return out
    keys = ["unit", *question.keys]
    kept: dict[Key, list[float]] = {}
    lost: dict[Key, dict[str | None, list[float]]] = {}
    estimated: dict[Key, list[float]] = {}
    for row in list_rows(fetch("unit_amounts")):  # in any order: added up exactly
        key, cause = tuple(row[k] for k in keys), row["cause"]
        if row["known_from"] is not None:
            estimated.setdefault(key, []).extend(row["amounts"])
        if row["kept"]:
            kept.setdefault(key, []).extend(row["amounts"])
        else:
            named = cause if cause is None or cause in LOST_TO else OTHER_CAUSE
            lost.setdefault(key, {}).setdefault(named, []).extend(row["amounts"])
    for row in list_rows(fetch("unit_costs")):
        unit, *group = key = tuple(row[k] for k in keys)
        if key in kept or key in lost:
            gone = lost.get(key, {})
            stayed, went = fsum(kept.get(key, ())), fsum(chain.from_iterable(gone.values()))
            lost_to = {cause: fsum(of) for cause, of in gone.items() if cause is not None}
            cost, held_s, priced_s = (fsum(row[name]) for name in ("cost", "needed_s", "priced_s"))
            out[unit][tuple(group)] = UnitTotals(
                stayed + went, stayed, cost, held_s, priced_s, lost_to, fsum(estimated.get(key, ()))
            )
    return out


def answer_work(
    kind: OfWork, units: Units, held_s: Mapping[Key, float]
) -> dict[Key, tuple[float | None, float | None]]:
    """Value and coverage by group. `held_s`: the GPU-seconds that anybody held, of which jobs whose work is known are a part."""
    totals = units.get(kind.unit, {})
    if isinstance(kind, PerUnit):
        return {key: _cost_of(kind.per / of.kept, of) for key, of in totals.items() if of.kept}
    out: dict[Key, tuple[float | None, float | None]] = {}
    for key, of in totals.items():
        if isinstance(kind, UnitShare):
            whole = units[kind.of].get(key)
            out[key] = (of.kept / whole.kept if whole and whole.kept else None), None
            continue
        coverage = min(1.0, of.held_s / held_s[key]) if held_s.get(key) else None
        if isinstance(kind, Made):
            made = of.kept if kind.is_kept else of.made
            out[key] = (made if kind.lost_to is None else of.lost_to.get(kind.lost_to, 0.0)), coverage
        elif of.held_s:
            out[key] = of.made / of.held_s, coverage
    return out


def _cost_of(part: float, of: UnitTotals) -> tuple[float | None, float | None]:
    """That part of what the jobs cost, and which share of their hours has a price."""
    coverage = of.priced_s / of.held_s if of.held_s else None
    return None if coverage == 0 else of.cost * part, coverage
