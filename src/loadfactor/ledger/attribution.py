"""Attribution of installed time to holders, the unallocated rest, and what was down: every GPU-second to exactly one of them.

An allocation is booked at the level that is known, its scope: on its GPU, or in its node, its pool or the fleet. Holders never
get more than there is: where shares add up to more than the capacity of the scope, each is scaled down alike. What is held is
not down, even while its node drains.
"""

from typing import Any

import ibis

from loadfactor.ledger.columns import HOLDER
from loadfactor.ledger.intervals import clip, covers, cut_at_bounds, split_by_bucket
from loadfactor.ledger.inventory import LOCATION
from loadfactor.ledger.prices import PRICE_COLUMNS
from loadfactor.ledger.scope import DAY, OWN, spread_whole_nodes
from loadfactor.units import MS_PER_DAY, MS_PER_HOUR

ROUNDING_GPUS = 1e-9  # what is left of a GPU after shares like 1/7 have been added up

Expr = Any


def list_claims(allocations: Expr, locations: Expr, bounds: Expr) -> Expr:
    """Allocations within `bounds` by day, with how many GPUs they take; see `spread_whole_nodes`."""
    rows = clip(allocations, bounds)
    rows = rows.mutate(
        attempt=ibis.coalesce(rows.attempt, 0.0),
        gpus=ibis.coalesce(rows.gpus, 1.0) * ibis.coalesce(rows.share, 1.0),
    ).select(*HOLDER, "device_id", "node", "pool", "gpus", "from_utc", "to_utc")
    return spread_whole_nodes(split_by_bucket(rows, MS_PER_DAY, DAY), locations)


def cut_capacity(capacity: Expr, claims: Expr, cuts: Expr | None = None) -> Expr:
    """The capacity of each scope cut wherever a holder comes or goes, and at `cuts` (at_utc), instants no row may span."""
    keys = ["scope", DAY]
    bounds = [t.select(*keys, "from_utc", "to_utc") for t in (capacity, claims)]
    if cuts is not None:
        inside = capacity.join(cuts, [capacity.from_utc < cuts.at_utc, capacity.to_utc > cuts.at_utc])
        bounds.append(inside.select(*(capacity[k] for k in keys), from_utc=cuts.at_utc, to_utc=cuts.at_utc))
    cut = cut_at_bounds(bounds, keys)
    there = cut.join(capacity, covers(cut, capacity, keys))
    return there.select(cut, *(capacity[c] for c in capacity.columns if c not in (*keys, "from_utc", "to_utc")))


def attribute_time(slices: Expr, claims: Expr) -> Expr:
    """Every GPU-second of the books by holder, each row inside one UTC hour.

    `slices` is the capacity, cut; `claims` the allocations by scope. Columns: holder columns (null where nobody held it),
    device_id (null where only the scope is known), node, accelerator, pool, prices, `gpus` (how many, fractions included), the
    flags `held`, `down`, `has_source` and `free` (a single GPU, no part of it held), hour_utc, from_utc, to_utc, and `span`, a
    number that rows of one stretch of one GPU share.
    """
    keys = ["scope", DAY]
    claimed = slices.join(claims, covers(slices, claims, keys)).select(
        *(slices[c] for c in (*keys, "from_utc")), *(claims[c] for c in (*HOLDER, *OWN, "gpus"))
    )
    at = [*keys, "from_utc"]
    demand = claimed.group_by(at).aggregate(demand=claimed.gpus.sum())
    there = slices.left_join(demand, at).select(slices, demand=ibis.coalesce(demand.demand, 0.0))
    everything = split_by_bucket(ibis.union(_held(claimed, there, at), _rest(there)), MS_PER_HOUR, "hour_utc")
    stretch = ["device_id", "from_utc", "to_utc"]
    within = ibis.window(group_by=everything.hour_utc, order_by=[everything[c] for c in stretch])
    # an hour is 3.6 million ms, so its stretches number between its instant and the next one's
    return everything.mutate(span=everything.hour_utc + ibis.dense_rank().over(within))


def _held(claimed: Expr, there: Expr, at: list[str]) -> Expr:
    """The holders' rows; a scope too small for all is divided in proportion to what each claims."""
    rows = claimed.join(there, at)
    fits = ibis.least(1.0, there.total / there.demand)
    return rows.select(
        *(claimed[c] for c in HOLDER),
        **{c: ibis.coalesce(claimed[f"own_{c}"], there[c]) for c in ("device_id", *LOCATION)},
        **{c: there[c] for c in PRICE_COLUMNS},
        gpus=claimed.gpus * fits,
        held=ibis.literal(True),
        down=ibis.literal(False),
        has_source=there.has_source,
        free=ibis.literal(False),
        from_utc=there.from_utc,
        to_utc=there.to_utc,
    ).filter(lambda t: t.gpus > 0)


def _rest(there: Expr) -> Expr:
    """What nobody held: first what is down, the remainder unallocated."""
    rest = there.total - ibis.least(there.demand, there.total)
    out_of_use = ibis.least(there.down, rest)
    nobody = {c: ibis.null("float64" if c == "attempt" else "string") for c in HOLDER}

    def rows(gpus: Expr, down: bool) -> Expr:
        return there.select(
            **nobody,
            **{c: there[c] for c in ("device_id", *LOCATION, *PRICE_COLUMNS)},
            gpus=gpus,
            held=ibis.literal(False),
            down=ibis.literal(down),
            has_source=there.has_source,
            free=(there.demand == 0) & there.device_id.notnull(),
            from_utc=there.from_utc,
            to_utc=there.to_utc,
        ).filter(lambda t: t.gpus > ROUNDING_GPUS)

    return ibis.union(rows(rest - out_of_use, False), rows(out_of_use, True))
