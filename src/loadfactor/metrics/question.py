"""How is a question answered? Metrics become one aggregate over the ledger, grouped; sums are divided last, here.

What is not in the ledger (waits, units of progress) is worked out from its own small table, over the same groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ibis

from loadfactor.errors import InputError
from loadfactor.metrics.calendar import Window, instant
from loadfactor.metrics.kinds import ACTIVITIES
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
)
from loadfactor.metrics.places import HOLDER
from loadfactor.tables import DIMENSIONS
from loadfactor.units import MS_PER_HOUR

Expr = Any
Row = dict[Any, Any]

OF_A_JOB = ("job", "experiment", "user", "team", "project", "purpose", "hour", "day")
OF_A_WAIT = (*OF_A_JOB, "pool")


@dataclass(frozen=True)
class Question:
    """What is asked: metrics, split by dimensions, in a window, in one cost basis."""

    metrics: tuple[Metric, ...]
    by: tuple[str, ...]
    window: Window
    basis: str
    where: tuple[tuple[str, str], ...] = ()
    without_idle: bool = False


def check(by: Sequence[str]) -> tuple[str, ...]:
    """The dimensions, or InputError naming the one that is none."""
    for name in by:
        if name not in DIMENSIONS:
            raise InputError(f"nothing can be split by {name!r}; choose from {', '.join(DIMENSIONS)}")
    return tuple(dict.fromkeys(by))


def answer(question: Question, book: Expr, progress: Expr, waits: Expr) -> list[Reading]:
    """The readings: for each group, in order, one a metric. `book` is the ledger of the window, nothing beyond it."""
    book, waits = _only(question, book, DIMENSIONS), _only(question, waits, OF_A_WAIT)
    booked = _dated(book, book.hour_utc, book.from_utc, question)
    groups = _sums(question, booked)
    units = {m.kind.unit for m in question.metrics if isinstance(m.kind, PerUnit)}
    made = {unit: _made(question, booked, progress, unit) for unit in units}
    waited = _waited(question, waits) if any(m.topic == "queue" for m in question.metrics) else {}
    keys = list(groups)
    keys += [k for k in waited if k not in groups]
    keys.sort(key=lambda key: [(v is None, str(v)) for v in key])
    if not question.by and not keys:
        keys = [()]
    return [
        _reading(metric, question, key, groups.get(key, {}), made, waited.get(key, {}))
        for key in keys
        for metric in question.metrics
    ]


def _only(question: Question, rows: Expr, known: Sequence[str] | dict[str, str]) -> Expr:
    """Rows that pass the question's filters; none where they cannot be told apart."""
    for name, value in question.where:
        if name in known:
            rows = rows.filter(rows[DIMENSIONS[name]] == value)
        else:
            rows = rows.limit(0)
    return rows


# -- the ledger ---------------------------------------------------------------------------------------------------------


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


def _sums(question: Question, booked: Expr) -> dict[tuple[Any, ...], Row]:
    """All the parts of all the metrics in one aggregate: values by group."""
    parts = list(dict.fromkeys([p for m in question.metrics for p in _parts(m)] + list(_ACTIVE)))
    peaks = {m.kind.of for m in question.metrics if isinstance(m.kind, Quantile) and m.kind.of != "wait_s"}
    usd = booked[f"usd_{question.basis}"]
    columns: dict[str, Expr] = {"rows": booked.count()}
    for number, part in enumerate(parts):
        where = booked.state.isin(part.states)
        if part.priced:
            where = where & usd.notnull()
        for place, name in enumerate(part.columns):
            column = _column(booked, name, usd)
            columns[f"p{number}_{place}"] = ibis.coalesce(column.sum(where=where), 0.0)
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


def _column(booked: Expr, name: str, usd: Expr) -> Expr:
    """A ledger column by its name, or what one of the stand-ins of `metric` means row by row."""
    if name == USD:
        return usd
    if name not in (UNDERUSED_S, UNDERUSED_USD, EFFECTIVE_USD):
        return booked[name]
    active_s = sum(booked[f"effective_{kind.basis}_s"] for kind in ACTIVITIES)
    under_s = ibis.ifelse(booked.state == "busy", booked.gpu_s, 0.0) - active_s
    if name == UNDERUSED_S:
        return under_s
    return usd * (active_s if name == EFFECTIVE_USD else under_s) / booked.gpu_s.nullif(0.0)


def _dated(rows: Expr, hour: Expr, at: Expr, question: Question) -> Expr:
    """Rows with the hour and the local day they lie in, where the question splits by them."""
    if "hour" in question.by:
        rows = rows.mutate(hour=hour)
    if "day" in question.by:
        days = list(question.window.days())
        names = ibis.memtable(
            {"day": [d[0] for d in days], "first": [d[1] for d in days], "after": [d[2] for d in days]},
            schema={"day": "string", "first": "int64", "after": "int64"},
        )
        rows = rows.mutate(dated_utc=at)
        rows = rows.join(names, [rows.dated_utc >= names.first, rows.dated_utc < names.after]).drop("first", "after")
    return rows


# -- progress -----------------------------------------------------------------------------------------------------------


def _made(
    question: Question, booked: Expr, progress: Expr, unit: str
) -> dict[tuple[Any, ...], tuple[float, float, float]]:
    """By group: how much of a unit was made and kept, what its jobs cost, and which share of their hours has a price."""
    if any(d not in OF_A_JOB for d in question.by):
        return {}
    window, keys = question.window, [DIMENSIONS[d] for d in question.by]
    rows = progress.filter(progress.unit == unit, ibis.coalesce(progress.kept, True))
    rows = rows.filter(rows.from_utc < window.end_ms, rows.to_utc >= window.start_ms)
    jobs = rows.select("job_id").distinct()
    cost = booked.semi_join(jobs, "job_id")
    states = ("busy",) if question.without_idle else ("idle", "busy", "unobserved")
    usd = cost[f"usd_{question.basis}"]
    counted = cost.state.isin(states)
    totals = {
        "usd": ibis.coalesce(usd.sum(where=counted), 0.0),
        "priced_s": ibis.coalesce(cost.gpu_s.sum(where=counted & usd.notnull()), 0.0),
        "needed_s": ibis.coalesce(cost.gpu_s.sum(where=counted), 0.0),
    }
    spent = (cost.group_by(keys).aggregate(**totals) if keys else cost.aggregate(**totals)).to_pyarrow().to_pylist()
    amounts = _amounts(question, booked, rows, keys)
    return {
        key: (amounts[key], row["usd"], row["priced_s"] / row["needed_s"] if row["needed_s"] else 1.0)
        for row in spent
        if (key := tuple(row[k] for k in keys)) in amounts
    }


def _amounts(question: Question, booked: Expr, rows: Expr, keys: list[str]) -> dict[tuple[Any, ...], float]:
    """Progress in the window by group; a stretch the window or a bucket cuts counts in proportion to time."""
    who = tuple(c for c in HOLDER if c not in ("attempt", "job_id"))
    names = booked.filter(booked.job_id.notnull()).group_by("job_id").aggregate(**{c: booked[c].max() for c in who})
    window = question.window
    length = (rows.to_utc - rows.from_utc).cast("float64")
    rows = rows.select("job_id", "from_utc", "to_utc", amount=rows.amount, length=length)
    instants = rows.filter(rows.length == 0)
    instants = instants.filter(instants.from_utc >= window.start_ms, instants.from_utc < window.end_ms)
    stretches = rows.filter(rows.length > 0)
    if "hour" in question.by or "day" in question.by:
        stretches = _bucketed(stretches, question)
    part = ibis.least(stretches.to_utc, window.end_ms) - ibis.greatest(stretches.from_utc, window.start_ms)
    stretches = stretches.mutate(amount=stretches.amount * part / stretches.length).filter(part > 0)
    columns = ["job_id", "from_utc", "amount"]
    made = ibis.union(instants.select(*columns), stretches.select(*columns)).join(names, "job_id")
    hour = made.from_utc - made.from_utc % MS_PER_HOUR
    made = _dated(made, hour, made.from_utc, question)
    table = made.group_by(keys).aggregate(total=made.amount.sum()) if keys else made.aggregate(total=made.amount.sum())
    return {tuple(r[k] for k in keys): r["total"] for r in table.to_pyarrow().to_pylist() if r["total"]}


def _bucketed(stretches: Expr, question: Question) -> Expr:
    """Stretches cut at hours, and at the local midnights that are none; amounts still those of the whole stretch."""
    bounds = {question.window.start_ms - question.window.start_ms % MS_PER_HOUR}
    bounds |= set(range(min(bounds), question.window.end_ms, MS_PER_HOUR)) if "hour" in question.by else set()
    bounds |= {first for _, first, _ in question.window.days()} if "day" in question.by else set()
    ordered = sorted(bounds)
    ends = [*ordered[1:], max(question.window.end_ms, ordered[-1] + 1)]
    buckets = ibis.memtable({"first": ordered, "after": ends}, schema={"first": "int64", "after": "int64"})
    cut = stretches.join(buckets, [stretches.from_utc < buckets.after, stretches.to_utc > buckets.first])
    return cut.select(
        "job_id",
        "amount",
        "length",
        from_utc=ibis.greatest(cut.from_utc, cut.first),
        to_utc=ibis.least(cut.to_utc, cut.after),
    )


# -- waits --------------------------------------------------------------------------------------------------------------


def _waited(question: Question, waits: Expr) -> dict[tuple[Any, ...], Row]:
    """Every wait quantile asked for, and who still waits, by group."""
    if any(d not in OF_A_WAIT for d in question.by):
        return {}
    window, keys = question.window, [DIMENSIONS[d] for d in question.by]
    started = waits.filter(waits.started, waits.ended_utc >= window.start_ms, waits.ended_utc < window.end_ms)
    begun = waits.filter(waits.queued_utc < window.end_ms)
    censored = begun.filter(
        begun.ended_utc.isnull()
        | (begun.ended_utc >= window.end_ms)
        | (~begun.started & (begun.ended_utc >= window.start_ms))
    )
    hour = started.ended_utc - started.ended_utc % MS_PER_HOUR
    started = _dated(started, hour, started.ended_utc, question).mutate(gpus=ibis.coalesce(started.gpus, 1.0))
    at = ibis.greatest(censored.queued_utc, window.start_ms)
    censored = _dated(censored, at - at % MS_PER_HOUR, at, question)
    columns = {"n": started.count()}
    weighted = []
    for metric in question.metrics:
        kind = metric.kind
        if not isinstance(kind, Quantile) or kind.of != "wait_s":
            continue
        if kind.weight is None:
            columns[metric.name] = started.wait_s.mean() if kind.mean else started.wait_s.quantile(kind.q)
        elif kind.mean:
            columns[metric.name] = (started.wait_s * started[kind.weight]).sum() / started[kind.weight].sum()
        else:
            weighted.append((metric.name, kind))
    out: dict[tuple[Any, ...], Row] = {}
    table = started.group_by(keys).aggregate(**columns) if keys else started.aggregate(**columns)
    for row in table.to_pyarrow().to_pylist():
        out[tuple(row.pop(k) for k in keys)] = {"waiting": 0, **row}
    for name, kind in weighted:
        for key, value in _weighted_quantile(started, keys, kind).items():
            out[key][name] = value
    counts = censored.group_by(keys).aggregate(n=censored.count()) if keys else censored.aggregate(n=censored.count())
    for row in counts.to_pyarrow().to_pylist():
        out.setdefault(tuple(row[k] for k in keys), {"n": 0})["waiting"] = row["n"]
    return out


def _weighted_quantile(rows: Expr, keys: list[str], kind: Quantile) -> dict[tuple[Any, ...], float]:
    """The smallest wait at which the weights of the waits so far reach the share q of all weights."""
    weight = rows[kind.weight]
    running = ibis.cumulative_window(group_by=keys, order_by=[rows.wait_s, rows.job_id])
    whole = ibis.window(group_by=keys)
    reached = rows.mutate(so_far=weight.sum().over(running), all=weight.sum().over(whole))
    reached = reached.filter(reached.so_far >= reached["all"] * kind.q)
    table = (
        reached.group_by(keys).aggregate(v=reached.wait_s.min()) if keys else reached.aggregate(v=reached.wait_s.min())
    )
    return {tuple(r[k] for k in keys): r["v"] for r in table.to_pyarrow().to_pylist()}


# -- readings -----------------------------------------------------------------------------------------------------------


def _reading(
    metric: Metric,
    question: Question,
    key: tuple[Any, ...],
    sums: Row,
    made: dict[str, dict[tuple[Any, ...], tuple[float, float, float]]],
    waited: Row,
) -> Reading:
    """One metric of one group."""
    kind, value, coverage, basis = metric.kind, None, None, None
    if isinstance(kind, Sum | Ratio) and sums:
        value, coverage = _value(kind, sums)
        basis = _basis(metric, question, sums)
    elif isinstance(kind, PerUnit) and key in made[kind.unit]:
        amount, usd, coverage = made[kind.unit][key]
        value = usd / amount if coverage > 0 else None
        basis = question.basis + (", without idle" if question.without_idle else "")
    elif isinstance(kind, Quantile) and kind.of != "wait_s" and sums:
        value = sums[kind.of]
    elif isinstance(kind, Quantile) and waited:
        value = waited.get(metric.name)
        coverage = waited["n"] / (waited["n"] + waited["waiting"]) if waited["n"] + waited["waiting"] else None
    elif isinstance(kind, Count) and (waited or not question.by):
        value = waited.get("waiting", 0)
    by = dict(zip(question.by, key, strict=True))
    start, end = _bounds(question, by)
    if by.get("hour") is not None:
        by["hour"] = Reading("", "", None, {}, instant(by["hour"]), instant(by["hour"]), None, None).as_json()["from"]
    return Reading(metric.name, metric.unit, value, by, instant(start), instant(end), coverage, basis)


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
