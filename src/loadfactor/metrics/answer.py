"""How is a question answered? Metrics become one aggregate over the ledger, grouped; sums are divided last, here.

What is not in the ledger (waits, units of progress) is worked out from its own small table, over the same groups. Everything is
worked out for all groups at once; a reading is only put together at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import ibis
import numpy as np
from numpy.typing import NDArray

from loadfactor.metrics.calendar import instant
from loadfactor.metrics.kinds import ACTIVITIES, STATES
from loadfactor.metrics.ledger import measures
from loadfactor.metrics.metric import (
    EFFECTIVE_USD,
    UNDERUSED_S,
    UNDERUSED_USD,
    USD,
    Count,
    Metric,
    Part,
    PerUnit,
    Quantile,
    Ratio,
    Sum,
)
from loadfactor.metrics.question import OF_A_WAIT, Expr, Key, Question, Row, dated, only
from loadfactor.metrics.reading import Column, Groups, Readings, Value, iso
from loadfactor.metrics.unit_costs import Made, made, told_apart
from loadfactor.metrics.waiting import waited
from loadfactor.tables import DIMENSIONS
from loadfactor.units import MS_PER_HOUR, S_PER_HOUR

Floats = NDArray[np.float64]
Said = tuple[Value, float | None, str | None]
"""Value, coverage, basis."""
NOTHING: Said = (None, None, None)


def answer(question: Question, book: Expr, progress: Expr, waits: Expr | None) -> Readings:
    """The readings. `book` is the ledger of the window, nothing beyond it; `waits` are needed where the question is of queues."""
    progress = told_apart(question, book, progress)
    book = only(question, book, DIMENSIONS)
    booked = dated(book, book.hour_utc, book.from_utc, question)
    totals = _totals(question, booked)
    waiting = waited(question, only(question, waits, OF_A_WAIT)) if waits is not None else {}
    keys = totals.keys  # in order
    if not waiting.keys() <= set(keys):
        keys = sorted({*keys, *waiting}, key=lambda key: [(v is None, str(v)) for v in key])
    if not question.by and not keys:
        keys = [()]
    active = _active_basis(totals)
    units = made(question, booked, progress, {m.kind.unit for m in question.metrics if isinstance(m.kind, PerUnit)})
    columns = []
    for metric in question.metrics:
        kind = metric.kind
        if isinstance(kind, Sum | Ratio):
            columns.append(_within(keys, totals, _from_ledger(metric, kind, question, totals, active)))
        elif isinstance(kind, Quantile) and kind.of != "wait_s":
            none = [None] * len(totals.keys)
            columns.append(_within(keys, totals, Column(totals.peaks[kind.of], none, none)))
        else:
            if isinstance(kind, PerUnit):
                said = _from_progress(question, units[kind.unit])
            else:
                said = _from_waits(metric, waiting)
            columns.append(_column([said.get(key, NOTHING) for key in keys]))
    return Readings(question.metrics, question.by, _groups(question, keys), columns)


def _within(keys: list[Key], totals: "_Totals", column: Column) -> Column:
    """A column by the groups of the ledger as one by all groups: nothing is known of the others."""
    if keys is totals.keys:
        return column
    at = {key: place for place, key in enumerate(totals.keys)}
    rows = list(zip(*column, strict=True))
    return _column([rows[at[key]] if key in at else NOTHING for key in keys])


def _column(rows: Sequence[Said]) -> Column:
    """What is said group by group as a column."""
    return Column(*zip(*rows, strict=True)) if rows else Column((), (), ())


def _groups(question: Question, keys: list[Key]) -> Groups:
    """The groups with the stretch of time each speaks of: its hour or day where split by one, inside the window."""
    stretches = _Stretches(question)
    if "hour" not in question.by and "day" not in question.by:
        start, end = stretches[None, None]
        return Groups(keys, [start] * len(keys), [end] * len(keys))
    spoken, starts, ends = [], [], []
    for key in keys:
        by = dict(zip(question.by, key, strict=True))
        start, end = stretches[by.get("day"), by.get("hour")]
        if by.get("hour") is not None:
            by["hour"] = iso(instant(by["hour"]))
        spoken.append(tuple(by.values()))
        starts.append(start)
        ends.append(end)
    return Groups(spoken, starts, ends)


class _Stretches(dict[tuple[str | None, int | None], tuple[datetime, datetime]]):
    """Stretches of time by day and hour, worked out once each."""

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.window = question.window
        self.days = {name: (first, after) for name, first, after in question.window.days()}

    def __missing__(self, of: tuple[str | None, int | None]) -> tuple[datetime, datetime]:
        day, hour = of
        start, end = self.window.start_ms, self.window.end_ms
        if day is not None:
            first, after = self.days[day]
            start, end = max(start, first), min(end, after)
        if hour is not None:
            start, end = max(start, hour), min(end, hour + MS_PER_HOUR)
        self[of] = instant(start), instant(end)
        return self[of]


@dataclass(frozen=True)
class _Totals:
    """What the ledger adds up to in each group: an array of groups × columns for each part, and the peaks."""

    keys: list[Key]
    sums: dict[Part, Floats]
    peaks: dict[str, list[float | None]]


def _parts(metric: Metric) -> list[Part]:
    """Every ledger part a metric is made of, coverage included."""
    kinds = [metric.kind.over, metric.kind.under] if isinstance(metric.kind, Ratio) else [metric.kind]
    parts = []
    for kind in kinds:
        if isinstance(kind, Sum):
            parts.append(kind.part)
            if kind.coverage:
                parts += [kind.coverage.known, kind.coverage.needed]
    return parts


_ACTIVE = tuple(Part((f"observed_{kind.basis}_s",)) for kind in ACTIVITIES)


def _totals(question: Question, booked: Expr) -> _Totals:
    """All the parts of all the metrics in one aggregate."""
    parts = list(dict.fromkeys([p for m in question.metrics for p in _parts(m)] + list(_ACTIVE)))
    peaks = {m.kind.of for m in question.metrics if isinstance(m.kind, Quantile) and m.kind.of != "wait_s"}
    named = _columns(booked, question.basis)
    columns: dict[str, Expr] = {"rows": booked.count()}
    for number, part in enumerate(parts):
        where = booked.state.isin(part.states) if set(part.states) < set(STATES) else ibis.literal(True)
        if part.priced:
            where = where & named[USD].notnull()
        for place, name in enumerate(part.columns):
            # a sum of zeros elsewhere: engines do that several times faster than FILTER
            columns[f"p{number}_{place}"] = ibis.coalesce(ibis.ifelse(where, named[name], 0.0).sum(), 0.0)
    for name in peaks:
        columns[name] = booked[name].max()
    keys = [DIMENSIONS[d] for d in question.by]
    rows = booked.group_by(keys).aggregate(**columns).order_by(keys) if keys else booked.aggregate(**columns)
    table = rows.to_pyarrow()
    table = table.filter(table["rows"].to_numpy() > 0)  # an aggregate over nothing is a row, too
    return _Totals(
        list(zip(*(table[k].to_pylist() for k in keys), strict=True)) if keys else [()] * table.num_rows,
        {
            part: np.column_stack([table[f"p{number}_{place}"].to_numpy() for place in range(len(part.columns))])
            for number, part in enumerate(parts)
        },
        {name: table[name].to_pylist() for name in peaks},
    )


def _columns(booked: Expr, basis: str) -> dict[str, Expr]:
    """Everything a metric may add up, by name: ledger columns, what follows from them, and the stand-ins of `metric`."""
    columns = {c: booked[c] for c in booked.columns} | measures(booked)
    active_s = sum(columns[f"effective_{kind.basis}_s"] for kind in ACTIVITIES)
    under_s = ibis.ifelse(booked.state == "busy", booked.gpu_s, 0.0) - active_s
    usd_per_s = booked[f"usd_per_gpu_hour_{basis}"] / S_PER_HOUR
    return columns | {
        USD: columns[f"usd_{basis}"],
        UNDERUSED_S: under_s,
        UNDERUSED_USD: usd_per_s * under_s,
        EFFECTIVE_USD: usd_per_s * active_s,
    }


def _from_ledger(
    metric: Metric, kind: Sum | Ratio, question: Question, totals: _Totals, active: Sequence[str]
) -> Column:
    """A Sum or Ratio. Its basis: the cost basis for dollars, the activity signals for what rests on activity."""
    values, coverage = _value(kind, totals.sums)
    parts = _parts(metric)
    of_money = question.basis if any(USD in p.columns for p in parts) else ""
    bases: Sequence[str | None] = [of_money or None] * len(totals.keys)
    if any(p.rests_on_activity for p in parts):
        bases = [", ".join(filter(None, (of_money, signals))) or None for signals in active]
    return Column(values, coverage.tolist(), bases)


def _value(kind: Sum | Ratio, sums: dict[Part, Floats]) -> tuple[list[Value], Floats]:
    """Values and coverage by group; None where nothing of it was known, or where there is nothing to divide by."""
    if isinstance(kind, Ratio):
        (over, known_over), (under, known_under) = _sum(kind.over, sums), _sum(kind.under, sums)
        over, under = over[:, 0], under[:, 0]
        known = (known_over > 0) & (known_under > 0) & (under != 0)
        ratio = np.divide(over, under, out=np.zeros_like(over), where=under != 0)
        return _where(known, ratio), np.minimum(known_over, known_under)
    values, coverage = _sum(kind, sums)
    return _where(coverage != 0, values if kind.each else values[:, 0]), coverage


def _sum(kind: Sum, sums: dict[Part, Floats]) -> tuple[Floats, Floats]:
    """A Sum by group, one column or `each`, and its coverage: known over needed; where nothing was needed all was known."""
    values = sums[kind.part] / kind.per
    if not kind.each:
        values = values.sum(axis=1, keepdims=True)
    if kind.coverage is None:
        return values, np.ones(len(values))
    known, needed = sums[kind.coverage.known].sum(axis=1), sums[kind.coverage.needed].sum(axis=1)
    return values, np.divide(known, needed, out=np.ones_like(known), where=needed != 0)


def _where(known: NDArray[np.bool_], values: Floats) -> list[Value]:
    """The values as Python's own, None where not known."""
    return [v if k else None for k, v in zip(known.tolist(), values.tolist(), strict=True)]


def _active_basis(totals: _Totals) -> list[str]:
    """By group: the activity signals its observed time rests on, with their shares where there are several."""
    names = [kind.basis + " (optimistic)" * kind.optimistic for kind in ACTIVITIES]
    seconds = np.column_stack([totals.sums[part][:, 0] for part in _ACTIVE])
    used = seconds > 0
    bases = np.array([*names, ""], dtype=object)[np.where(used.any(axis=1), used.argmax(axis=1), len(names))]
    for mixed in np.flatnonzero(used.sum(axis=1) > 1):
        shares = zip(names, seconds[mixed] / seconds[mixed].sum(), strict=True)
        bases[mixed] = ", ".join(f"{name} {share:.0%}" for name, share in shares if share > 0)
    return list(bases)


def _from_progress(question: Question, units: dict[Key, Made]) -> dict[Key, Said]:
    """Dollars for one of a unit."""
    basis = question.basis + (", without idle" if question.without_idle else "")
    return {key: (of.usd / of.amount if of.coverage > 0 else None, of.coverage, basis) for key, of in units.items()}


def _from_waits(metric: Metric, waiting: dict[Key, Row]) -> dict[Key, Said]:
    """A wait, its coverage the share of waits that ended; or how many wait still, which is known where anybody asked."""
    if isinstance(metric.kind, Count):
        return {key: (of.get("waiting", 0), None, None) for key, of in waiting.items()}
    said: dict[Key, Said] = {}
    for key, of in waiting.items():
        asked = of["n"] + of["waiting"]
        said[key] = (of.get(metric.name), of["n"] / asked if asked else None, None)
    return said
