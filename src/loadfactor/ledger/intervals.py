"""Intervals in Ibis: the few operations that every definition of the ledger is made of.

Everything is int64 milliseconds: nothing rounds them.
"""

from collections.abc import Sequence
from typing import Any

import ibis

from loadfactor.tables.schema import ALWAYS

Expr = Any
"""An Ibis table or column; Ibis' own types say less than the docstrings here."""


def open_ends(table: Expr) -> Expr:
    """Rows whose empty from_utc or to_utc say since ever or for ever; those without any length are dropped."""
    beginning, forever = ALWAYS
    return table.mutate(
        from_utc=ibis.coalesce(table.from_utc, beginning), to_utc=ibis.coalesce(table.to_utc, forever)
    ).filter(lambda t: t.from_utc < t.to_utc)


def clip(table: Expr, bounds: Expr) -> Expr:
    """The parts of rows inside `bounds` (disjoint: start_ms, end_ms); an empty from_utc or to_utc is open."""
    rows = open_ends(table)
    inside = rows.join(bounds, [rows.from_utc < bounds.end_ms, rows.to_utc > bounds.start_ms])
    return inside.select(
        *(rows[c] for c in rows.columns if c not in ("from_utc", "to_utc")),
        from_utc=ibis.greatest(rows.from_utc, bounds.start_ms),
        to_utc=ibis.least(rows.to_utc, bounds.end_ms),
    )


def split_by_bucket(table: Expr, width_ms: int, name: str) -> Expr:
    """One row for each bucket of `width_ms` that a row's interval touches, cut to it; `name` is the bucket's start."""
    first = (table.from_utc // width_ms).cast("int64")
    last = ((table.to_utc - 1) // width_ms).cast("int64")
    rows = table.mutate(**{name: ibis.range(first, last + 1).unnest()})
    rows = rows.mutate(**{name: rows[name].cast("int64") * width_ms})
    return rows.mutate(
        from_utc=ibis.greatest(rows.from_utc, rows[name]), to_utc=ibis.least(rows.to_utc, rows[name] + width_ms)
    )


def cut_at_bounds(tables: Sequence[Expr], keys: Sequence[str]) -> Expr:
    """Cut time, for each value of `keys`, at every from_utc and to_utc of `tables`: the intervals between the cuts."""
    points = [t.select(*keys, at_utc=t[bound]) for t in tables for bound in ("from_utc", "to_utc")]
    cuts = ibis.union(*points, distinct=True)
    window = ibis.window(group_by=list(keys), order_by=cuts.at_utc)
    return (
        cuts.mutate(to_utc=cuts.at_utc.lead().over(window))
        .rename(from_utc="at_utc")
        .filter(lambda t: t.to_utc.notnull())
        .select(*keys, "from_utc", "to_utc")
    )


def covers(pieces: Expr, rows: Expr, keys: Sequence[str]) -> list[Expr]:
    """The predicates of a join: same keys, and the row's interval covers the piece."""
    return [*(pieces[k] == rows[k] for k in keys), rows.from_utc <= pieces.from_utc, rows.to_utc >= pieces.to_utc]


def shares_time(left: Expr, right: Expr, keys: Sequence[str]) -> list[Expr]:
    """The predicates of a join: same keys, and the intervals share time; `intersect` is what they share."""
    return [*(left[k] == right[k] for k in keys), left.from_utc < right.to_utc, left.to_utc > right.from_utc]


def intersect(left: Expr, right: Expr) -> dict[str, Expr]:
    """The time two intervals share, as the columns of a selection."""
    return {"from_utc": ibis.greatest(left.from_utc, right.from_utc), "to_utc": ibis.least(left.to_utc, right.to_utc)}


def number_islands(table: Expr, keys: Sequence[str]) -> Expr:
    """The rows with `island`: for each value of `keys`, a number that touching and overlapping intervals share."""
    before = ibis.window(group_by=list(keys), order_by=[table.from_utc, table.to_utc], preceding=(None, 1))
    marked = table.mutate(reached=table.to_utc.max().over(before))
    marked = marked.mutate(begins=ibis.ifelse(marked.reached.isnull() | (marked.from_utc > marked.reached), 1, 0))
    order = [marked.from_utc, marked.to_utc, marked.begins.desc()]
    running = ibis.cumulative_window(group_by=list(keys), order_by=order)
    return marked.mutate(island=marked.begins.sum().over(running)).drop("reached", "begins")


def unite(table: Expr, keys: Sequence[str]) -> Expr:
    """The union of a row's intervals for each value of `keys`: touching and overlapping ones become one."""
    marked = number_islands(table, keys)
    return (
        marked.group_by([*keys, "island"])
        .aggregate(from_utc=marked.from_utc.min(), to_utc=marked.to_utc.max())
        .drop("island")
    )
