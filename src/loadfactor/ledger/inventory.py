"""What was installed when, was it usable, and what did an hour of it cost? Each GPU's time cut where any of this changes.

A price row applies to the GPUs it does not exclude. Of several that apply in one basis the most specific wins (a GPU's own
before a pool's before a model's before a price for all), and of equals the one that began last. Where none applies the price
is unknown, not zero.
"""

from typing import Any

import ibis

from loadfactor.ledger.holders import mark_sources
from loadfactor.ledger.intervals import clipped, common, covering, elementary, islands, opened
from loadfactor.tables import BASES

PLACE = ("node", "accelerator", "pool")
PRICE_COLUMNS = tuple(f"price_per_gpu_hour_{basis}" for basis in BASES)

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
    cost = _best(pieces, priced)
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


def priced(standing: Expr, prices: Expr) -> Expr:
    """Every price that applies to a GPU where it stands, with how specific it is and when it began."""
    named = opened(prices).rename(priced_device="device_id", priced_pool="pool", priced_accelerator="accelerator")
    joined = named.join(
        standing,
        [
            named.from_utc < standing.to_utc,
            named.to_utc > standing.from_utc,
            named.priced_device.isnull() | (named.priced_device == standing.device_id),
            named.priced_pool.isnull() | (named.priced_pool == standing.pool),
            named.priced_accelerator.isnull() | (named.priced_accelerator == standing.accelerator),
        ],
    )
    specific = sum(
        ibis.ifelse(named[column].notnull(), weight, 0)
        for column, weight in (("priced_device", 4), ("priced_pool", 2), ("priced_accelerator", 1))
    )
    return joined.select(
        standing.device_id,
        named.basis,
        named.price_per_gpu_hour,
        began_utc=named.from_utc,
        specific=specific,
        **common(named, standing),  # a pool's price leaves with the pool
    )


def _best(pieces: Expr, priced: Expr) -> Expr:
    """The winning price of each basis for each piece, one column a basis."""
    applied = pieces.join(priced, covering(pieces, priced, ["device_id"])).select(
        pieces, priced.basis, priced.price_per_gpu_hour, priced.specific, priced.began_utc
    )
    order = [applied.specific.desc(), applied.began_utc.desc(), applied.price_per_gpu_hour]
    window = ibis.window(group_by=[applied.device_id, applied.from_utc, applied.basis], order_by=order)
    best = applied.mutate(rank=ibis.row_number().over(window)).filter(lambda t: t["rank"] == 0)
    return best.group_by("device_id", "from_utc").aggregate(
        **{
            name: best.price_per_gpu_hour.max(where=best.basis == basis)
            for name, basis in zip(PRICE_COLUMNS, BASES, strict=True)
        }
    )
