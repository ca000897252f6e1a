"""What was installed when, was it usable, and what did an hour of it cost? Each GPU's time cut where any of this changes.

A price row applies to the GPUs it does not exclude. Of several that apply in one basis the most specific wins (a GPU's own
before a pool's before a model's before a price for all), and of equals the one that began last. Where none applies the price
is unknown, not zero.
"""

from typing import Any

import ibis

from loadfactor.metrics.intervals import clipped, common, covering, elementary, islands
from loadfactor.tables import BASES

PLACE = ("node", "accelerator", "pool")
USD = tuple(f"usd_per_gpu_hour_{basis}" for basis in BASES)

Expr = Any


def installed(devices: Expr, outages: Expr, prices: Expr, start: Expr, end: Expr) -> Expr:
    """Segments of [start, end) in which nothing about a GPU changes.

    Columns: device_id, node, accelerator, pool, share, from_utc, to_utc, down (installed but not usable), and a price per
    basis, null where unknown. The segments of one GPU are disjoint and cover exactly the time it was installed.
    """
    there = clipped(devices, start, end)
    there = there.mutate(share=ibis.coalesce(there.share, 1.0))
    there = islands(there.select("device_id", *PLACE, "share", "from_utc", "to_utc"), ["device_id", *PLACE, "share"])
    broken = _outages(there, clipped(outages, start, end))
    priced = _applicable(there, prices, start, end)
    bounds = [t.select("device_id", "from_utc", "to_utc") for t in (there, broken, priced)]
    pieces = elementary(bounds, ["device_id"])
    segments = pieces.join(there, covering(pieces, there, ["device_id"])).select(
        pieces, *(there[c] for c in (*PLACE, "share"))
    )
    down = (
        pieces.join(broken, covering(pieces, broken, ["device_id"]))
        .select(pieces)
        .distinct()
        .mutate(down=ibis.literal(True))
    )
    usd = _best(pieces, priced)
    at = ["device_id", "from_utc"]
    out = segments.left_join(down, at).select(segments, down.down)
    out = out.left_join(usd, at).select(out, *(usd[c] for c in USD))
    return out.mutate(down=ibis.coalesce(out.down, False))


def _outages(there: Expr, outages: Expr) -> Expr:
    """Outages by GPU: those of a node hit every GPU that sat in it."""
    own = outages.filter(outages.device_id.notnull()).select("device_id", "from_utc", "to_utc")
    by_node = outages.filter(outages.device_id.isnull()).select("node", "from_utc", "to_utc")
    hit = by_node.join(
        there,
        [by_node.node == there.node, by_node.from_utc < there.to_utc, by_node.to_utc > there.from_utc],
    ).select(there.device_id, **common(by_node, there))
    return own.union(hit, distinct=True)


def _applicable(there: Expr, prices: Expr, start: Expr, end: Expr) -> Expr:
    """Every price that applies to a GPU, with how specific it is."""
    prices = prices.mutate(began_utc=ibis.coalesce(prices.from_utc, 0))  # as listed: clipping may not make them equal
    named = clipped(prices, start, end).rename(
        priced_device="device_id", priced_pool="pool", priced_accelerator="accelerator"
    )
    joined = named.join(
        there,
        [
            named.from_utc < there.to_utc,
            named.to_utc > there.from_utc,
            named.priced_device.isnull() | (named.priced_device == there.device_id),
            named.priced_pool.isnull() | (named.priced_pool == there.pool),
            named.priced_accelerator.isnull() | (named.priced_accelerator == there.accelerator),
        ],
    )
    specific = sum(
        ibis.ifelse(named[column].notnull(), weight, 0)
        for column, weight in (("priced_device", 4), ("priced_pool", 2), ("priced_accelerator", 1))
    )
    return joined.select(
        there.device_id,
        named.began_utc,
        named.basis,
        named.usd_per_gpu_hour,
        specific=specific,
        **common(named, there),  # a pool's price leaves with the pool
    )


def _best(pieces: Expr, priced: Expr) -> Expr:
    """The winning price of each basis for each piece, one column a basis."""
    applied = pieces.join(priced, covering(pieces, priced, ["device_id"])).select(
        pieces, priced.basis, priced.usd_per_gpu_hour, priced.specific, priced.began_utc
    )
    order = [applied.specific.desc(), applied.began_utc.desc(), applied.usd_per_gpu_hour]
    window = ibis.window(group_by=[applied.device_id, applied.from_utc, applied.basis], order_by=order)
    best = applied.mutate(rank=ibis.row_number().over(window)).filter(lambda t: t["rank"] == 0)
    return best.group_by("device_id", "from_utc").aggregate(
        **{name: best.usd_per_gpu_hour.max(where=best.basis == basis) for name, basis in zip(USD, BASES, strict=True)}
    )
