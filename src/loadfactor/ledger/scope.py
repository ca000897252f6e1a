"""Whose seat was it, where only the node, the pool or the fleet is known? Which GPUs keep one book together, and when.

An allocation that names its GPU is booked there. One that takes every GPU its node has just then is booked on each of them.
While somebody holds an unnamed GPU of a node, a pool or the fleet, all GPUs of that node, pool or fleet are one *place*: its
hours balance, though nobody can say which GPU was whose. All of this is decided instant by instant, so it does not matter in
which pieces the books are worked out. Everything lies inside UTC days, which only keeps the joins small.
"""

from typing import Any

import ibis

from loadfactor.ledger.holders import HOLDER
from loadfactor.ledger.intervals import common, covering, elementary, islands, overlapping
from loadfactor.ledger.inventory import PLACE

DAY = "day_utc"
OWN = tuple(f"own_{c}" for c in ("device_id", *PLACE))
_ASKED = (*HOLDER, "gpus", DAY)

Expr = Any


def stays(days: Expr) -> Expr:
    """When each GPU was where: the segments of a day with prices and outages forgotten."""
    keys = ["device_id", DAY, *PLACE, "share"]
    return islands(days.select(*keys, "from_utc", "to_utc"), keys)


def resolved(asked: Expr, stays: Expr) -> Expr:
    """Allocations cut by the day; while one takes all GPUs its node has, it becomes one row a GPU."""
    keys = ["node", DAY]
    of_node = stays.filter(stays.node.notnull())
    pieces = elementary([of_node.select(*keys, "from_utc", "to_utc")], keys)
    sizes = pieces.join(of_node, covering(pieces, of_node, keys)).select(pieces, of_node.device_id)
    sizes = sizes.group_by([*keys, "from_utc", "to_utc"]).aggregate(size=sizes.count().cast("float64"))
    columns = [*_ASKED, "device_id", "node", "pool"]
    by_node = asked.filter(asked.device_id.isnull() & asked.node.notnull())
    sized = by_node.join(sizes, overlapping(by_node, sizes, keys)).select(
        *(by_node[c] for c in columns), sizes.size, **common(by_node, sizes)
    )
    whole, part = sized.filter(sized.gpus == sized.size), sized.filter(sized.gpus != sized.size)
    spread = whole.join(of_node, overlapping(whole, of_node, keys)).select(
        *(whole[c] for c in (*HOLDER, DAY)),
        of_node.device_id,
        whole.node,
        whole.pool,
        gpus=ibis.literal(1.0),
        **common(whole, of_node),
    )
    others = asked.filter(asked.device_id.notnull() | asked.node.isnull())
    columns += ["from_utc", "to_utc"]
    return ibis.union(*(rows.select(*columns) for rows in (others, part, spread)))


def places(stays: Expr, asked: Expr) -> Expr:
    """The stays with the place of the GPU, cut where it changes: itself, unless somebody holds an unnamed GPU around it."""
    unnamed = asked.filter(asked.device_id.isnull())
    levels = (
        ([DAY], unnamed.filter(unnamed.node.isnull() & unnamed.pool.isnull())),
        (["pool", DAY], unnamed.filter(unnamed.node.isnull() & unnamed.pool.notnull())),
        (["node", DAY], unnamed.filter(unnamed.node.notnull())),
    )
    joined = []
    for level, (keys, rows) in enumerate(levels):
        busy = islands(rows.select(*keys, "from_utc", "to_utc"), keys)
        hit = stays.join(busy, overlapping(stays, busy, keys))
        joined.append(hit.select(stays.device_id, stays[DAY], level=ibis.literal(level), **common(stays, busy)))
    hits = ibis.union(*joined)
    keys = ["device_id", DAY]
    pieces = elementary([t.select(*keys, "from_utc", "to_utc") for t in (stays, hits)], keys)
    levelled = pieces.left_join(hits, covering(pieces, hits, keys)).select(pieces, hits.level)
    levelled = levelled.group_by([*keys, "from_utc", "to_utc"]).aggregate(level=levelled.level.min())
    out = levelled.join(stays, covering(levelled, stays, keys)).select(levelled, *(stays[c] for c in (*PLACE, "share")))
    place = ibis.cases(
        (out.level == 0, ibis.literal("fleet")),
        (out.level == 1, ibis.literal("pool ") + out.pool),
        (out.level == 2, ibis.literal("node ") + out.node),
        else_=ibis.literal("gpu ") + out.device_id,
    )
    return out.mutate(place=place).drop("level")


def placed(asked: Expr, where: Expr) -> Expr:
    """Allocations by place. `own_…` is what the allocation itself knows of its GPU. Held but not installed: not in the books."""
    none = {c: ibis.null("string") for c in OWN}
    keep = [*HOLDER, DAY]
    named = asked.filter(asked.device_id.notnull())
    levels = [
        named.join(where, overlapping(named, where, ["device_id", DAY])).select(
            *(named[c] for c in keep),
            where.place,
            gpus=named.gpus * where.share,  # all of a seventh of a GPU is a seventh
            **{f"own_{c}": where[c] for c in ("device_id", *PLACE)},
            **common(named, where),
        )
    ]
    unnamed = asked.filter(asked.device_id.isnull())
    for column, rows in (
        ("node", unnamed.filter(unnamed.node.notnull())),
        ("pool", unnamed.filter(unnamed.node.isnull() & unnamed.pool.notnull())),
    ):
        around = _around(where.semi_join(rows, [column, DAY]), [column, DAY])
        own = none | {f"own_{column}": rows[column]}
        joined = rows.join(around, overlapping(rows, around, [column, DAY]))
        levels.append(joined.select(*(rows[c] for c in (*keep, "gpus")), around.place, **own, **common(rows, around)))
    fleet = unnamed.filter(unnamed.node.isnull() & unnamed.pool.isnull())
    levels.append(fleet.select(*keep, "gpus", "from_utc", "to_utc", place=ibis.literal("fleet"), **none))
    columns = [*keep, "gpus", "place", *OWN, "from_utc", "to_utc"]
    return ibis.union(*(level.select(*columns) for level in levels))


def _around(where: Expr, keys: list[str]) -> Expr:
    """Which place a node's or a pool's unnamed GPUs belong to, and when."""
    pieces = elementary([where.select(*keys, "from_utc", "to_utc")], keys)
    joined = pieces.join(where, covering(pieces, where, keys)).select(pieces, where.place)
    return joined.group_by([*keys, "from_utc", "to_utc"]).aggregate(place=joined.place.min())
