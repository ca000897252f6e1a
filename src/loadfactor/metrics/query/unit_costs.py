"""Units of work made in a window, by the groups of a question, and what the jobs that worked on them cost."""

from collections.abc import Collection
from math import fsum
from typing import NamedTuple

import ibis

from loadfactor.ledger.columns import HOLDER
from loadfactor.ledger.states import measures
from loadfactor.metrics.query.question import OF_A_JOB, Expr, Fetch, Key, Question, add_calendar
from loadfactor.tables import DIMENSIONS
from loadfactor.units import MS_PER_HOUR


class UnitTotals(NamedTuple):
    """How much of a unit was made and kept, what the jobs that worked on it cost, and which share of their hours has a price."""

    amount: float
    cost: float
    coverage: float | None


def sum_units(
    question: Question, booked: Expr, progress: Expr, units: Collection[str], fetch: Fetch
) -> dict[str, dict[Key, UnitTotals]]:
    """By unit and group, where any of the unit was made and kept."""
    out: dict[str, dict[Key, UnitTotals]] = {unit: {} for unit in units}
    if not units or any(d not in OF_A_JOB for d in question.by):
        return out
    window, keys = question.window, ["unit", *(DIMENSIONS[d] for d in question.by)]
    rows = progress.filter(progress.unit.isin(list(units)))
    begun = rows.from_utc < window.end_ms
    rows = rows.filter(begun, (rows.to_utc > window.start_ms) | (rows.from_utc >= window.start_ms))
    jobs = rows.select("unit", "job_id").distinct()  # those of which all work was lost cost, too
    states = ("busy",) if question.without_idle else ("idle", "busy", "unobserved")
    held = booked.join(jobs, "job_id")
    counted, cost = held.state.isin(states), measures(held)[f"cost_{question.basis}"]
    spent = held.group_by(keys).aggregate(
        cost=ibis.coalesce(ibis.ifelse(counted, cost, 0.0).sum(), 0.0),
        priced_s=ibis.ifelse(counted & cost.notnull(), held.gpu_s, 0.0).sum(),
        needed_s=ibis.ifelse(counted, held.gpu_s, 0.0).sum(),
    )
    kept = rows.filter(ibis.coalesce(rows.kept, True))
    amounts = _amounts(question, booked.semi_join(kept, "job_id"), kept, keys, fetch)
    for row in fetch(spent).to_pylist():
        unit, *group = key = tuple(row[k] for k in keys)
        if key in amounts:
            coverage = row["priced_s"] / row["needed_s"] if row["needed_s"] else None
            out[unit][tuple(group)] = UnitTotals(amounts[key], row["cost"], coverage)
    return out


def drop_shared_jobs(question: Question, book: Expr, progress: Expr) -> Expr:
    """Progress of the jobs that held nothing outside the question's filters: of others nobody knows what was made where.

    `book` is the ledger of the window, unfiltered.
    """
    if not question.where:
        return progress
    inside = ibis.and_(*(book[DIMENSIONS[name]] == value for name, value in question.where))
    return progress.anti_join(book.filter(~ibis.coalesce(inside, False)), "job_id")


def _amounts(question: Question, booked: Expr, rows: Expr, keys: list[str], fetch: Fetch) -> dict[Key, float]:
    """Progress in the window by unit and group; a stretch the window or a bucket cuts counts in proportion to time.

    `booked` is the ledger of the jobs that made it: they are called what it calls them.
    """
    who = tuple(c for c in HOLDER if c not in ("attempt", "job_id"))
    names = booked.group_by("job_id").aggregate(**{c: booked[c].max() for c in who})
    window = question.window
    length = (rows.to_utc - rows.from_utc).cast("float64")
    rows = rows.select("unit", "job_id", "from_utc", "to_utc", amount=rows.amount, length=length)
    instants = rows.filter(rows.length == 0)
    instants = instants.filter(instants.from_utc >= window.start_ms, instants.from_utc < window.end_ms)
    stretches = rows.filter(rows.length > 0)
    if "hour" in question.by or question.periods:
        stretches = _bucketed(stretches, question)
    part = ibis.least(stretches.to_utc, window.end_ms) - ibis.greatest(stretches.from_utc, window.start_ms)
    stretches = stretches.mutate(amount=stretches.amount * part / stretches.length).filter(part > 0)
    columns = ["unit", "job_id", "from_utc", "amount"]
    made = ibis.union(instants.select(*columns), stretches.select(*columns)).join(names, "job_id")
    hour = made.from_utc - made.from_utc % MS_PER_HOUR
    made = add_calendar(made, hour, made.from_utc, question)
    table = made.group_by(keys).aggregate(
        amounts=made.amount.collect()
    )  # joined rows come in any order: added up exactly
    totals = {tuple(r[k] for k in keys): fsum(r["amounts"]) for r in fetch(table).to_pylist()}
    return {key: total for key, total in totals.items() if total}


def _bucketed(stretches: Expr, question: Question) -> Expr:
    """Stretches cut at hours, and at the local midnights that are none; amounts still those of the whole stretch."""
    bounds = {question.window.start_ms - question.window.start_ms % MS_PER_HOUR}
    bounds |= set(range(min(bounds), question.window.end_ms, MS_PER_HOUR)) if "hour" in question.by else set()
    bounds |= {first for _, first, _ in question.window.days()} if question.periods else set()
    ordered = sorted(bounds)
    ends = [*ordered[1:], max(question.window.end_ms, ordered[-1] + 1)]
    buckets = ibis.memtable({"first": ordered, "after": ends}, schema={"first": "int64", "after": "int64"})
    cut = stretches.join(buckets, [stretches.from_utc < buckets.after, stretches.to_utc > buckets.first])
    return cut.select(
        "unit",
        "job_id",
        "amount",
        "length",
        from_utc=ibis.greatest(cut.from_utc, cut.first),
        to_utc=ibis.least(cut.to_utc, cut.after),
    )
