"""Who held what, when? Installed time divided among holders, the unallocated rest, and what was down: nothing twice, nothing left.

An allocation is booked at the level that is known (`places` says which GPUs keep one book together): on its GPU, or in the
place of its node, its pool or the fleet. `room` says what each place has.

Holders never get more than there is: where shares add up to more than the place, each is scaled down alike. What is held is
not down, even while its node drains.
"""

from typing import Any

import ibis

from loadfactor.ledger.holders import HOLDER
from loadfactor.ledger.intervals import clipped, covering, elementary, exploded
from loadfactor.ledger.inventory import PLACE
from loadfactor.ledger.prices import PRICE_COLUMNS
from loadfactor.ledger.scope import DAY, OWN, resolved
from loadfactor.units import MS_PER_DAY, MS_PER_HOUR

NOTHING = 1e-9  # what is left of a GPU after shares like 1/7 have been added up

Expr = Any


def asked(allocations: Expr, stays: Expr, bounds: Expr) -> Expr:
    """Allocations within `bounds` by day, with how many GPUs they take; see `places.resolved`."""
    rows = clipped(allocations, bounds)
    rows = rows.mutate(
        attempt=ibis.coalesce(rows.attempt, 0.0),
        gpus=ibis.coalesce(rows.gpus, 1.0) * ibis.coalesce(rows.share, 1.0),
    ).select(*HOLDER, "device_id", "node", "pool", "gpus", "from_utc", "to_utc")
    return resolved(exploded(rows, MS_PER_DAY, DAY), stays)


def pieces(room: Expr, wanted: Expr, cuts: Expr | None = None) -> Expr:
    """The room of each place cut wherever a holder comes or goes, and at `cuts` (at_utc), further instants no row may span."""
    keys = ["place", DAY]
    bounds = [t.select(*keys, "from_utc", "to_utc") for t in (room, wanted)]
    if cuts is not None:
        inside = room.join(cuts, [room.from_utc < cuts.at_utc, room.to_utc > cuts.at_utc])
        bounds.append(inside.select(*(room[k] for k in keys), from_utc=cuts.at_utc, to_utc=cuts.at_utc))
    cut = elementary(bounds, keys)
    there = cut.join(room, covering(cut, room, keys))
    return there.select(cut, *(room[c] for c in room.columns if c not in (*keys, "from_utc", "to_utc")))


def holdings(pieces: Expr, wanted: Expr) -> Expr:
    """Every GPU-second of the books by holder, each row inside one UTC hour.

    `pieces` is the room there is, `wanted` the allocations by place (`places.placed`). Columns: holder columns (null where
    nobody held it), device_id (null where only the place is known), node, accelerator, pool, prices, `gpus` (how many,
    fractions included), the flags `held`, `down`, `has_source` and `free` (a single GPU, no part of it held), hour_utc,
    from_utc, to_utc, and `span`, a number that rows of one stretch of one GPU share.
    """
    keys = ["place", DAY]
    asking = pieces.join(wanted, covering(pieces, wanted, keys)).select(
        *(pieces[c] for c in (*keys, "from_utc")), *(wanted[c] for c in (*HOLDER, *OWN, "gpus"))
    )
    at = [*keys, "from_utc"]
    demand = asking.group_by(at).aggregate(demand=asking.gpus.sum())
    there = pieces.left_join(demand, at).select(pieces, demand=ibis.coalesce(demand.demand, 0.0))
    everything = exploded(ibis.union(_held(asking, there, at), _rest(there)), MS_PER_HOUR, "hour_utc")
    stretch = ["device_id", "from_utc", "to_utc"]
    within = ibis.window(group_by=everything.hour_utc, order_by=[everything[c] for c in stretch])
    # an hour is 3.6 million ms, so its stretches number between its instant and the next one's
    return everything.mutate(span=everything.hour_utc + ibis.dense_rank().over(within))


def _held(asking: Expr, there: Expr, at: list[str]) -> Expr:
    """The holders' rows; a place too small for all is divided in proportion to what each asked for."""
    rows = asking.join(there, at)
    fits = ibis.least(1.0, there.total / there.demand)
    return rows.select(
        *(asking[c] for c in HOLDER),
        **{c: ibis.coalesce(asking[f"own_{c}"], there[c]) for c in ("device_id", *PLACE)},
        **{c: there[c] for c in PRICE_COLUMNS},
        gpus=asking.gpus * fits,
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
    broken = ibis.least(there.broken, rest)
    nobody = {c: ibis.null("float64" if c == "attempt" else "string") for c in HOLDER}

    def rows(gpus: Expr, down: bool) -> Expr:
        return there.select(
            **nobody,
            **{c: there[c] for c in ("device_id", *PLACE, *PRICE_COLUMNS)},
            gpus=gpus,
            held=ibis.literal(False),
            down=ibis.literal(down),
            has_source=there.has_source,
            free=(there.demand == 0) & there.device_id.notnull(),
            from_utc=there.from_utc,
            to_utc=there.to_utc,
        ).filter(lambda t: t.gpus > NOTHING)

    return ibis.union(rows(rest - broken, False), rows(broken, True))
