"""Price of an hour of each GPU in the reporting currency of the store: which price applies, and what it is worth.

A price row applies to the GPUs it does not exclude. Of several that apply in one basis the most specific wins (a GPU's own
before a pool's before a model's before a price for all; a price that a bill makes for a node before them all), and of equals the
one that began last. Where none applies the price
is unknown, not zero. A price in a foreign currency is worth what the exchange rate of the time says; while there is none it is
unknown, and no less specific price takes its place.
"""

import ibis

from loadfactor.base.units import MS_PER_DAY
from loadfactor.ledger.intervals import Expr, covers, intersect, open_ends
from loadfactor.tables.schema import BASES, BILLED

MOST_SPECIFIC = 8
"""How specific a price of a bill is: more than one for a GPU (4), a pool (2) and a model (1) together."""
PRICE_COLUMNS = tuple(f"price_per_gpu_hour_{basis}" for basis in BASES)


def convert_prices(prices: Expr, rates: Expr | None, currency: str) -> Expr:
    """The prices in the reporting currency, without their own: cut where a rate changes, null while there is none.

    `began_utc` is when the price itself began; `rates`: None where there are none.
    """
    rows = open_ends(prices)
    rows = rows.mutate(began_utc=rows.from_utc, currency=ibis.coalesce(rows.currency, currency))
    foreign = rows.filter(rows.currency != currency)
    columns = [c for c in rows.columns if c not in ("from_utc", "to_utc", "price_per_gpu_hour", "currency")]
    unknown = {"price_per_gpu_hour": ibis.null("float64")}
    parts = [
        rows.filter(rows.currency == currency).select(*columns, "price_per_gpu_hour", "from_utc", "to_utc"),
        foreign.select(*columns, **unknown, from_utc=foreign.from_utc, to_utc=foreign.to_utc),
    ]
    if rates is None:
        return ibis.union(*parts)
    dated = open_ends(rates)
    following = dated.from_utc.lead().over(ibis.window(group_by=dated.currency, order_by=dated.from_utc))
    dated = dated.mutate(to_utc=ibis.least(dated.to_utc, ibis.coalesce(following, dated.to_utc)))
    joined = foreign.join(
        dated, [foreign.currency == dated.currency, foreign.from_utc < dated.to_utc, foreign.to_utc > dated.from_utc]
    )
    worth = {"price_per_gpu_hour": foreign.price_per_gpu_hour * dated.rate, **intersect(foreign, dated)}
    return ibis.union(*parts, joined.select(*(foreign[c] for c in columns), **worth))


def match_prices(presence: Expr, prices: Expr) -> Expr:
    """Every price that applies to a GPU where it is, with how specific it is and when it began."""
    named = prices.rename(priced_device="device_id", priced_pool="pool", priced_accelerator="accelerator")
    joined = named.join(
        presence,
        [
            named.from_utc < presence.to_utc,
            named.to_utc > presence.from_utc,
            named.priced_device.isnull() | (named.priced_device == presence.device_id),
            named.priced_pool.isnull() | (named.priced_pool == presence.pool),
            named.priced_accelerator.isnull() | (named.priced_accelerator == presence.accelerator),
        ],
    )
    specific = sum(
        ibis.ifelse(named[column].notnull(), weight, 0)
        for column, weight in (("priced_device", 4), ("priced_pool", 2), ("priced_accelerator", 1))
    )
    return joined.select(
        presence.device_id,
        named.basis,
        named.price_per_gpu_hour,
        named.began_utc,
        specific=specific,
        **intersect(named, presence),  # a pool's price leaves with the pool
    )


def match_billed(presence: Expr, prices: Expr) -> Expr:
    """Prices that a bill makes for a node, for each GPU on it; more specific than any other."""
    named = prices.rename(priced_node="node")
    joined = named.join(
        presence,
        [named.priced_node == presence.node, named.from_utc < presence.to_utc, named.to_utc > presence.from_utc],
    )
    return joined.select(
        presence.device_id,
        named.basis,
        named.price_per_gpu_hour,
        named.began_utc,
        specific=ibis.literal(MOST_SPECIFIC, "int32"),
        **intersect(named, presence),
    )


def find_repriced(booked: Expr, prices: Expr) -> Expr:
    """The booked hours (hour_utc) in which a node's price is another than a bill makes it; `prices` are of whole UTC days."""
    columns = {basis: f"price_per_gpu_hour_{basis}" for basis in BILLED}
    daily = prices.group_by(prices.node.name("billed_node"), prices.from_utc.name("day_utc")).aggregate(
        **{f"billed_{basis}": prices.price_per_gpu_hour.max(where=prices.basis == basis) for basis in BILLED}
    )
    known = booked.mutate(on_day_utc=booked.hour_utc - booked.hour_utc % MS_PER_DAY)
    joined = known.left_join(daily, [known.node == daily.billed_node, known.on_day_utc == daily.day_utc])
    changed = [~joined[column].identical_to(joined[f"billed_{basis}"]) for basis, column in columns.items()]
    return joined.filter(ibis.or_(*changed)).select("hour_utc").distinct()


def choose_prices(pieces: Expr, prices: Expr) -> Expr:
    """The winning price of each basis for each piece, one column a basis."""
    applied = pieces.join(prices, covers(pieces, prices, ["device_id"])).select(
        pieces, prices.basis, prices.price_per_gpu_hour, prices.specific, prices.began_utc
    )
    known = applied.price_per_gpu_hour.notnull()
    order = [applied.specific.desc(), applied.began_utc.desc(), known.desc(), applied.price_per_gpu_hour]
    window = ibis.window(group_by=[applied.device_id, applied.from_utc, applied.basis], order_by=order)
    best = applied.mutate(rank=ibis.row_number().over(window)).filter(lambda t: t["rank"] == 0)
    return best.group_by("device_id", "from_utc").aggregate(
        **{
            name: best.price_per_gpu_hour.max(where=best.basis == basis)
            for name, basis in zip(PRICE_COLUMNS, BASES, strict=True)
        }
    )
