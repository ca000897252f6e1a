"""The scope of an allocation: the GPU, node, pool or fleet that it is known for, and which GPUs keep one book together, when.

An allocation that names its GPU is booked there. One that takes every GPU its node has just then is booked on each of them.
While somebody holds an unnamed GPU of a node, a pool or the fleet, all GPUs of that node, pool or fleet are one scope: its
hours balance, though nobody can say which GPU was whose. All of this is decided instant by instant, so it does not matter in
which pieces the books are worked out. Everything lies inside UTC days, which only keeps the joins small.
"""

from typing import Any

import ibis

from loadfactor.ledger.columns import HOLDER
from loadfactor.ledger.intervals import covers, cut_at_bounds, intersect, shares_time, unite
from loadfactor.ledger.inventory import LOCATION

DAY = "day_utc"
OWN = tuple(f"own_{c}" for c in ("device_id", *LOCATION))
CLAIM = (*HOLDER, "job_number", "gpus", DAY)
"""Columns of an allocation cut by the day."""
NUMBERS = "gpu_indices"
"""One more, where any allocation says numbers of GPUs."""

Expr = Any


def locate_devices(days: Expr) -> Expr:
    """When each GPU was where: the segments of a day without prices and outages."""
    keys = ["device_id", DAY, *LOCATION, "share"]
    return unite(days.select(*keys, "from_utc", "to_utc"), keys)


def spread_whole_nodes(claims: Expr, locations: Expr) -> Expr:
    """Allocations cut by the day; while one takes all GPUs its node has, it becomes one row a GPU."""
    keys = ["node", DAY]
    of_node = locations.filter(locations.node.notnull())
    pieces = cut_at_bounds([of_node.select(*keys, "from_utc", "to_utc")], keys)
    sizes = pieces.join(of_node, covers(pieces, of_node, keys)).select(pieces, of_node.device_id)
    sizes = sizes.group_by([*keys, "from_utc", "to_utc"]).aggregate(size=sizes.count().cast("float64"))
    carried = list_carried(claims)
    columns = [*carried, "device_id", "node", "pool"]
    by_node = claims.filter(claims.device_id.isnull() & claims.node.notnull())
    sized = by_node.join(sizes, shares_time(by_node, sizes, keys)).select(
        *(by_node[c] for c in columns), sizes.size, **intersect(by_node, sizes)
    )
    whole, part = sized.filter(sized.gpus == sized.size), sized.filter(sized.gpus != sized.size)
    spread = whole.join(of_node, shares_time(whole, of_node, keys)).select(
        *(whole[c] for c in carried if c != "gpus"),
        of_node.device_id,
        whole.node,
        whole.pool,
        gpus=ibis.literal(1.0),
        **intersect(whole, of_node),
    )
    others = claims.filter(claims.device_id.notnull() | claims.node.isnull())
    columns += ["from_utc", "to_utc"]
    return ibis.union(*(rows.select(*columns) for rows in (others, part, spread)))


def list_carried(claims: Expr) -> tuple[str, ...]:
    """Columns of CLAIM, and NUMBERS where these claims have them."""
    return (*CLAIM, NUMBERS) if NUMBERS in claims.columns else CLAIM


def scope_devices(locations: Expr, claims: Expr) -> Expr:
    """The locations with the scope of the GPU, cut where it changes: itself, unless somebody holds an unnamed GPU around it."""
    unnamed = claims.filter(claims.device_id.isnull())
    levels = (
        ([DAY], unnamed.filter(unnamed.node.isnull() & unnamed.pool.isnull())),
        (["pool", DAY], unnamed.filter(unnamed.node.isnull() & unnamed.pool.notnull())),
        (["node", DAY], unnamed.filter(unnamed.node.notnull())),
    )
    joined = []
    for level, (keys, rows) in enumerate(levels):
        held = unite(rows.select(*keys, "from_utc", "to_utc"), keys)
        hit = locations.join(held, shares_time(locations, held, keys))
        joined.append(
            hit.select(locations.device_id, locations[DAY], level=ibis.literal(level), **intersect(locations, held))
        )
    hits = ibis.union(*joined)
    keys = ["device_id", DAY]
    pieces = cut_at_bounds([t.select(*keys, "from_utc", "to_utc") for t in (locations, hits)], keys)
    levelled = pieces.left_join(hits, covers(pieces, hits, keys)).select(pieces, hits.level)
    levelled = levelled.group_by([*keys, "from_utc", "to_utc"]).aggregate(level=levelled.level.min())
    out = levelled.join(locations, covers(levelled, locations, keys)).select(
        levelled, *(locations[c] for c in (*LOCATION, "share"))
    )
    scope = ibis.cases(
        (out.level == 0, ibis.literal("fleet")),
        (out.level == 1, ibis.literal("pool ") + out.pool),
        (out.level == 2, ibis.literal("node ") + out.node),
        else_=ibis.literal("gpu ") + out.device_id,
    )
    return out.mutate(scope=scope).drop("level")


def scope_claims(claims: Expr, scopes: Expr) -> Expr:
    """Allocations by scope. `own_…` is what the allocation itself knows of its GPU. Held but not installed: not in the books."""
    none = {c: ibis.null("string") for c in OWN}
    keep = [*HOLDER, "inferred", DAY]
    named = claims.filter(claims.device_id.notnull())
    levels = [
        named.join(scopes, shares_time(named, scopes, ["device_id", DAY])).select(
            *(named[c] for c in keep),
            scopes.scope,
            gpus=named.gpus * scopes.share,  # all of a seventh of a GPU is a seventh
            **{f"own_{c}": scopes[c] for c in ("device_id", *LOCATION)},
            **intersect(named, scopes),
        )
    ]
    unnamed = claims.filter(claims.device_id.isnull())
    for column, rows in (
        ("node", unnamed.filter(unnamed.node.notnull())),
        ("pool", unnamed.filter(unnamed.node.isnull() & unnamed.pool.notnull())),
    ):
        around = _scopes_around(scopes.semi_join(rows, [column, DAY]), [column, DAY])
        own = none | {f"own_{column}": rows[column]}
        joined = rows.join(around, shares_time(rows, around, [column, DAY]))
        levels.append(
            joined.select(*(rows[c] for c in (*keep, "gpus")), around.scope, **own, **intersect(rows, around))
        )
    fleet = unnamed.filter(unnamed.node.isnull() & unnamed.pool.isnull())
    levels.append(fleet.select(*keep, "gpus", "from_utc", "to_utc", scope=ibis.literal("fleet"), **none))
    columns = [*keep, "gpus", "scope", *OWN, "from_utc", "to_utc"]
    return ibis.union(*(level.select(*columns) for level in levels))


def _scopes_around(scopes: Expr, keys: list[str]) -> Expr:
    """Which scope a node's or a pool's unnamed GPUs belong to, and when."""
    pieces = cut_at_bounds([scopes.select(*keys, "from_utc", "to_utc")], keys)
    joined = pieces.join(scopes, covers(pieces, scopes, keys)).select(pieces, scopes.scope)
    return joined.group_by([*keys, "from_utc", "to_utc"]).aggregate(scope=joined.scope.min())
