"""Jobs that labels name, beside those that somebody lists: one job is one holder, and what is listed comes first.

A scheduler says how many GPUs a job holds, where, from when to when and who pays; labels of samples say which GPUs it works on.
While both speak of one job (by its id or the scheduler's number of it), its allocation counts, on the GPUs that the labels name;
what it holds beyond those stays where the scheduler puts it, and who pays comes from the labels where the list does not say it.
Labels linger until the next scrape, so around a listed job they count for nothing. What labels alone know is a holder, too:
`attribute_time` gives it what those that are listed leave.
"""

from typing import Any

import ibis

from loadfactor.ledger.columns import HOLDER
from loadfactor.ledger.intervals import clip, covers, cut_at_bounds, intersect, shares_time, unite
from loadfactor.ledger.scope import DAY, NUMBERS, list_carried
from loadfactor.tables.schema import LABELS, LINGER_MS

ROUNDING_GPUS = 1e-9
"""What is left of a GPU after shares like 1/7 have been added up."""
PAYERS = tuple(column for column in HOLDER if column not in ("job_id", "attempt"))
"""Columns of a holder that say who pays."""

Expr = Any


def pick_listed(allocations: Expr) -> Expr:
    """Allocations that somebody listed."""
    return allocations.filter(allocations.known_from.isnull() | (allocations.known_from != LABELS))


def pick_labelled(allocations: Expr) -> Expr:
    """Allocations that labels name."""
    return allocations.filter(allocations.known_from == LABELS)


def drop_repeats(allocations: Expr) -> Expr:
    """Allocations without those that labels name of jobs that somebody lists."""
    listed, labelled = pick_listed(allocations), pick_labelled(allocations)
    names = list_aliases(listed).select("label").distinct()
    return ibis.union(listed, labelled.anti_join(names, labelled.job_id == names.label))


def drop_listed(labelled: Expr, allocations: Expr, bounds: Expr) -> Expr:
    """The parts of claims that labels name in which nobody lists the job, within `LINGER_MS`."""
    listed = pick_listed(allocations)
    around = clip(listed.mutate(from_utc=listed.from_utc - LINGER_MS, to_utc=listed.to_utc + LINGER_MS), bounds)
    own = labelled.mutate(label=labelled.job_id)
    known = unite(list_aliases(around).select("label", "from_utc", "to_utc").semi_join(own, "label"), ["label"])
    pieces = cut_at_bounds([rows.select("label", "from_utc", "to_utc") for rows in (own, known)], ["label"])
    there = pieces.join(own, covers(pieces, own, ["label"]))
    columns = _list_columns(labelled)
    there = there.select(pieces, *(own[c] for c in columns if c not in ("from_utc", "to_utc")))
    return there.anti_join(known, covers(there, known, ["label"])).select(*columns)


def name_gpus(listed: Expr, labelled: Expr, locations: Expr) -> Expr:
    """Listed claims by the day; while labels name GPUs of a job that is listed without them, the job holds those.

    Labels that name more GPUs than the job holds share them. Who pays is filled in from labels where the list does not say.
    """
    seen = _locate(labelled, locations)
    named = listed.device_id.isnull() & is_called(listed, seen)
    rows = listed.filter(named)
    order = [rows[c] for c in ("job_id", "from_utc", "node", "pool", "gpus", "to_utc")]
    rows = rows.mutate(claim=ibis.row_number().over(ibis.window(order_by=order)))
    columns = _list_columns(listed)
    return ibis.union(listed.filter(~named).select(*columns), _split_claims(rows, _match(rows, seen)).select(*columns))


def is_called(rows: Expr, seen: Expr) -> Expr:
    """Whether labels name the job of a claim at all; the others need no joins."""
    return rows.job_id.isin(seen.label) | ibis.coalesce(rows.job_number, rows.job_id).isin(seen.label)


def list_aliases(listed: Expr) -> Expr:
    """Claims by what labels may call their job: its id, and the scheduler's number of it."""
    numbered = listed.filter(listed.job_number.notnull() & (listed.job_number != listed.job_id))
    return ibis.union(listed.mutate(label=listed.job_id), numbered.mutate(label=numbered.job_number))


def _locate(labelled: Expr, locations: Expr) -> Expr:
    """What labels name, with where each GPU is and which part of a whole one it is (`whole`: GPUs held, as whole ones)."""
    rows = labelled.join(locations, shares_time(labelled, locations, ["device_id", DAY]))
    return rows.select(
        *(labelled[c] for c in (DAY, "device_id", "gpus", *PAYERS)),
        *(locations[c] for c in ("node", "pool")),
        label=labelled.job_id,
        whole=labelled.gpus * locations.share,
        **intersect(labelled, locations),
    )


def _match(rows: Expr, seen: Expr) -> Expr:
    """By number of a claim, the GPUs that labels name for its job where the claim is."""
    aliases = list_aliases(rows)
    there = ibis.coalesce(aliases.node == seen.node, aliases.pool == seen.pool, aliases.pool.isnull())
    there = ibis.ifelse(aliases.node.notnull(), ibis.coalesce(aliases.node == seen.node, False), there)
    found = aliases.join(seen, [*shares_time(aliases, seen, ["label", DAY]), there])
    return found.select(
        aliases.claim, *(seen[c] for c in (DAY, "device_id", "gpus", "whole", *PAYERS)), **intersect(aliases, seen)
    )


def _split_claims(rows: Expr, found: Expr) -> Expr:
    """Claims cut where labels begin and end: each on the GPUs that are named then, and on as many unnamed ones as are left."""
    keys = ["claim", DAY]
    at = [*keys, "from_utc", "to_utc"]
    pieces = cut_at_bounds([of.select(*at) for of in (rows, found)], keys)
    joined = pieces.join(found, covers(pieces, found, keys)).select(
        pieces, *(found[c] for c in ("device_id", "gpus", "whole", *PAYERS))
    )
    by_gpu = joined.group_by([*at, "device_id"]).aggregate(
        named_gpus=joined.gpus.max(), whole=joined.whole.max(), **{f"said_{c}": joined[c].max() for c in PAYERS}
    )
    total = by_gpu.group_by(at).aggregate(
        named=by_gpu.whole.sum(), **{f"said_{c}": by_gpu[f"said_{c}"].max() for c in PAYERS}
    )
    held = pieces.join(rows, covers(pieces, rows, keys)).select(
        pieces, *(rows[c] for c in (*list_carried(rows), "node", "pool") if c != DAY)
    )
    held = held.left_join(total, at).select(
        *(held[c] for c in held.columns if c not in PAYERS),
        named=ibis.coalesce(total.named, 0.0),
        **{c: ibis.coalesce(held[c], total[f"said_{c}"]) for c in PAYERS},
    )
    on_gpus = held.join(by_gpu, at).select(
        *(held[c] for c in held.columns if c not in ("gpus", "named")),
        by_gpu.device_id,
        gpus=by_gpu.named_gpus * ibis.least(1.0, held.gpus / held.named),
    )
    left = held.mutate(gpus=held.gpus - held.named, device_id=ibis.null("string"))
    if NUMBERS in held.columns:  # which are left, nobody says
        left = left.mutate(**{NUMBERS: ibis.ifelse(left.named > 0, ibis.null("string"), left[NUMBERS])})
    left = left.filter(lambda t: t.gpus > ROUNDING_GPUS)
    columns = _list_columns(rows)
    return ibis.union(on_gpus.select(*columns), left.select(*columns))


def _list_columns(claims: Expr) -> tuple[str, ...]:
    """Columns of claims, in the order in which they are put together."""
    return (*list_carried(claims), "device_id", "node", "pool", "from_utc", "to_utc")
