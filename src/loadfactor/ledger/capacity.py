"""Capacity of each scope, instant by instant: how many GPUs, how many of them down, at which mean price.

Only what comes and goes with the fleet is looked at here, not with its holders, so a scope is a few rows a day.
"""

from collections.abc import Sequence
from typing import Any

import ibis

from loadfactor.ledger.intervals import covers, cut_at_bounds, intersect, shares_time
from loadfactor.ledger.inventory import LOCATION
from loadfactor.ledger.prices import PRICE_COLUMNS
from loadfactor.ledger.scope import DAY, PLACE, is_same_place, name_alone

_COMMON = ("device_id", *LOCATION)
"""What the GPUs of a scope may have in common."""
_MERGED = {"gpus": "sum", "first": "min", "last": "max", "known": "sum", "rows": "sum"}
"""How groups of GPUs that are alike become one."""

Expr = Any


def measure_capacity(days: Expr, scopes: Expr | None) -> Expr:
    """What each scope has, instant by instant: `total` GPUs, of them `down`, mean prices, and what the GPUs have in common.

    `days` are the segments of the GPUs by day, `scopes` those of their places, None where each GPU is its own.
    A pool of thousands is a handful of rows.
    """
    keys = ["scope", DAY]
    alike = _group_alike(days, scopes)
    pieces = cut_at_bounds([alike.select(*keys, "from_utc", "to_utc")], keys)
    parts = pieces.join(alike, covers(pieces, alike, keys)).select(
        pieces, *(alike[c] for c in alike.columns if c not in (*keys, "from_utc", "to_utc"))
    )

    def shared(column: str) -> Expr:
        first, last = parts[f"first_{column}"].min(), parts[f"last_{column}"].max()
        return ibis.ifelse((first == last) & (parts[f"known_{column}"].sum() == parts.rows.sum()), first, None)

    def mean_cost(column: str) -> Expr:
        cost = parts[column]
        mean = ibis.ifelse(cost.min() == cost.max(), cost.min(), (cost * parts.gpus).sum() / parts.gpus.sum())
        return ibis.ifelse(cost.count() < parts.count(), None, mean)  # one price unknown: the mean is unknown

    return parts.group_by([*keys, "from_utc", "to_utc"]).aggregate(
        total=parts.gpus.sum(),
        down=ibis.coalesce(parts.gpus.sum(where=parts.down), 0.0),
        has_source=ibis.ifelse(
            parts.has_source.count() < parts.count(),
            ibis.null("boolean"),
            ibis.ifelse(parts.has_source, 1, 0).min() == 1,
        ),
        **{c: shared(c) for c in _COMMON},
        **{c: mean_cost(c) for c in PRICE_COLUMNS},
    )


def _group_alike(days: Expr, scopes: Expr | None) -> Expr:
    """The GPUs of each scope, those alike added up. Of GPUs that share a scope each is read once, however often that begins."""
    segment = (DAY, "from_utc", "to_utc", "down", "has_source", *PRICE_COLUMNS)
    if scopes is None:
        return _list_alone(days, segment)
    of_place = days.group_by([*PLACE, *segment]).aggregate(
        gpus=days.share.sum(),
        **{f"first_{c}": days[c].min() for c in _COMMON},
        **{f"last_{c}": days[c].max() for c in _COMMON},
        **{f"known_{c}": days[c].count() for c in _COMMON},
        rows=days.count(),
    )
    sharing = _cut_by_scope(of_place, scopes.filter(scopes.scope.notnull()))
    columns = [c for c in sharing.columns if c not in ("scope", *PLACE, *segment)]
    merged = {c: getattr(sharing[c], _MERGED[c.partition("_")[0]])() for c in columns}
    together = sharing.group_by(["scope", *segment]).aggregate(**merged)
    alone = _list_alone(_cut_by_scope(days, scopes.filter(scopes.scope.isnull())), segment)
    return ibis.union(together.select(*alone.columns), alone)


def _list_alone(each: Expr, segment: Sequence[str]) -> Expr:
    """GPUs that are their own scope, in the same columns."""
    return each.select(
        *segment,
        scope=name_alone(each.device_id),
        gpus=each.share,
        **{f"first_{c}": each[c] for c in _COMMON},
        **{f"last_{c}": each[c] for c in _COMMON},
        **{f"known_{c}": each[c].notnull().cast("int64") for c in _COMMON},
        rows=ibis.literal(1, "int64"),
    )


def _cut_by_scope(rows: Expr, scopes: Expr) -> Expr:
    """Rows of places, cut where the scope of their place changes, with it."""
    joined = rows.join(scopes, [*is_same_place(rows, scopes), *shares_time(rows, scopes, [DAY])])
    own = (rows[c] for c in rows.columns if c not in ("from_utc", "to_utc"))
    return joined.select(*own, scopes.scope, **intersect(rows, scopes))
