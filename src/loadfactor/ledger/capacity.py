"""How much room is there? What each place has, instant by instant: how many GPUs, how many of them down, at which mean price.

Only what comes and goes with the fleet is looked at here, not with its holders, so a place is a few rows a day.
"""

from typing import Any

import ibis

from loadfactor.ledger.intervals import common, covering, elementary, overlapping
from loadfactor.ledger.inventory import PLACE
from loadfactor.ledger.prices import PRICE_COLUMNS
from loadfactor.ledger.scope import DAY

Expr = Any


def room(days: Expr, where: Expr) -> Expr:
    """What each place has, instant by instant: `total` GPUs, of them `broken`, mean prices, and what the GPUs have in common.

    `days` are the segments of `installed` by day, `where` the places of the GPUs. A pool of thousands is a handful of rows.
    """
    keys = ["place", DAY]
    alike = _alike(days, where)
    pieces = elementary([alike.select(*keys, "from_utc", "to_utc")], keys)
    parts = pieces.join(alike, covering(pieces, alike, keys)).select(
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
        broken=ibis.coalesce(parts.gpus.sum(where=parts.down), 0.0),
        has_source=ibis.ifelse(parts.has_source, 1, 0).min() == 1,
        **{c: shared(c) for c in ("device_id", *PLACE)},
        **{c: mean_cost(c) for c in PRICE_COLUMNS},
    )


def _alike(days: Expr, where: Expr) -> Expr:
    """The GPUs of each place, those alike added up."""
    own = [c for c in days.columns if c not in ("from_utc", "to_utc")]
    placed = days.join(where, overlapping(days, where, ["device_id", DAY]))
    placed = placed.select(*(days[c] for c in own), where.place, **common(days, where))
    keys = ["place", DAY, "from_utc", "to_utc", "down", "has_source", *PRICE_COLUMNS]
    return placed.group_by(keys).aggregate(
        gpus=placed.share.sum(),
        **{f"first_{c}": placed[c].min() for c in ("device_id", *PLACE)},
        **{f"last_{c}": placed[c].max() for c in ("device_id", *PLACE)},
        **{f"known_{c}": placed[c].count() for c in ("device_id", *PLACE)},
        rows=placed.count(),
    )
