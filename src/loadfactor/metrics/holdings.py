"""Who held what, when? Installed time divided among holders, the unallocated rest, and what was down: nothing twice, nothing left.

An allocation is booked at the level that is known. One that names its GPU is booked there. One that takes every GPU of a node
is booked on each of them. One that names only a node, a pool or nothing joins all GPUs of that node, pool or fleet into one
*place* for that day: the place's hours balance, though nobody can say which GPU was whose. A place charges its mean price.

Holders never get more than there is: where shares add up to more than the place, each is scaled down alike. What is held is
not down, even while its node drains.
"""

from typing import Any

import ibis

from loadfactor.metrics.installed import PLACE, USD
from loadfactor.metrics.intervals import clipped, covering, elementary, exploded
from loadfactor.units import MS_PER_DAY, MS_PER_HOUR

HOLDER = ("job_id", "attempt", "user", "team", "project", "experiment_id", "purpose")
NOTHING = 1e-9  # what is left of a GPU after shares like 1/7 have been added up

Expr = Any


def holdings(segments: Expr, allocations: Expr, start: Expr, end: Expr, cuts: Expr | None = None) -> Expr:
    """Every GPU-second of [start, end) by holder, each row inside one UTC hour.

    `segments` comes from `installed`; `cuts` (at_utc) are further instants no row may span. Columns: holder columns (null
    where nobody held it), device_id (null where only the place is known), node, accelerator, pool, prices, `gpus` (how many,
    fractions included), `held` and `down` flags, hour_utc, from_utc, to_utc.
    """
    held = _resolved(clipped(allocations, start, end), segments)
    days = exploded(segments, MS_PER_DAY, "day_utc")
    asked = exploded(held, MS_PER_DAY, "day_utc")
    where = _places(days, asked)
    capacity = _capacity(days, where)
    wanted = _placed(asked, where)
    keys = ["place", "day_utc"]
    bounds = [t.select(*keys, "from_utc", "to_utc") for t in (capacity, wanted)]
    if cuts is not None:
        inside = capacity.join(cuts, [capacity.from_utc < cuts.at_utc, capacity.to_utc > cuts.at_utc])
        bounds.append(inside.select(*(capacity[k] for k in keys), from_utc=cuts.at_utc, to_utc=cuts.at_utc))
    pieces = elementary(bounds, keys)
    there = _there(pieces, capacity)
    asking = pieces.join(wanted, covering(pieces, wanted, keys)).select(
        pieces, *(wanted[c] for c in HOLDER), *(wanted[f"own_{c}"] for c in ("device_id", *PLACE)), wanted.gpus
    )
    at = [*keys, "from_utc"]
    demand = asking.group_by(at).aggregate(demand=asking.gpus.sum())
    there = there.left_join(demand, at).select(there, demand=ibis.coalesce(demand.demand, 0.0))
    everything = ibis.union(_held(asking, there, at), _rest(there))
    return exploded(everything, MS_PER_HOUR, "hour_utc")


def _resolved(allocations: Expr, segments: Expr) -> Expr:
    """Allocations with their amounts; one that takes all GPUs of its node becomes one row a GPU."""
    rows = allocations.mutate(
        attempt=ibis.coalesce(allocations.attempt, 0.0),
        gpus=ibis.coalesce(allocations.gpus, 1.0) * ibis.coalesce(allocations.share, 1.0),
    ).select(*HOLDER, "device_id", "node", "pool", "gpus", "from_utc", "to_utc")
    of_node = segments.filter(segments.node.notnull()).select("node", "device_id").distinct()
    sizes = of_node.group_by("node").aggregate(size=of_node.device_id.count().cast("float64"))
    by_node = rows.device_id.isnull() & rows.node.notnull()
    sized = rows.filter(by_node).left_join(sizes, "node")
    sized = sized.select(*rows.columns, whole=ibis.coalesce(sized.gpus == sized.size, False))
    whole, part = sized.filter(sized.whole).drop("whole"), sized.filter(~sized.whole).drop("whole")
    spread = whole.join(of_node, "node").select(
        *HOLDER,
        of_node.device_id,
        whole.node,
        whole.pool,
        gpus=ibis.literal(1.0),
        from_utc=whole.from_utc,
        to_utc=whole.to_utc,
    )
    return ibis.union(rows.filter(~by_node), part, spread)


def _places(days: Expr, asked: Expr) -> Expr:
    """The place of each GPU on each day: itself, unless somebody held an unnamed GPU of its node, its pool or the fleet."""
    unnamed = asked.filter(asked.device_id.isnull())
    fleet = unnamed.filter(unnamed.node.isnull() & unnamed.pool.isnull()).select("day_utc").distinct()
    pools = unnamed.filter(unnamed.node.isnull() & unnamed.pool.notnull()).select("day_utc", "pool").distinct()
    nodes = unnamed.filter(unnamed.node.notnull()).select("day_utc", "node").distinct()
    fleet, pools, nodes = fleet.mutate(by_fleet=True), pools.mutate(by_pool=True), nodes.mutate(by_node=True)
    gpus = days.group_by("device_id", "day_utc").aggregate(**{c: days[c].min() for c in (*PLACE, "share")})
    out = gpus.left_join(fleet, "day_utc").select(gpus, fleet.by_fleet)
    out = out.left_join(pools, ["day_utc", "pool"]).select(out, pools.by_pool)
    out = out.left_join(nodes, ["day_utc", "node"]).select(out, nodes.by_node)
    place = ibis.cases(
        (out.by_fleet.notnull(), "fleet"),
        (out.by_pool.notnull(), ibis.literal("pool ") + out.pool),
        (out.by_node.notnull(), ibis.literal("node ") + out.node),
        else_=ibis.literal("gpu ") + out.device_id,
    )
    return out.select("device_id", "day_utc", *PLACE, "share", place=place)


def _placed(asked: Expr, where: Expr) -> Expr:
    """Allocations by place. `own_…` is what the allocation itself knows of its GPU. Held but never installed: not in the books."""
    none = {f"own_{c}": ibis.null("string") for c in ("device_id", *PLACE)}
    keep = [*HOLDER, "gpus", "from_utc", "to_utc", "day_utc"]
    named = asked.filter(asked.device_id.notnull())
    by_gpu = named.join(where, ["device_id", "day_utc"])
    by_gpu = by_gpu.select(
        *(named[c] for c in keep if c != "gpus"),
        where.place,
        gpus=named.gpus * where.share,  # all of a seventh of a GPU is a seventh
        own_device_id=where.device_id,
        **{f"own_{c}": where[c] for c in PLACE},
    )
    unnamed = asked.filter(asked.device_id.isnull())
    levels = [by_gpu]
    for column, rows in (
        ("node", unnamed.filter(unnamed.node.notnull())),
        ("pool", unnamed.filter(unnamed.node.isnull())),
    ):
        rows = rows.filter(rows[column].notnull())
        places = where.filter(where[column].notnull()).group_by(column, "day_utc").aggregate(place=where.place.min())
        own = none | {f"own_{column}": rows[column]}
        levels.append(rows.join(places, [column, "day_utc"]).select(*(rows[c] for c in keep), places.place, **own))
    fleet = unnamed.filter(unnamed.node.isnull() & unnamed.pool.isnull())
    levels.append(fleet.select(*keep, place=ibis.literal("fleet"), **none))
    columns = [*keep, "place", *none]
    return ibis.union(*(level.select(*columns) for level in levels))


def _capacity(days: Expr, where: Expr) -> Expr:
    """What each place has: GPUs alike are added up, so that a pool of thousands is a handful of rows."""
    placed = days.join(where, ["device_id", "day_utc"]).select(days, where.place)
    keys = ["place", "day_utc", "from_utc", "to_utc", "down", *USD]
    return placed.group_by(keys).aggregate(
        gpus=placed.share.sum(),
        **{f"first_{c}": placed[c].min() for c in ("device_id", *PLACE)},
        **{f"last_{c}": placed[c].max() for c in ("device_id", *PLACE)},
        **{f"known_{c}": placed[c].count() for c in ("device_id", *PLACE)},
        rows=placed.count(),
    )


def _there(pieces: Expr, capacity: Expr) -> Expr:
    """For each piece: how many GPUs, how many of them down, what they cost on average, and what they have in common."""
    keys = ["place", "day_utc"]
    cap = pieces.join(capacity, covering(pieces, capacity, keys)).select(
        pieces, *(capacity[c] for c in capacity.columns if c not in (*keys, "from_utc", "to_utc"))
    )

    def common(column: str) -> Expr:
        first, last = cap[f"first_{column}"].min(), cap[f"last_{column}"].max()
        return ibis.ifelse((first == last) & (cap[f"known_{column}"].sum() == cap.rows.sum()), first, None)

    def mean_usd(column: str) -> Expr:
        usd = cap[column]
        mean = ibis.ifelse(usd.min() == usd.max(), usd.min(), (usd * cap.gpus).sum() / cap.gpus.sum())
        return ibis.ifelse(usd.count() < cap.count(), None, mean)  # one price unknown: the mean is unknown

    return cap.group_by([*keys, "from_utc", "to_utc"]).aggregate(
        total=cap.gpus.sum(),
        broken=ibis.coalesce(cap.gpus.sum(where=cap.down), 0.0),
        **{c: common(c) for c in ("device_id", *PLACE)},
        **{c: mean_usd(c) for c in USD},
    )


def _held(asking: Expr, there: Expr, at: list[str]) -> Expr:
    """The holders' rows; a place too small for all is divided in proportion to what each asked for."""
    rows = asking.join(there, at)
    fits = ibis.least(1.0, there.total / there.demand)
    return rows.select(
        *(asking[c] for c in HOLDER),
        **{c: ibis.coalesce(asking[f"own_{c}"], there[c]) for c in ("device_id", *PLACE)},
        **{c: there[c] for c in USD},
        gpus=asking.gpus * fits,
        held=ibis.literal(True),
        down=ibis.literal(False),
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
            **{c: there[c] for c in ("device_id", *PLACE, *USD)},
            gpus=gpus,
            held=ibis.literal(False),
            down=ibis.literal(down),
            from_utc=there.from_utc,
            to_utc=there.to_utc,
        ).filter(lambda t: t.gpus > NOTHING)

    return ibis.union(rows(rest - broken, False), rows(broken, True))
