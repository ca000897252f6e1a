"""What was installed when, whether it was usable, and what an hour of it cost: each GPU's time, cut where any of this changes."""

from typing import Any

import ibis

from loadfactor.ledger.holders import mark_sources
from loadfactor.ledger.intervals import clip, covers, cut_at_bounds, intersect, open_ends, unite
from loadfactor.ledger.prices import PRICE_COLUMNS, choose_prices

LOCATION = ("node", "accelerator", "pool")

Expr = Any


def list_presence(devices: Expr, bounds: Expr) -> Expr:
    """When each GPU was where, within `bounds`: device_id, node, accelerator, pool, share, estimated, from_utc, to_utc."""
    there = clip(devices, bounds)
    there = there.mutate(share=ibis.coalesce(there.share, 1.0))
    keys = ["device_id", *LOCATION, "share", "estimated"]
    return unite(there.select(*keys, "from_utc", "to_utc"), keys)


def cut_segments(presence: Expr, outages: Expr | None, prices: Expr, sources: Expr | None) -> Expr:
    """Segments in which nothing about a GPU changes, from where it was, its outages and the prices that apply to it.

    Columns: device_id, node, accelerator, pool, share, from_utc, to_utc, has_source (see `mark_sources`; null of an estimated
    GPU), down (installed but not usable), and a price per basis, null where unknown. The segments of one GPU are disjoint and
    cover exactly the time it was installed. `outages` and `sources` are None where there are none.
    """
    presence = presence.mutate(has_source=ibis.literal(False)) if sources is None else mark_sources(presence, sources)
    nobody_lists = ibis.ifelse(presence.estimated, ibis.null("boolean"), presence.has_source)
    presence = presence.mutate(has_source=nobody_lists).drop("estimated")
    tables = [table for table in (presence, outages, prices) if table is not None]
    bounds = [table.select("device_id", "from_utc", "to_utc") for table in tables]
    pieces = cut_at_bounds(bounds, ["device_id"])
    segments = pieces.join(presence, covers(pieces, presence, ["device_id"])).select(
        pieces, *(presence[c] for c in (*LOCATION, "share", "has_source"))
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
