"""Waits by group: every quantile that a question takes, and how many wait still."""

import ibis

from loadfactor.metrics.metric import Quantile
from loadfactor.metrics.query.question import OF_A_WAIT, Expr, Fetch, Key, Question, Row, add_calendar
from loadfactor.tables import DIMENSIONS
from loadfactor.units import MS_PER_HOUR


def measure_waits(question: Question, waits: Expr, fetch: Fetch) -> dict[Key, Row]:
    """Every wait quantile asked for, and who still waits, by group; nothing where no wait was ever recorded."""
    if any(d not in OF_A_WAIT for d in question.by) or not fetch(waits.limit(1)).num_rows:
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
    started = add_calendar(started, hour, started.ended_utc, question).mutate(gpus=ibis.coalesce(started.gpus, 1.0))
    at = ibis.greatest(censored.queued_utc, window.start_ms)
    censored = add_calendar(censored, at - at % MS_PER_HOUR, at, question)
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
    out: dict[Key, Row] = {}
    table = started.group_by(keys).aggregate(**columns) if keys else started.aggregate(**columns)
    for row in fetch(table).to_pylist():
        out[tuple(row.pop(k) for k in keys)] = {"waiting": 0, **row}
    for name, kind in weighted:
        for key, value in _weighted_quantile(started, keys, kind, fetch).items():
            out[key][name] = value
    counts = censored.group_by(keys).aggregate(n=censored.count()) if keys else censored.aggregate(n=censored.count())
    for row in fetch(counts).to_pylist():
        out.setdefault(tuple(row[k] for k in keys), {"n": 0})["waiting"] = row["n"]
    return out


def _weighted_quantile(rows: Expr, keys: list[str], kind: Quantile, fetch: Fetch) -> dict[Key, float]:
    """The smallest wait at which the weights of the waits so far reach the share q of all weights."""
    weight = rows[kind.weight]
    running = ibis.cumulative_window(group_by=keys, order_by=[rows.wait_s, rows.job_id])
    whole = ibis.window(group_by=keys)
    reached = rows.mutate(so_far=weight.sum().over(running), all=weight.sum().over(whole))
    reached = reached.filter(reached.so_far >= reached["all"] * kind.q)
    table = (
        reached.group_by(keys).aggregate(v=reached.wait_s.min()) if keys else reached.aggregate(v=reached.wait_s.min())
    )
    return {tuple(r[k] for k in keys): r["v"] for r in fetch(table).to_pylist()}
