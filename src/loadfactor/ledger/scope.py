"""The scope of an allocation: the GPU, node, pool or fleet that it is known for, and which GPUs keep one book together, when.

An allocation that names its GPU is booked there. One that takes every GPU its node has just then is booked on each of them.
While somebody holds an unnamed GPU of a node, a pool or the fleet, all GPUs of that node, pool or fleet are one scope: its
hours balance, though nobody can say which GPU was whose. All of this is decided instant by instant, so it does not matter in
which pieces the books are worked out. Everything lies inside UTC days, which only keeps the joins small.

Capacity of each scope, instant by instant: how many GPUs, how many of them down, at which mean price.

Only what comes and goes with the fleet is looked at here, not with its holders, so a scope is a few rows a day.
"""

from collections.abc import Sequence

import ibis

from loadfactor.ledger.columns import HOLDER, LOCATION
from loadfactor.ledger.intervals import Expr, covers, cut_at_bounds, intersect, shares_time, unite
from loadfactor.ledger.prices import PRICE_COLUMNS

DAY = "day_utc"
PLACE = ("node", "pool")
"""GPUs may share a scope where these agree."""
OWN = tuple(f"own_{c}" for c in ("device_id", *LOCATION))
CLAIM = (*HOLDER, "job_number", "gpus", DAY)
"""Columns of an allocation cut by the day."""
NUMBERS = "gpu_indices"
"""One more, where any allocation says numbers of GPUs."""


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


def scope_places(locations: Expr, unnamed: Expr | None) -> Expr:
    """The scope of each place (node, pool), cut where it changes: null where every GPU is its own.

    `unnamed`: claims of GPUs that nobody names, None where there are none.

    GPUs of a place share their scope, so it is decided for the place: a node of many GPUs is as little work as one of few.
    """
    keys = [*PLACE, DAY]
    places = unite(locations.select(*keys, "from_utc", "to_utc").distinct(), keys)
    if unnamed is None:
        return places.mutate(scope=ibis.null("string"))
    levels = (
        ([DAY], unnamed.filter(unnamed.node.isnull() & unnamed.pool.isnull())),
        (["pool", DAY], unnamed.filter(unnamed.node.isnull() & unnamed.pool.notnull())),
        (["node", DAY], unnamed.filter(unnamed.node.notnull())),
    )
    joined = []
    for level, (around, rows) in enumerate(levels):
        held = unite(rows.select(*around, "from_utc", "to_utc"), around)
        hit = places.join(held, shares_time(places, held, around))
        joined.append(hit.select(*(places[k] for k in keys), level=ibis.literal(level), **intersect(places, held)))
    hits = ibis.union(*joined)
    pieces = cut_at_bounds([t.select(*keys, "from_utc", "to_utc") for t in (places, hits)], keys)
    there = pieces.semi_join(places, [*is_same_place(pieces, places), *covers(pieces, places, [DAY])])
    out = there.left_join(hits, [*is_same_place(there, hits), *covers(there, hits, [DAY])]).select(there, hits.level)
    out = out.group_by([*keys, "from_utc", "to_utc"]).aggregate(level=out.level.min())
    scope = ibis.cases(
        (out.level == 0, ibis.literal("fleet")),
        (out.level == 1, ibis.literal("pool ") + out.pool),
        (out.level == 2, ibis.literal("node ") + out.node),
    )
    return out.mutate(scope=scope).drop("level")


def is_same_place(left: Expr, right: Expr) -> list[Expr]:
    """The predicates of a join: same node and pool, or neither known."""
    return [left[c].identical_to(right[c]) for c in PLACE]


def name_alone(device_id: Expr) -> Expr:
    """The scope of a GPU that is its own."""
    return ibis.literal("gpu ") + device_id


def scope_claims(claims: Expr, unnamed: Expr | None, locations: Expr, scopes: Expr) -> Expr:
    """Allocations by scope. `own_…` is what the allocation itself knows of its GPU. Held but not installed: not in the books.

    `unnamed`: claims of GPUs that nobody names, None where there are none.
    """
    none = {c: ibis.null("string") for c in OWN}
    keep = [*HOLDER, "inferred", DAY]
    named = claims.filter(claims.device_id.notnull()).select(*keep, "device_id", "gpus", "from_utc", "to_utc")
    columns = [*keep, "gpus", "scope", *OWN, "from_utc", "to_utc"]
    if unnamed is None:
        return _scope_named(named, locations, None).select(*columns)
    levels = [_scope_named(named, locations, scopes)]
    shared = scopes.filter(scopes.scope.notnull())
    for column, rows in (
        ("node", unnamed.filter(unnamed.node.notnull())),
        ("pool", unnamed.filter(unnamed.node.isnull() & unnamed.pool.notnull())),
    ):
        around = _scopes_around(shared.semi_join(rows, [column, DAY]), [column, DAY])
        own = none | {f"own_{column}": rows[column]}
        joined = rows.join(around, shares_time(rows, around, [column, DAY]))
        levels.append(
            joined.select(*(rows[c] for c in (*keep, "gpus")), around.scope, **own, **intersect(rows, around))
        )
    fleet = unnamed.filter(unnamed.node.isnull() & unnamed.pool.isnull())
    levels.append(fleet.select(*keep, "gpus", "from_utc", "to_utc", scope=ibis.literal("fleet"), **none))
    return ibis.union(*(level.select(*columns) for level in levels))


def _scope_named(claims: Expr, locations: Expr, scopes: Expr | None) -> Expr:
    """Allocations that name their GPU, in the scope that this GPU has; `scopes`: None where each is its own."""
    located = claims.join(locations, shares_time(claims, locations, ["device_id", DAY])).select(
        *(claims[c] for c in claims.columns if c not in ("device_id", "gpus", "from_utc", "to_utc")),
        *(locations[c] for c in ("device_id", *LOCATION)),
        gpus=claims.gpus * locations.share,  # all of a seventh of a GPU is a seventh
        **intersect(claims, locations),
    )
    if scopes is None:
        return located.mutate(
            scope=name_alone(located.device_id), **{f"own_{c}": located[c] for c in ("device_id", *LOCATION)}
        )
    located = located.mutate(alone=name_alone(located.device_id))
    scoped = located.join(scopes, [*is_same_place(located, scopes), *shares_time(located, scopes, [DAY])])
    return scoped.select(
        *(located[c] for c in located.columns if c not in ("alone", "device_id", *LOCATION, "from_utc", "to_utc")),
        scope=ibis.coalesce(scopes.scope, located.alone),
        **{f"own_{c}": located[c] for c in ("device_id", *LOCATION)},
        **intersect(located, scopes),
    )


def _scopes_around(scopes: Expr, keys: list[str]) -> Expr:
    """Which scope a node's or a pool's unnamed GPUs belong to, and when."""
    pieces = cut_at_bounds([scopes.select(*keys, "from_utc", "to_utc")], keys)
    joined = pieces.join(scopes, covers(pieces, scopes, keys)).select(pieces, scopes.scope)
    return joined.group_by([*keys, "from_utc", "to_utc"]).aggregate(scope=joined.scope.min())


_COMMON = ("device_id", *LOCATION)
"""Columns that the GPUs of a scope may have in common."""
_MERGED = {"gpus": "sum", "first": "min", "last": "max", "known": "sum", "rows": "sum"}
"""How groups of GPUs that are alike become one."""


def measure_capacity(days: Expr, scopes: Expr | None) -> Expr:
    """Count the GPUs of each scope, instant by instant: `total` GPUs, of them `down`, mean prices, and what they have in common.

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
        by_list=parts.by_list.any(),
        **{c: shared(c) for c in _COMMON},
        **{c: mean_cost(c) for c in PRICE_COLUMNS},
    )


def _group_alike(days: Expr, scopes: Expr | None) -> Expr:
    """The GPUs of each scope, those alike added up. Of GPUs that share a scope each is read once, however often that begins."""
    segment = (DAY, "from_utc", "to_utc", "down", "has_source", "by_list", *PRICE_COLUMNS)
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
    joined = rows.join(scopes, [*is_same_place(rows, scopes), *shares_time(rows, scopes, [DAY])])
    own = (rows[c] for c in rows.columns if c not in ("from_utc", "to_utc"))
    return joined.select(*own, scopes.scope, **intersect(rows, scopes))
