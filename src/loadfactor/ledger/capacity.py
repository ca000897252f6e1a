"""Capacity of each scope, instant by instant: how many GPUs, how many of them down, at which mean price.

Only what comes and goes with the fleet is looked at here, not with its holders, so a scope is a few rows a day.
"""

from typing import Any

import ibis

from loadfactor.ledger.intervals import covers, cut_at_bounds, intersect, shares_time
from loadfactor.ledger.inventory import LOCATION
from loadfactor.ledger.prices import PRICE_COLUMNS
from loadfactor.ledger.scope import DAY

Expr = Any


def measure_capacity(days: Expr, scopes: Expr) -> Expr:
    """What each scope has, instant by instant: `total` GPUs, of them `down`, mean prices, and what the GPUs have in common.

    `days` are the segments of the GPUs by day, `scopes` those the GPUs are in. A pool of thousands is a handful of rows.
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
        **{c: shared(c) for c in ("device_id", *LOCATION)},
        **{c: mean_cost(c) for c in PRICE_COLUMNS},
    )


def _group_alike(days: Expr, scopes: Expr) -> Expr:
    """The GPUs of each scope, those alike added up."""
    own = [c for c in days.columns if c not in ("from_utc", "to_utc")]
    scoped = days.join(scopes, shares_time(days, scopes, ["device_id", DAY]))
    scoped = scoped.select(*(days[c] for c in own), scopes.scope, **intersect(days, scopes))
    keys = ["scope", DAY, "from_utc", "to_utc", "down", "has_source", *PRICE_COLUMNS]
    return scoped.group_by(keys).aggregate(
        gpus=scoped.share.sum(),
        **{f"first_{c}": scoped[c].min() for c in ("device_id", *LOCATION)},
        **{f"last_{c}": scoped[c].max() for c in ("device_id", *LOCATION)},
        **{f"known_{c}": scoped[c].count() for c in ("device_id", *LOCATION)},
        rows=scoped.count(),
    )
