"""What was installed when, was it usable, and what did an hour of it cost? Each GPU's time cut where any of this changes."""

from typing import Any

import ibis

from loadfactor.ledger.holders import mark_sources
from loadfactor.ledger.intervals import clipped, common, covering, elementary, islands, opened
from loadfactor.ledger.prices import PRICE_COLUMNS, choose_prices

PLACE = ("node", "accelerator", "pool")

Expr = Any


def standing(devices: Expr, bounds: Expr) -> Expr:
    """When each GPU stood where, within `bounds`: device_id, node, accelerator, pool, share, from_utc, to_utc."""
    there = clipped(devices, bounds)
    there = there.mutate(share=ibis.coalesce(there.share, 1.0))
    return islands(there.select("device_id", *PLACE, "share", "from_utc", "to_utc"), ["device_id", *PLACE, "share"])


def installed(standing: Expr, broken: Expr, priced: Expr, sources: Expr) -> Expr:
    """Segments in which nothing about a GPU changes, from where it stood, its outages and the prices that apply to it.

    Columns: device_id, node, accelerator, pool, share, from_utc, to_utc, has_source (see `mark_sources`), down (installed but
    not usable), and a price per basis, null where unknown. The segments of one GPU are disjoint and cover exactly the time it
    was installed.
    """
    standing = mark_sources(standing, sources)
    bounds = [t.select("device_id", "from_utc", "to_utc") for t in (standing, broken, priced)]
    pieces = elementary(bounds, ["device_id"])
    segments = pieces.join(standing, covering(pieces, standing, ["device_id"])).select(
        pieces, *(standing[c] for c in (*PLACE, "share", "has_source"))
    )
    down = (
        pieces.join(broken, covering(pieces, broken, ["device_id"]))
        .select(pieces)
        .distinct()
        .mutate(down=ibis.literal(True))
    )
    cost = choose_prices(pieces, priced)
    at = ["device_id", "from_utc"]
    out = segments.left_join(down, at).select(segments, down.down)
    out = out.left_join(cost, at).select(out, *(cost[c] for c in PRICE_COLUMNS))
    return out.mutate(down=ibis.coalesce(out.down, False))


def broken(standing: Expr, outages: Expr) -> Expr:
    """Outages by GPU: those of a node hit every GPU that sat in it."""
    outages = opened(outages)
    own = outages.filter(outages.device_id.notnull()).select("device_id", "from_utc", "to_utc")
    by_node = outages.filter(outages.device_id.isnull()).select("node", "from_utc", "to_utc")
    hit = by_node.join(
        standing,
        [by_node.node == standing.node, by_node.from_utc < standing.to_utc, by_node.to_utc > standing.from_utc],
    ).select(standing.device_id, **common(by_node, standing))
    return own.union(hit, distinct=True)
