"""Jobs that labels name, beside those that somebody lists: one job is one holder, and what is listed comes first.

A scheduler says how many GPUs a job holds, where, from when to when and who pays; labels of samples say which GPUs it works on.
While both speak of one job (by its id or the scheduler's number of it), its allocation counts, on the GPUs that the labels name;
what it holds beyond those stays where the scheduler puts it, and who pays comes from the labels where the list does not say it.
Labels linger until the next scrape, so around a listed job they count for nothing. What labels alone know is a holder, too:
`attribute_time` gives it what those that are listed leave.

Who pays for listed jobs on known GPUs, as labels of their job say it where the list does not.

A job that is listed by node alone has what labels say of its payers along with its GPUs (`ledger.labels`). One that is listed by
GPU, or holds its whole node, needs no GPUs from labels; only where these tell a payer that the list does not is it joined to them.

GPUs that a scheduler names by their number on their node, as devices, where nothing contradicts that.

A scheduler numbers the GPUs of a node in an order of its own (Slurm in that of gres.conf, by default the one of the device files),
an exporter says the number that the driver gives. On most machines that is one order, on some it is not. So numbers count only
while every GPU of the node is a whole one with a known number, these go from 0 to one less than there are, every holder names as
many as it has, and none of them is somebody else's. Labels come before numbers, and where labels ever named another GPU for a job
than its numbers do, the numbers of that node are believed at no time. What does not count stays where it was, at the node.
"""

import ibis

from loadfactor.ledger.columns import HOLDER, ROUNDING_GPUS
from loadfactor.ledger.intervals import Expr, clip, covers, cut_at_bounds, intersect, open_ends, shares_time, unite
from loadfactor.ledger.scope import CLAIM, DAY, NUMBERS, list_carried
from loadfactor.tables.schema import LINGER_MS, NAMED, RUN

PAYERS = tuple(column for column in HOLDER if column not in ("job_id", "attempt"))
"""Columns of a holder that say who pays."""


def pick_listed(allocations: Expr) -> Expr:
    """Allocations that somebody listed."""
    return allocations.filter(is_listed(allocations))


def is_listed(allocations: Expr) -> Expr:
    """Whether somebody listed an allocation."""
    return ibis.coalesce(allocations.known_from.notin(NAMED), True)


def pick_labelled(allocations: Expr) -> Expr:
    """Allocations that labels name, or named before and after a gap, or tracked runs themselves."""
    return allocations.filter(~is_listed(allocations))


def pick_runs(allocations: Expr) -> Expr:
    """Allocations by which tracked runs name themselves."""
    return allocations.filter(allocations.known_from == RUN)


def yield_gpus(labelled: Expr) -> Expr:
    """Labelled allocations with an end; a run that names its GPUs itself has those that no label names, then."""
    is_own = (labelled.known_from == RUN) & labelled.device_id.notnull()
    own, others = labelled.filter(is_own), labelled.filter(~is_own)
    there = others.filter(others.device_id.notnull()).semi_join(own, "device_id")
    keys = ["device_id"]
    pieces = cut_at_bounds([rows.select(*keys, "from_utc", "to_utc") for rows in (own, there)], keys)
    parts = pieces.join(own, covers(pieces, own, keys))
    parts = parts.select(pieces, *(own[c] for c in own.columns if c not in pieces.columns))
    left = parts.anti_join(there, covers(parts, there, keys))
    return ibis.union(others, left.select(*labelled.columns))


def drop_repeats(allocations: Expr) -> Expr:
    """Allocations without those that labels name of jobs that somebody lists."""
    listed, labelled = pick_listed(allocations), pick_labelled(allocations)
    names = list_aliases(listed).select("label").distinct()
    return ibis.union(listed, labelled.anti_join(names, labelled.job_id == names.label))


def settle_bridged(labelled: Expr, days: Expr) -> Expr:
    """Claims that labels name; of those bridged over a gap (`bridged`) what no other label and no list of the GPU speaks of.

    `days` say when lists speak of a GPU (`by_list`): then these say who held it, and who did not.
    """
    keys = ["device_id", DAY]
    at = [*keys, "from_utc", "to_utc"]
    seen, bridged = labelled.filter(~labelled.bridged), labelled.filter(labelled.bridged)
    known = ibis.union(seen.select(*at), days.filter(days.by_list).select(*at)).semi_join(bridged, keys)
    pieces = cut_at_bounds([bridged.select(*at), known], keys)
    others = [c for c in labelled.columns if c not in at]
    left = pieces.join(bridged, covers(pieces, bridged, keys)).select(pieces, *(bridged[c] for c in others))
    left = left.anti_join(known, covers(left, known, keys))
    return ibis.union(seen, left.select(*seen.columns))


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
    """Holdings by labels, with where each GPU is and which part of a whole one it is (`whole`: GPUs held, as whole ones)."""
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
        named_gpus=joined.gpus.max(), whole=joined.whole.max(), **{f"reported_{c}": joined[c].max() for c in PAYERS}
    )
    total = by_gpu.group_by(at).aggregate(
        named=by_gpu.whole.sum(), **{f"reported_{c}": by_gpu[f"reported_{c}"].max() for c in PAYERS}
    )
    held = pieces.join(rows, covers(pieces, rows, keys)).select(
        pieces, *(rows[c] for c in (*list_carried(rows), "node", "pool") if c != DAY)
    )
    held = held.left_join(total, at).select(
        *(held[c] for c in held.columns if c not in PAYERS),
        named=ibis.coalesce(total.named, 0.0),
        **{c: ibis.coalesce(held[c], total[f"reported_{c}"]) for c in PAYERS},
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


_REPORTED = tuple(f"reported_{column}" for column in PAYERS)


def pick_stated(labelled: Expr, listed: Expr) -> Expr:
    """Rows of labels for jobs whose lists lack a payer that the labels say."""
    reported = labelled.filter(ibis.or_(*(labelled[c].notnull() for c in PAYERS)))
    names = list_aliases(listed.select("job_id", "job_number", *PAYERS).distinct())
    lacking = names.group_by("label").aggregate(**{f"lacks_{c}": names[c].isnull().any() for c in PAYERS})
    tells = ibis.or_(*(reported[c].notnull() & lacking[f"lacks_{c}"] for c in PAYERS))
    return reported.semi_join(lacking, [reported.job_id == lacking.label, tells])


def list_payers(labelled: Expr, listed: Expr) -> Expr:
    """Payers by labels of claims on known GPUs: label (what they call the job), day, from_utc, to_utc, reported_…"""
    stated = pick_stated(labelled, listed.filter(listed.device_id.notnull()))
    stated = stated.mutate(label=stated.job_id)
    at = ["label", DAY, "from_utc", "to_utc"]
    pieces = cut_at_bounds([stated.select(*at)], at[:2])
    joined = pieces.join(stated, covers(pieces, stated, at[:2])).select(pieces, *(stated[c] for c in PAYERS))
    return joined.group_by(at).aggregate(**{f"reported_{c}": joined[c].max() for c in PAYERS})


def fill_payers(listed: Expr, payers: Expr) -> Expr:
    """Listed claims by the day, those on known GPUs with who pays as labels tell it then."""
    is_told = listed.device_id.notnull() & is_called(listed, payers)
    others, rows = listed.filter(~is_told), listed.filter(is_told)
    order = [rows[c] for c in ("job_id", "from_utc", "device_id", "node", "pool", "gpus", "to_utc", "attempt")]
    rows = rows.mutate(claim=ibis.row_number().over(ibis.window(order_by=order)))
    aliases = list_aliases(rows)
    found = aliases.join(payers, shares_time(aliases, payers, ["label", DAY]))
    found = found.select(aliases.claim, payers[DAY], *(payers[c] for c in _REPORTED), **intersect(aliases, payers))
    at = ["claim", DAY, "from_utc", "to_utc"]
    pieces = cut_at_bounds([of.select(*at) for of in (rows, found)], at[:2])
    heard = pieces.join(found, covers(pieces, found, at[:2])).select(pieces, *(found[c] for c in _REPORTED))
    heard = heard.group_by(at).aggregate(**{c: heard[c].max() for c in _REPORTED})
    held = pieces.join(rows, covers(pieces, rows, at[:2]))
    held = held.select(pieces, *(rows[c] for c in listed.columns if c not in at))
    filled = held.left_join(heard, at).select(
        *(held[c] for c in held.columns if c not in PAYERS),
        **{c: ibis.coalesce(held[c], heard[f"reported_{c}"]) for c in PAYERS},
    )
    return ibis.union(others, filled.select(*listed.columns))


_CLAIM_COLUMNS = (*CLAIM, "device_id", "node", "pool", "from_utc", "to_utc", "inferred")
_NODE_DAY = ("node", DAY)
_PIECE = (*_NODE_DAY, "from_utc", "to_utc")


def list_numbers(devices: Expr) -> Expr:
    """The number of each GPU on its node, as far as it is known: device_id, node, gpu_index, from_utc, to_utc."""
    rows = open_ends(devices)
    rows = rows.filter(rows.gpu_index.notnull()).select("device_id", "node", "gpu_index", "from_utc", "to_utc")
    return unite(rows, ["device_id", "node", "gpu_index"])


def find_misnumbered(allocations: Expr, numbers: Expr) -> Expr:
    """The nodes on which labels name a GPU for a job, longer than labels linger, whose number is none of those of the job."""
    rows = open_ends(allocations)
    listed = pick_listed(rows)
    listed = list_aliases(listed.filter(listed.device_id.isnull(), listed.gpu_indices.notnull()))
    labelled = pick_labelled(rows)
    seen = labelled.join(numbers, shares_time(labelled, numbers, ["device_id"])).select(
        numbers.node, numbers.gpu_index, label=labelled.job_id, **intersect(labelled, numbers)
    )
    both = listed.join(seen, shares_time(listed, seen, ["label", "node"])).select(
        listed.node, listed.gpu_indices, seen.gpu_index, **intersect(listed, seen)
    )
    mark = ibis.literal(",")
    number = mark + both.gpu_index.cast("int64").cast("string") + mark
    wrong = both.filter(both.to_utc - both.from_utc > LINGER_MS, ~(mark + both.gpu_indices + mark).contains(number))
    return wrong.select("node").distinct()


def name_numbered(claims: Expr, numbers: Expr, locations: Expr, misnumbered: Expr) -> Expr:
    """Claims by the day; while numbers say which GPUs of its node a claim has, it is one row for each of these."""
    has_numbers = claims.device_id.isnull() & claims.node.notnull() & claims.gpu_indices.notnull()
    has_numbers = ibis.coalesce(has_numbers & claims.node.notin(misnumbered.node), False)
    rows = claims.filter(has_numbers)
    order = [rows[c] for c in ("job_id", "attempt", "from_utc", "node", "pool", "gpu_indices", "gpus", "to_utc")]
    rows = rows.mutate(claim=ibis.row_number().over(ibis.window(order_by=order)))
    there = locations.semi_join(rows, list(_NODE_DAY))
    held = _locate_by_day(claims.filter(claims.device_id.notnull()), there)
    numbered = _locate_by_day(numbers.select("device_id", "gpu_index", "from_utc", "to_utc"), there, by_day=False)
    pieces = cut_at_bounds([of.select(*_PIECE) for of in (rows, there, held, numbered)], _NODE_DAY)
    gpus = pieces.join(numbered, covers(pieces, numbered, _NODE_DAY)).select(
        pieces, numbered.device_id, numbered.gpu_index
    )
    named = _name_each(rows, pieces, gpus)
    believed = _find_whole(pieces, there, gpus).anti_join(_find_doubtful(rows, pieces, named, held), list(_PIECE))
    keys = ["claim", *_NODE_DAY]
    named = named.semi_join(believed, list(_PIECE)).select(*keys, "device_id", "from_utc", "to_utc")
    left = pieces.anti_join(believed, list(_PIECE))
    left = left.join(rows, covers(left, rows, _NODE_DAY)).select(rows.claim, left, device_id=ibis.null("string"))
    found = ibis.union(unite(named, [*keys, "device_id"]), unite(left, [*keys, "device_id"]))
    out = found.join(rows, [found.claim == rows.claim]).select(
        *(rows[c] for c in (*CLAIM, "pool", "inferred") if c != "gpus"),
        *(found[c] for c in ("device_id", "node", "from_utc", "to_utc")),
        gpus=ibis.ifelse(found.device_id.isnull(), rows.gpus, 1.0),
    )
    return ibis.union(claims.filter(~has_numbers).select(*_CLAIM_COLUMNS), out.select(*_CLAIM_COLUMNS))


def _locate_by_day(rows: Expr, there: Expr, by_day: bool = True) -> Expr:
    """Rows of GPUs with the node that each is in, by the day."""
    joined = rows.join(there, shares_time(rows, there, ["device_id", DAY] if by_day else ["device_id"]))
    rest = [rows[c] for c in rows.columns if c not in (*_PIECE, "pool")]
    return joined.select(*rest, there.node, there[DAY], **intersect(rows, there))


def _name_each(rows: Expr, pieces: Expr, gpus: Expr) -> Expr:
    reported = rows.select(*_PIECE, "claim", gpu_index=rows.gpu_indices.split(",").unnest())
    reported = reported.mutate(gpu_index=reported.gpu_index.try_cast("int64").cast("float64"))
    requested = pieces.join(reported, covers(pieces, reported, _NODE_DAY)).select(
        pieces, reported.claim, reported.gpu_index
    )
    return requested.join(gpus, [*_PIECE, "gpu_index"]).select(
        *(requested[c] for c in (*_PIECE, "claim")), gpus.device_id
    )


def _find_whole(pieces: Expr, there: Expr, gpus: Expr) -> Expr:
    """The pieces in which all GPUs of the node are whole ones, numbered from 0 without a gap."""
    size = pieces.join(there, covers(pieces, there, _NODE_DAY)).select(pieces, there.share)
    size = size.group_by(_PIECE).aggregate(size=size.count(), least=size.share.min())
    known = gpus.group_by(_PIECE).aggregate(
        rows=gpus.count(),
        devices=gpus.device_id.nunique(),
        numbers=gpus.gpu_index.nunique(),
        last=gpus.gpu_index.max().cast("int64"),
    )
    both = size.join(known, list(_PIECE))
    whole = both.filter(
        both.least == 1.0,
        both.size == both.rows,
        both.size == both.devices,
        both.size == both.numbers,
        both.size == both.last + 1,
    )
    return whole.select(*_PIECE)


def _find_doubtful(rows: Expr, pieces: Expr, named: Expr, held: Expr) -> Expr:
    """The pieces in which a claim names another number of GPUs than it has, or one that another claim holds."""
    requested = pieces.join(rows, covers(pieces, rows, _NODE_DAY)).select(pieces, rows.claim, rows.gpus)
    count = named.group_by([*_PIECE, "claim"]).aggregate(rows=named.count(), devices=named.device_id.nunique())
    counted = requested.left_join(count, [*_PIECE, "claim"]).select(
        *(requested[c] for c in (*_PIECE, "gpus")),
        rows=ibis.coalesce(count.rows, 0),
        devices=ibis.coalesce(count.devices, 0),
    )
    miscounted = counted.filter((counted.gpus != counted.rows) | (counted.gpus != counted.devices))
    by_others = pieces.join(held, covers(pieces, held, _NODE_DAY)).select(pieces, held.device_id)
    mentioned = ibis.union(
        named.select(*_PIECE, "device_id", by_number=ibis.literal(1)),
        by_others.select(*_PIECE, "device_id", by_number=ibis.literal(0)),
    )
    mentioned = mentioned.group_by([*_PIECE, "device_id"]).aggregate(
        times=mentioned.count(), by_number=mentioned.by_number.sum()
    )
    twice = mentioned.filter(mentioned.times > 1, mentioned.by_number > 0)
    return ibis.union(*(of.select(*_PIECE) for of in (miscounted, twice)), distinct=True)
