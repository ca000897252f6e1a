"""Attribution of installed time to holders, the unallocated rest, and what was down: every GPU-second to exactly one of them.

An allocation is booked at the level that is known, its scope: on its GPU, or in its node, its pool or the fleet. Holders never
get more than there is: where shares add up to more than the capacity of the scope, each is scaled down alike. What is held is
not down, even while its node drains.
"""

import ibis

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.ledger.columns import HOLDER, LOCATION, ROUNDING_GPUS
from loadfactor.ledger.intervals import Expr, clip, covers, cut_at_bounds, split_by_bucket
from loadfactor.ledger.labels import (
    drop_listed,
    name_gpus,
    pick_labelled,
    pick_listed,
    pick_runs,
    settle_bridged,
    yield_gpus,
)
from loadfactor.ledger.prices import PRICE_COLUMNS
from loadfactor.ledger.scope import CLAIM, DAY, NUMBERS, OWN, list_carried, spread_whole_nodes
from loadfactor.tables.schema import BRIDGED


def list_listed(allocations: Expr, locations: Expr | None, bounds: Expr, numbered: bool = False) -> Expr:
    """Allocations that somebody listed, within `bounds` by day, with how many GPUs they take; see `spread_whole_nodes`.

    `locations`: None where all name their GPU. `numbered`: with the numbers of these GPUs.
    """
    claims = _claim(pick_listed(allocations), bounds, numbered)
    if locations is None:
        return claims.select(*list_carried(claims), "device_id", "node", "pool", "from_utc", "to_utc")
    return spread_whole_nodes(claims, locations)


def list_labelled(allocations: Expr, bounds: Expr, numbered: bool = False, tracked: bool = False) -> Expr:
    """Allocations that labels name, in the same form. `tracked`: some are of runs that name themselves."""
    labelled = pick_labelled(allocations)
    return _claim(yield_gpus(clip(labelled, bounds)) if tracked else labelled, bounds, numbered, "bridged")


def list_runs(allocations: Expr, bounds: Expr) -> Expr:
    """The runs that name themselves, in the same form."""
    return _claim(pick_runs(allocations), bounds, False)


def list_claims(
    listed: Expr, labelled: Expr | None, allocations: Expr, locations: Expr, bounds: Expr, days: Expr | None = None
) -> Expr:
    """Claims on GPUs by day; `inferred`: nobody lists the job, only labels name it. See `ledger.labels`.

    `labelled`: None where labels name nothing; `days`: None where none of it is bridged over a gap.
    """
    if labelled is None:
        return listed.mutate(inferred=ibis.literal(False))
    seen = labelled if days is None else settle_bridged(labelled, days)
    lone = drop_listed(seen, allocations, bounds)
    lone = lone.filter(lone.gpus > 0)
    return ibis.union(
        name_gpus(listed, labelled, locations).mutate(inferred=ibis.literal(False)),
        lone.mutate(inferred=ibis.literal(True)),
    )


def _claim(allocations: Expr, bounds: Expr, numbered: bool, *more: str) -> Expr:
    rows = clip(allocations, bounds)
    rows = rows.mutate(bridged=ibis.coalesce(rows.known_from == BRIDGED, False))
    rows = rows.mutate(
        attempt=ibis.coalesce(rows.attempt, 0.0), gpus=ibis.coalesce(rows.gpus, 1.0) * ibis.coalesce(rows.share, 1.0)
    )
    columns = [*(c for c in CLAIM if c != DAY), *([NUMBERS] if numbered else []), *more]
    return split_by_bucket(rows.select(*columns, "device_id", "node", "pool", "from_utc", "to_utc"), MS_PER_DAY, DAY)


def cut_capacity(capacity: Expr, claims: Expr | None, cuts: Expr | None) -> Expr:
    """The capacity of each scope cut wherever a holder comes or goes, and at `cuts` (at_utc), instants no row may span."""
    keys = ["scope", DAY]
    rest = [c for c in capacity.columns if c not in (*keys, "from_utc", "to_utc")]
    if claims is None and cuts is None:
        return capacity.select(*keys, "from_utc", "to_utc", *rest)
    comings = [] if claims is None else [claims.select(*keys, "from_utc", "to_utc")]
    if cuts is not None:
        inside = capacity.join(cuts, [capacity.from_utc < cuts.at_utc, capacity.to_utc > cuts.at_utc])
        comings.append(inside.select(*(capacity[k] for k in keys), from_utc=cuts.at_utc, to_utc=cuts.at_utc))
    touched = ibis.union(*(rows.select(*keys) for rows in comings), distinct=True)
    whole, parted = capacity.anti_join(touched, keys), capacity.semi_join(touched, keys)
    cut = cut_at_bounds([parted.select(*keys, "from_utc", "to_utc"), *comings], keys)
    there = cut.join(parted, covers(cut, parted, keys))
    there = there.select(cut, *(parted[c] for c in rest))
    return ibis.union(whole.select(*there.columns), there)


def attribute_time(slices: Expr, claims: Expr | None) -> Expr:
    """Every GPU-second of the books by holder, each row inside one UTC hour.

    `slices` is the capacity, cut; `claims` the allocations by scope, None where there are none. Columns: holder columns (null
    where nobody held it), device_id (null where only the scope is known), node, accelerator, pool, prices, `gpus` (how many,
    fractions included), the flags `held`, `down`, `has_source`, `by_list` and `free` (a single GPU, no part of it held),
    hour_utc, from_utc, to_utc, and `span`, a number that rows of one interval of one GPU share.
    """
    everything = split_by_bucket(ibis.union(*_divide(slices, claims)), MS_PER_HOUR, "hour_utc")
    interval = ["device_id", "from_utc", "to_utc"]
    within = ibis.window(group_by=everything.hour_utc, order_by=[everything[c] for c in interval])
    # an hour is 3.6 million ms, so its intervals number between its instant and the next one's
    return everything.mutate(span=everything.hour_utc + ibis.dense_rank().over(within))


def _divide(slices: Expr, claims: Expr | None) -> list[Expr]:
    if claims is None:
        nothing = ibis.literal(0.0)
        there = slices.mutate(listed=nothing, inferred=nothing)
        return _rest(there.mutate(for_inferred=_round_off(there.total)))
    keys = ["scope", DAY]
    claimed = slices.join(claims, covers(slices, claims, keys)).select(
        *(slices[c] for c in (*keys, "from_utc")), *(claims[c] for c in (*HOLDER, *OWN, "gpus", "inferred"))
    )
    at = [*keys, "from_utc"]
    demand = claimed.group_by(at).aggregate(
        listed=ibis.coalesce(claimed.gpus.sum(where=~claimed.inferred), 0.0),
        inferred=ibis.coalesce(claimed.gpus.sum(where=claimed.inferred), 0.0),
    )
    there = slices.left_join(demand, at).select(
        slices, listed=ibis.coalesce(demand.listed, 0.0), inferred=ibis.coalesce(demand.inferred, 0.0)
    )
    there = there.mutate(for_inferred=_round_off(there.total - ibis.least(there.listed, there.total)))
    return [_held(claimed, there, at), *_rest(there)]


def _held(claimed: Expr, there: Expr, at: list[str]) -> Expr:
    """The holders' rows; a scope too small for all is divided in proportion to what each claims, after those that are listed."""
    rows = claimed.join(there, at)
    fits = ibis.ifelse(
        claimed.inferred,
        ibis.least(1.0, there.for_inferred / there.inferred),
        ibis.least(1.0, there.total / there.listed),
    )
    return rows.select(
        *(claimed[c] for c in HOLDER),
        **{c: ibis.coalesce(claimed[f"own_{c}"], there[c]) for c in ("device_id", *LOCATION)},
        **{c: there[c] for c in PRICE_COLUMNS},
        gpus=claimed.gpus * fits,
        held=ibis.literal(True),
        down=ibis.literal(False),
        has_source=there.has_source,
        by_list=there.by_list,
        free=ibis.literal(False),
        from_utc=there.from_utc,
        to_utc=there.to_utc,
    ).filter(lambda t: t.gpus > 0)


def _rest(there: Expr) -> list[Expr]:
    """GPUs that nobody held: first those that are down, the remainder unallocated."""
    rest = there.for_inferred - ibis.least(there.inferred, there.for_inferred)
    out_of_use = ibis.least(there.down, rest)
    nobody = {c: ibis.null("float64" if c == "attempt" else "string") for c in HOLDER}

    def rows(gpus: Expr, down: bool) -> Expr:
        return there.select(
            **nobody,
            **{c: there[c] for c in ("device_id", *LOCATION, *PRICE_COLUMNS)},
            gpus=gpus,
            held=ibis.literal(False),
            down=ibis.literal(down),
            has_source=there.has_source,
            by_list=there.by_list,
            free=(there.listed == 0) & (there.inferred == 0) & there.device_id.notnull(),
            from_utc=there.from_utc,
            to_utc=there.to_utc,
        ).filter(lambda t: t.gpus > ROUNDING_GPUS)

    return [rows(rest - out_of_use, False), rows(out_of_use, True)]


def _round_off(gpus: Expr) -> Expr:
    """Take remainders of GPUs as nothing where they come only from adding shares up."""
    return ibis.ifelse(gpus > ROUNDING_GPUS, gpus, 0.0)
