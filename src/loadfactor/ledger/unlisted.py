"""GPUs that nobody lists one by one: those that a scheduler counts, and those that allocations show to be there.

Three things may say which GPUs a node has, and they describe the same machines, so they are never added up. What lists GPUs (an
exporter, an inventory) counts. GPUs that a scheduler knows by their number alone (`node:gpu0`) count beyond those that are listed
just then. On a node of which nothing is listed just then, there are as many as jobs ever held at once, since the first of them,
until a list says that the last one ended (what a log merely saw ends with the log).
Whether more are there, or what these do between jobs, nobody knows: no allocation source speaks of what is estimated, so what is
not held of it has an unknown holder.
"""

from typing import Any

import ibis

from loadfactor.ledger.columns import NUMBERED
from loadfactor.ledger.intervals import covers, cut_at_bounds, open_ends, unite
from loadfactor.ledger.labels import ROUNDING_GPUS
from loadfactor.tables.schema import ALWAYS, LIST

_KEY = ("place",)
_COLUMNS = ("device_id", "node", "accelerator", "pool", "share", "from_utc", "to_utc", "estimated")

Expr = Any


def complete_devices(devices: Expr, unlisted: Expr) -> Expr:
    """The device list without GPUs that two sides list, and with those that nobody lists, marked by `estimated`.

    `unlisted` as `count_unlisted`. All columns of a device, from_utc and to_utc filled in.
    """
    rows = open_ends(devices).mutate(estimated=ibis.literal(False))
    by_number = ibis.coalesce(rows.device_id.startswith(rows.node + ibis.literal(NUMBERED)), False)
    named = rows.filter(~by_number).select(*_COLUMNS)
    listed = named.union(_list_beyond(rows.filter(by_number), named))
    return listed.union(_list_estimated(unlisted, listed))


def list_devices(devices: Expr) -> Expr:
    """The same where every GPU is listed, and none by its number alone."""
    return open_ends(devices).mutate(estimated=ibis.literal(False)).select(*_COLUMNS)


def count_unlisted(allocations: Expr, devices: Expr) -> Expr:
    """How many GPUs jobs held at once where they name no GPU, at most: node, pool, most, from_utc (of the first of them), to_utc.

    Where a list says that the last GPU of a place ended, that ends what is estimated there; jobs that begin later are counted anew.
    Not of nodes, pools and fleets of which something is listed for ever since before.
    """
    rows = open_ends(allocations)
    rows = rows.filter(rows.device_id.isnull()).mutate(
        amount=ibis.coalesce(rows.gpus, 1.0) * ibis.coalesce(rows.share, 1.0),
        pool=ibis.ifelse(rows.node.isnull(), rows.pool, None),
    )
    rows = rows.mutate(place=_name_place(rows))
    listed = open_ends(devices.filter(devices.known_from == LIST))
    ends = _list_ends(rows.select("place", "node", "pool").distinct(), listed)
    rows = rows.select("node", "pool", "place", "amount", "from_utc", "to_utc")
    ended = rows.place.isin(ends.place)
    begun = rows.filter(ended).select("place", "from_utc").distinct()
    later = begun.join(ends, [begun.place == ends.place, begun.from_utc >= ends.from_utc, begun.from_utc < ends.to_utc])
    later = later.select(begun.place, begun.from_utc, since=ends.from_utc, until=ends.to_utc)
    cut = rows.filter(ended).join(later, ["place", "from_utc"]).select(rows, later.since, later.until)
    whole = rows.filter(~ended).mutate(since=ibis.literal(ALWAYS[0], "int64"), until=ibis.literal(ALWAYS[1], "int64"))
    rows = ibis.union(whole, cut)
    keys = ["node", "pool", "since", "until"]
    changes = ibis.union(
        rows.select(*keys, at_utc=rows.from_utc, change=rows.amount),
        rows.select(*keys, at_utc=rows.to_utc, change=-rows.amount),
    )
    changes = changes.group_by([*keys, "at_utc"]).aggregate(change=changes.change.sum())
    running = ibis.cumulative_window(group_by=keys, order_by=changes.at_utc)
    held = changes.mutate(held=changes.change.sum().over(running))
    out = held.group_by(keys).aggregate(held=held.held.max(), from_utc=held.at_utc.min())
    most = (out.held - ROUNDING_GPUS).ceil().cast("int64")
    out = out.select("node", "pool", most=most, from_utc=out.from_utc, to_utc=out.until)
    staying = devices.filter(devices.to_utc.isnull())
    staying = staying.mutate(since=ibis.coalesce(staying.from_utc, ALWAYS[0]))
    by_node = staying.group_by("node").aggregate(since=staying.since.min())
    by_pool = staying.group_by("pool").aggregate(since=staying.since.min())
    out = out.anti_join(by_node, [out.node == by_node.node, out.from_utc >= by_node.since])
    in_pool = (out.pool == by_pool.pool) | by_pool.pool.isnull() | out.pool.isnull()
    return out.anti_join(by_pool, [out.node.isnull(), in_pool, out.from_utc >= by_pool.since])


def _name_place(rows: Expr) -> Expr:
    """What jobs name: a node, a pool or nothing but the fleet."""
    return ibis.coalesce(rows.node, ibis.literal("pool ") + rows.pool, ibis.literal("fleet"))


def _list_ends(places: Expr, listed: Expr) -> Expr:
    """The times between which lists say that the last GPU of a place ended, of places where one did: place, from_utc, to_utc."""
    there = _list_taken(places, listed)
    ends = there.filter(there.to_utc < ALWAYS[1]).select("place", at_utc=there.to_utc)
    always = [ends.select("place", at_utc=ibis.literal(at, "int64")) for at in ALWAYS]
    points = ibis.union(ends, *always, distinct=True)
    window = ibis.window(group_by="place", order_by=points.at_utc)
    spans = points.select("place", from_utc=points.at_utc, to_utc=points.at_utc.lead().over(window))
    return spans.filter(spans.to_utc.notnull())


def _list_taken(places: Expr, listed: Expr) -> Expr:
    """When something is listed of each place: place, from_utc, to_utc."""
    spans = listed.select("node", "pool", "from_utc", "to_utc")
    by_node, by_pool = unite(spans.drop("pool"), ["node"]), unite(spans.drop("node"), ["pool"])
    of_node, of_pool = places.filter(places.node.notnull()), places.filter(places.node.isnull() & places.pool.notnull())
    nowhere = places.filter(places.node.isnull() & places.pool.isnull())
    around = [
        of_node.join(by_node, of_node.node == by_node.node).select(of_node.place, by_node.from_utc, by_node.to_utc),
        of_pool.join(by_pool, (of_pool.pool == by_pool.pool) | by_pool.pool.isnull()).select(
            of_pool.place, by_pool.from_utc, by_pool.to_utc
        ),
        nowhere.cross_join(by_pool).select(nowhere.place, by_pool.from_utc, by_pool.to_utc),
    ]
    return unite(ibis.union(*around), ["place"])


def _list_beyond(numbered: Expr, named: Expr) -> Expr:
    """GPUs known by number, while their number is beyond what is listed by name on their node."""
    on_node = named.semi_join(numbered, "node").mutate(share=ibis.coalesce(named.share, 1.0))
    keys = ["node"]
    pieces = cut_at_bounds([t.select(*keys, "from_utc", "to_utc") for t in (on_node, numbered)], keys)
    counted = pieces.left_join(on_node, covers(pieces, on_node, keys)).select(pieces, on_node.share)
    counted = counted.group_by([*keys, "from_utc", "to_utc"]).aggregate(there=ibis.coalesce(counted.share.sum(), 0.0))
    cut = counted.join(numbered, covers(counted, numbered, keys)).select(
        *(counted[c] if c in ("from_utc", "to_utc") else numbered[c] for c in _COLUMNS), counted.there
    )
    number = cut.device_id.substr(cut.node.length() + len(NUMBERED)).try_cast("int64").cast("float64")
    kept = cut.filter(ibis.coalesce(number, 0.0) >= cut.there - ROUNDING_GPUS)
    return unite(kept.select(*_COLUMNS), [c for c in _COLUMNS if c not in ("from_utc", "to_utc")]).select(*_COLUMNS)


def _list_estimated(unlisted: Expr, listed: Expr) -> Expr:
    """The GPUs that nobody lists, while nothing is listed of their node, of their pool or at all."""
    there = unlisted.mutate(place=_name_place(unlisted))
    taken = _list_taken(there.select("place", "node", "pool").distinct(), listed)
    pieces = cut_at_bounds([t.select(*_KEY, "from_utc", "to_utc") for t in (there, taken)], _KEY)
    free = pieces.join(there, covers(pieces, there, ["place"])).select(pieces, there.node, there.pool, there.most)
    free = free.anti_join(taken, covers(free, taken, _KEY))
    each = free.mutate(number=ibis.range(0, free.most).unnest())
    nothing = {"accelerator": ibis.null("string"), "share": ibis.null("float64"), "estimated": ibis.literal(True)}
    own = {"device_id": each.place + ibis.literal(NUMBERED) + each.number.cast("string"), **nothing}
    return each.mutate(**own).select(*_COLUMNS)
