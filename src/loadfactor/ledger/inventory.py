"""GPUs installed over time, their outages and hourly prices: each GPU's time, cut where any of this changes.

One name for a node that some call by its short name and others with its domain: n1 and n1.cluster.local.

Who is reported to hold a GPU: somebody, nobody, or nobody says.

An allocation source speaks of a GPU when any allocation of the store, whenever it was, names that GPU, another one of its node,
its node, its pool or the whole fleet (an allocation that names nothing). Where one speaks, a GPU that no allocation covers is
held by nobody, unless it works. Where none speaks, nobody can say who holds it: its holder is unknown.

GPUs that nobody lists one by one: those that a scheduler counts, and those that allocations show to be there.

Three things may say which GPUs a node has, and they describe the same machines, so they are never added up. What lists GPUs (an
exporter, an inventory) counts. GPUs that a scheduler knows by their number alone (`node:gpu0`) count beyond those that are listed
just then. On a node of which nothing is listed just then, there are as many as jobs ever held at once, since the first of them,
until a list says that the last one ended (what a log merely saw ends with the log).
Whether more are there, or what these do between jobs, nobody knows: no allocation source speaks of what is estimated, so what is
not held of it has an unknown holder.
"""

import ibis

from loadfactor.base.limits import MOST_ESTIMATED_GPUS
from loadfactor.ledger.columns import LOCATION, ROUNDING_GPUS
from loadfactor.ledger.intervals import Expr, clip, covers, cut_at_bounds, intersect, open_ends, unite
from loadfactor.ledger.labels import is_listed
from loadfactor.ledger.prices import PRICE_COLUMNS, choose_prices
from loadfactor.tables.schema import ALWAYS, LIST, NUMBERED, SCHEDULED

_KEY = ("place",)
_DEVICE = ("device_id", "node", "accelerator", "pool", "share", "from_utc", "to_utc", "estimated")


def complete_devices(devices: Expr, unlisted: Expr) -> Expr:
    """The device list without GPUs that two sides list, and with those that nobody lists, marked by `estimated`.

    `unlisted` as `count_unlisted`. All columns of a device, from_utc and to_utc filled in.
    """
    rows = open_ends(devices).mutate(estimated=ibis.literal(False))
    by_number = ibis.coalesce(rows.device_id.startswith(rows.node + ibis.literal(NUMBERED)), False)
    named = rows.filter(~by_number).select(*_DEVICE)
    listed = named.union(_list_beyond(rows.filter(by_number), named))
    return listed.union(_list_estimated(unlisted, listed))


def list_devices(devices: Expr) -> Expr:
    """The same where every GPU is listed, and none by its number alone."""
    return open_ends(devices).mutate(estimated=ibis.literal(False)).select(*_DEVICE)


def count_unlisted(allocations: Expr, devices: Expr) -> Expr:
    """How many GPUs jobs held at once where they name no GPU, at most.

    Columns: node, pool, accelerator, held, most, from_utc (of the first), to_utc. `accelerator` is the model where those jobs name
    one alone; `held` is what they say; `most` of it is counted: at most `MOST_ESTIMATED_GPUS` in all, the smallest places first.
    Where a list says that the last GPU of a place ended, that ends what is estimated there; jobs that begin later are counted anew.
    Not of nodes, pools and fleets of which something is listed for ever since before.
    """
    rows = open_ends(allocations)
    rows = rows.filter(rows.device_id.isnull(), takes_gpus(rows)).mutate(
        amount=ibis.coalesce(rows.gpus, 1.0) * ibis.coalesce(rows.share, 1.0),
        pool=ibis.ifelse(rows.node.isnull(), rows.pool, None),
    )
    rows = rows.mutate(place=_name_place(rows))
    listed = open_ends(devices.filter(devices.known_from == LIST))
    ends = _list_ends(rows.select("place", "node", "pool").distinct(), listed)
    rows = rows.select("node", "pool", "accelerator", "place", "amount", "from_utc", "to_utc")
    ended = rows.place.isin(ends.place)
    begun = rows.filter(ended).select("place", "from_utc").distinct()
    later = begun.join(ends, [begun.place == ends.place, begun.from_utc >= ends.from_utc, begun.from_utc < ends.to_utc])
    later = later.select(begun.place, begun.from_utc, since=ends.from_utc, until=ends.to_utc)
    cut = rows.filter(ended).join(later, ["place", "from_utc"]).select(rows, later.since, later.until)
    whole = rows.filter(~ended).mutate(since=ibis.literal(ALWAYS[0], "int64"), until=ibis.literal(ALWAYS[1], "int64"))
    rows = ibis.union(whole, cut)
    keys = ["node", "pool", "since", "until"]
    changes = ibis.union(
        rows.select(*keys, "accelerator", at_utc=rows.from_utc, change=rows.amount),
        rows.select(*keys, "accelerator", at_utc=rows.to_utc, change=-rows.amount),
    )
    model = changes.accelerator
    models = {"first_model": model.min(), "last_model": model.max()}
    changes = changes.group_by([*keys, "at_utc"]).aggregate(change=changes.change.sum(), **models)
    running = ibis.cumulative_window(group_by=keys, order_by=changes.at_utc)
    held = changes.mutate(held=changes.change.sum().over(running))
    models = {"first_model": held.first_model.min(), "last_model": held.last_model.max()}
    out = held.group_by(keys).aggregate(held=held.held.max(), from_utc=held.at_utc.min(), **models)
    whole = (out.held - ROUNDING_GPUS).ceil().cast("int64")
    only = ibis.ifelse(out.first_model == out.last_model, out.first_model, ibis.null("string"))
    out = out.select("node", "pool", accelerator=only, held=whole, from_utc=out.from_utc, to_utc=out.until)
    staying = devices.filter(devices.to_utc.isnull())
    staying = staying.mutate(since=ibis.coalesce(staying.from_utc, ALWAYS[0]))
    by_node = staying.group_by("node").aggregate(since=staying.since.min())
    by_pool = staying.group_by("pool").aggregate(since=staying.since.min())
    out = out.anti_join(by_node, [out.node == by_node.node, out.from_utc >= by_node.since])
    in_pool = (out.pool == by_pool.pool) | by_pool.pool.isnull() | out.pool.isnull()
    out = out.anti_join(by_pool, [out.node.isnull(), in_pool, out.from_utc >= by_pool.since])
    smallest_first = ibis.cumulative_window(order_by=["held", "node", "pool", "from_utc", "to_utc"])
    left = MOST_ESTIMATED_GPUS + out.held - out.held.cast("float64").sum().over(smallest_first)
    return out.mutate(most=ibis.greatest(0.0, ibis.least(out.held, left)).cast("int64"))


def takes_gpus(rows: Expr) -> Expr:
    """False of a run that knows of no GPU of its own: it says who works, not where."""
    return ibis.coalesce(rows.gpus, 1.0) > 0


def _name_place(rows: Expr) -> Expr:
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
        *(counted[c] if c in ("from_utc", "to_utc") else numbered[c] for c in _DEVICE), counted.there
    )
    number = cut.device_id.substr(cut.node.length() + len(NUMBERED)).try_cast("int64").cast("float64")
    kept = cut.filter(ibis.coalesce(number, 0.0) >= cut.there - ROUNDING_GPUS)
    return unite(kept.select(*_DEVICE), [c for c in _DEVICE if c not in ("from_utc", "to_utc")]).select(*_DEVICE)


def _list_estimated(unlisted: Expr, listed: Expr) -> Expr:
    """The GPUs that nobody lists, while nothing is listed of their node, of their pool or at all."""
    there = unlisted.mutate(place=_name_place(unlisted))
    taken = _list_taken(there.select("place", "node", "pool").distinct(), listed)
    pieces = cut_at_bounds([t.select(*_KEY, "from_utc", "to_utc") for t in (there, taken)], _KEY)
    free = pieces.join(there, covers(pieces, there, ["place"])).select(
        pieces, there.node, there.pool, there.accelerator, there.most
    )
    free = free.anti_join(taken, covers(free, taken, _KEY))
    each = free.mutate(number=ibis.range(0, free.most).unnest())
    nothing = {"share": ibis.null("float64"), "estimated": ibis.literal(True)}
    own = {"device_id": each.place + ibis.literal(NUMBERED) + each.number.cast("string"), **nothing}
    return each.mutate(**own).select(*_DEVICE)


def pair_names(*tables: Expr) -> Expr:
    """The names with a domain of nodes that others call by the part before the first dot: node, called.

    Only where a single name with a domain begins with that short name, and somebody uses the short one alone. Of n1, n1.a and n1.b
    nobody knows which of the two n1 is: all three stay apart, and so do n1.a and n1.b where nobody says n1.
    """
    names = ibis.union(*(table.select("node") for table in tables), distinct=True)
    full = names.filter(names.node.contains("."))
    full = full.mutate(called=full.node.split(".")[0])
    single = full.group_by("called").aggregate(node=full.node.min(), names=full.node.count())
    single = single.filter(single.names == 1)
    return single.semi_join(names, single.called == names.node).select("node", "called")


def call_nodes(rows: Expr, names: Expr) -> Expr:
    """Rows with their nodes, and GPUs that are known by node and number alone, under one name; `names` as `pair_names`."""
    joined = rows.left_join(names, rows.node == names.node)
    out = joined.select(rows, names.called)
    by_number = out.device_id.startswith(out.node + ibis.literal(NUMBERED))
    number = out.device_id.substr(out.node.length())
    called = {
        "device_id": ibis.ifelse(out.called.notnull() & by_number, out.called + number, out.device_id),
        "node": ibis.coalesce(out.called, out.node),
    }
    return out.mutate(**called).select(*rows.columns)


def list_sources(allocations: Expr, devices: Expr) -> Expr:
    """List the names in allocations: `level` (device, node, pool or fleet), `name` and `by_list` (not labels alone name it).

    A GPU that is named speaks for its node, and so does one that a scheduler counts which lists who holds what.
    """
    rows = open_ends(allocations)
    rows = rows.filter(takes_gpus(rows)).mutate(by_list=is_listed(rows))
    columns = {"device": "device_id", "node": "node", "pool": "pool"}
    named = [
        rows.filter(rows[column].notnull()).select("by_list", level=ibis.literal(level), name=rows[column])
        for level, column in columns.items()
    ]
    there = open_ends(devices)
    of_node = there.filter(there.node.notnull()).join(rows, "device_id").select(rows.by_list, there.node)
    nodes = of_node.select("by_list", level=ibis.literal("node"), name=of_node.node)
    unnamed = rows.filter(*(rows[column].isnull() for column in columns.values()))
    fleet = unnamed.select("by_list", level=ibis.literal("fleet"), name=ibis.literal("fleet"))
    counted = there.filter(there.known_from == SCHEDULED, there.node.notnull())
    counted = counted.select(by_list=ibis.literal(True), level=ibis.literal("node"), name=counted.node)
    found = ibis.union(*named, nodes, counted, fleet, distinct=True)
    return found.group_by("level", "name").aggregate(by_list=found.by_list.any())


def mark_sources(rows: Expr, sources: Expr) -> Expr:
    """Rows of GPUs (device_id, node, pool) with the flags `has_source`, an allocation source speaks of the GPU, and `by_list`.

    `by_list`: one that lists allocations does, not labels alone.
    """
    columns = rows.columns
    out = rows.mutate(fleet=ibis.literal("fleet"))
    levels = (("device", "device_id"), ("node", "node"), ("pool", "pool"), ("fleet", "fleet"))
    for level, column in levels:
        names = sources.filter(sources.level == level).select("name", listed=sources.by_list)
        out = out.left_join(names, out[column] == names.name).select(out, **{f"by_{level}": names.listed})
    found = [out[f"by_{level}"] for level, _ in levels]
    return out.select(
        *columns,
        has_source=ibis.or_(*(by.notnull() for by in found)),
        by_list=ibis.or_(*(ibis.coalesce(by, False) for by in found)),
    )


def list_presence(devices: Expr, bounds: Expr) -> Expr:
    """When each GPU was where, within `bounds`: device_id, node, accelerator, pool, share, estimated, from_utc, to_utc."""
    there = clip(devices, bounds)
    there = there.mutate(share=ibis.coalesce(there.share, 1.0))
    keys = ["device_id", *LOCATION, "share", "estimated"]
    return unite(there.select(*keys, "from_utc", "to_utc"), keys)


def cut_segments(presence: Expr, outages: Expr | None, prices: Expr, sources: Expr | None) -> Expr:
    """Segments in which nothing about a GPU changes, from where it was, its outages and the prices that apply to it.

    Columns: device_id, node, accelerator, pool, share, from_utc, to_utc, has_source (see `mark_sources`; null of an estimated
    GPU), by_list, down (installed but not usable), and a price per basis, null where unknown. The segments of one GPU are disjoint
    and cover exactly the time it was installed. `outages` and `sources` are None where there are none.
    """
    nobody = {"has_source": ibis.literal(False), "by_list": ibis.literal(False)}
    presence = presence.mutate(**nobody) if sources is None else mark_sources(presence, sources)
    nobody_lists = ibis.ifelse(presence.estimated, ibis.null("boolean"), presence.has_source)
    presence = presence.mutate(has_source=nobody_lists).drop("estimated")
    tables = [table for table in (presence, outages, prices) if table is not None]
    bounds = [table.select("device_id", "from_utc", "to_utc") for table in tables]
    pieces = cut_at_bounds(bounds, ["device_id"])
    segments = pieces.join(presence, covers(pieces, presence, ["device_id"])).select(
        pieces, *(presence[c] for c in (*LOCATION, "share", "has_source", "by_list"))
    )
    cost = choose_prices(pieces, prices)
    at = ["device_id", "from_utc"]
    if outages is None:
        out = segments.mutate(down=ibis.literal(False))
    else:
        hit = pieces.join(outages, covers(pieces, outages, ["device_id"])).select(pieces).distinct()
        down = hit.mutate(down=ibis.literal(True))
        out = segments.left_join(down, at).select(segments, down.down)
    out = out.left_join(cost, at).select(out, *(cost[c] for c in PRICE_COLUMNS))
    return out.mutate(down=ibis.coalesce(out.down, False))


def list_outages(presence: Expr, outages: Expr) -> Expr:
    """Outages by GPU: those of a node hit every GPU that sat in it."""
    outages = open_ends(outages)
    own = outages.filter(outages.device_id.notnull()).select("device_id", "from_utc", "to_utc")
    by_node = outages.filter(outages.device_id.isnull()).select("node", "from_utc", "to_utc")
    hit = by_node.join(
        presence,
        [by_node.node == presence.node, by_node.from_utc < presence.to_utc, by_node.to_utc > presence.from_utc],
    ).select(presence.device_id, **intersect(by_node, presence))
    return own.union(hit, distinct=True)
