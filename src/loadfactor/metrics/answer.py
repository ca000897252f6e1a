"""How is a question answered? Metrics become one aggregate over the ledger, grouped; sums are divided last, here.

What is not in the ledger (waits, units of progress) is worked out from its own small table, over the same groups.
"""

from dataclasses import dataclass
from datetime import datetime

import ibis

from loadfactor.metrics.calendar import instant
from loadfactor.metrics.kinds import ACTIVITIES, STATES
from loadfactor.metrics.ledger import measures
from loadfactor.metrics.metric import (
    EFFECTIVE_USD,
    UNDERUSED_S,
    UNDERUSED_USD,
    USD,
    Count,
    Coverage,
    Metric,
    Part,
    PerUnit,
    Quantile,
    Ratio,
    Reading,
    Sum,
    iso,
)
from loadfactor.metrics.question import OF_A_WAIT, Expr, Key, Question, Row, dated, only
from loadfactor.metrics.unit_costs import made
from loadfactor.metrics.waiting import waited
from loadfactor.tables import DIMENSIONS
from loadfactor.units import MS_PER_HOUR, S_PER_HOUR


def answer(question: Question, book: Expr, progress: Expr, waits: Expr) -> list[Reading]:
    """The readings: for each group, in order, one a metric. `book` is the ledger of the window, nothing beyond it."""
    book, waits = only(question, book, DIMENSIONS), only(question, waits, OF_A_WAIT)
    booked = dated(book, book.hour_utc, book.from_utc, question)
    groups = _sums(question, booked)
    units = {m.kind.unit for m in question.metrics if isinstance(m.kind, PerUnit)}
    costs = {unit: made(question, booked, progress, unit) for unit in units}
    waiting = waited(question, waits) if any(m.topic == "queue" for m in question.metrics) else {}
    keys = list(groups)
    keys += [k for k in waiting if k not in groups]
    keys.sort(key=lambda key: [(v is None, str(v)) for v in key])
    if not question.by and not keys:
        keys = [()]
    readings = []
    for key in keys:
        group = _group(question, key)
        sums, waits_of = groups.get(key, {}), waiting.get(key, {})
        readings += [_reading(metric, question, key, group, sums, costs, waits_of) for metric in question.metrics]
    return readings


@dataclass(frozen=True)
class _Group:
    """Of whom and of when the readings of one group speak."""

    by: dict[str, str | None]
    start: datetime
    end: datetime


def _group(question: Question, key: Key) -> _Group:
    by = dict(zip(question.by, key, strict=True))
    start, end = _bounds(question, by)
    if by.get("hour") is not None:
        by["hour"] = iso(instant(by["hour"]))
    return _Group(by, instant(start), instant(end))


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


def _sums(question: Question, booked: Expr) -> dict[Key, Row]:
    """All the parts of all the metrics in one aggregate: values by group."""
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
    table = (booked.group_by(keys).aggregate(**columns) if keys else booked.aggregate(**columns)).to_pyarrow()
    groups = {}
    for row in table.to_pylist():
        if row["rows"]:
            values: Row = {p: [row[f"p{n}_{i}"] for i in range(len(p.columns))] for n, p in enumerate(parts)}
            groups[tuple(row[k] for k in keys)] = values | {name: row[name] for name in peaks}
    return groups


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


def _reading(
    metric: Metric,
    question: Question,
    key: Key,
    group: _Group,
    sums: Row,
    costs: dict[str, dict[Key, tuple[float, float, float]]],
    waiting: Row,
) -> Reading:
    """One metric of one group."""
    kind, value, coverage, basis = metric.kind, None, None, None
    if isinstance(kind, Sum | Ratio) and sums:
        value, coverage = _value(kind, sums)
        basis = _basis(metric, question, sums)
    elif isinstance(kind, PerUnit) and key in costs[kind.unit]:
        amount, usd, coverage = costs[kind.unit][key]
        value = usd / amount if coverage > 0 else None
        basis = question.basis + (", without idle" if question.without_idle else "")
    elif isinstance(kind, Quantile) and kind.of != "wait_s" and sums:
        value = sums[kind.of]
    elif isinstance(kind, Quantile) and waiting:
        value = waiting.get(metric.name)
        coverage = waiting["n"] / (waiting["n"] + waiting["waiting"]) if waiting["n"] + waiting["waiting"] else None
    elif isinstance(kind, Count) and (waiting or not question.by):
        value = waiting.get("waiting", 0)
    return Reading(metric.name, metric.unit, value, dict(group.by), group.start, group.end, coverage, basis)


def _value(kind: Sum | Ratio, sums: Row) -> tuple[float | list[float] | None, float | None]:
    """A Sum's or Ratio's value and coverage; None where nothing of it was known, or where there is nothing to divide by."""
    if isinstance(kind, Ratio):
        over, known_over = _value(kind.over, sums)
        under, known_under = _value(kind.under, sums)
        coverage = min(c for c in (known_over, known_under) if c is not None) if known_over is not None else known_under
        if not isinstance(over, float) or not isinstance(under, float) or under == 0:
            return None, coverage
        return over / under, coverage
    coverage = _share(kind.coverage, sums) if kind.coverage else 1.0
    if coverage == 0:
        return None, coverage
    values = [v / kind.per for v in sums[kind.part]]
    return (values if kind.each else float(sum(values))), coverage


def _share(coverage: Coverage, sums: Row) -> float:
    """Known over needed; where nothing was needed everything was known."""
    needed = sum(sums[coverage.needed])
    return sum(sums[coverage.known]) / needed if needed else 1.0


def _basis(metric: Metric, question: Question, sums: Row) -> str | None:
    """What a reading stands on: the cost basis for dollars, the activity signals and their shares of the time for utilization."""
    parts = _parts(metric)
    notes = []
    if any(USD in p.columns for p in parts):
        notes.append(question.basis)
    if any(p.rests_on_activity for p in parts):
        seconds = {
            kind.basis + " (optimistic)" * kind.optimistic: sum(sums[part])
            for kind, part in zip(ACTIVITIES, _ACTIVE, strict=True)
        }
        total = sum(seconds.values())
        used = {name: s for name, s in seconds.items() if s > 0}
        if len(used) == 1:
            notes += used
        else:
            notes += [f"{name} {s / total:.0%}" for name, s in used.items()]
    return ", ".join(notes) or None


def _bounds(question: Question, by: Row) -> tuple[int, int]:
    """The stretch of time a reading speaks of: its hour or day where split by one, inside the window."""
    start, end = question.window.start_ms, question.window.end_ms
    if by.get("day") is not None:
        first, after = next((f, a) for name, f, a in question.window.days() if name == by["day"])
        start, end = max(start, first), min(end, after)
    if by.get("hour") is not None:
        start, end = max(start, by["hour"]), min(end, by["hour"] + MS_PER_HOUR)
    return start, end
