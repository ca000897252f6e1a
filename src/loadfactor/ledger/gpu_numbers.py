"""GPUs that a scheduler names by their number on their node, as devices, where nothing contradicts that.

A scheduler numbers the GPUs of a node in an order of its own (Slurm in that of gres.conf, by default the one of the device files),
an exporter says the number that the driver gives. On most machines that is one order, on some it is not. So numbers count only
while every GPU of the node is a whole one with a known number, these go from 0 to one less than there are, every holder names as
many as it has, and none of them is somebody else's. Labels come before numbers, and where labels ever named another GPU for a job
than its numbers do, the numbers of that node are believed at no time. What does not count stays where it was, at the node.
"""

from typing import Any

import ibis

from loadfactor.ledger.intervals import covers, cut_at_bounds, intersect, open_ends, shares_time, unite
from loadfactor.ledger.labels import list_aliases, pick_labelled, pick_listed
from loadfactor.ledger.scope import CLAIM, DAY
from loadfactor.tables.schema import LINGER_MS

_COLUMNS = (*CLAIM, "device_id", "node", "pool", "from_utc", "to_utc", "inferred")
_PLACE = ("node", DAY)
_PIECE = (*_PLACE, "from_utc", "to_utc")

Expr = Any


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
    is_asked = claims.device_id.isnull() & claims.node.notnull() & claims.gpu_indices.notnull()
    is_asked = ibis.coalesce(is_asked & claims.node.notin(misnumbered.node), False)
    rows = claims.filter(is_asked)
    order = [rows[c] for c in ("job_id", "attempt", "from_utc", "node", "pool", "gpu_indices", "gpus", "to_utc")]
    rows = rows.mutate(claim=ibis.row_number().over(ibis.window(order_by=order)))
    there = locations.semi_join(rows, list(_PLACE))
    held = _locate(claims.filter(claims.device_id.notnull()), there)
    numbered = _locate(numbers.select("device_id", "gpu_index", "from_utc", "to_utc"), there, by_day=False)
    pieces = cut_at_bounds([of.select(*_PIECE) for of in (rows, there, held, numbered)], _PLACE)
    gpus = pieces.join(numbered, covers(pieces, numbered, _PLACE)).select(
        pieces, numbered.device_id, numbered.gpu_index
    )
    named = _name_each(rows, pieces, gpus)
    believed = _find_whole(pieces, there, gpus).anti_join(_find_doubtful(rows, pieces, named, held), list(_PIECE))
    keys = ["claim", *_PLACE]
    named = named.semi_join(believed, list(_PIECE)).select(*keys, "device_id", "from_utc", "to_utc")
    left = pieces.anti_join(believed, list(_PIECE))
    left = left.join(rows, covers(left, rows, _PLACE)).select(rows.claim, left, device_id=ibis.null("string"))
    found = ibis.union(unite(named, [*keys, "device_id"]), unite(left, [*keys, "device_id"]))
    out = found.join(rows, [found.claim == rows.claim]).select(
        *(rows[c] for c in (*CLAIM, "pool", "inferred") if c != "gpus"),
        *(found[c] for c in ("device_id", "node", "from_utc", "to_utc")),
        gpus=ibis.ifelse(found.device_id.isnull(), rows.gpus, 1.0),
    )
    return ibis.union(claims.filter(~is_asked).select(*_COLUMNS), out.select(*_COLUMNS))


def _locate(rows: Expr, there: Expr, by_day: bool = True) -> Expr:
    """Rows of GPUs with the node that each is in, by the day."""
    joined = rows.join(there, shares_time(rows, there, ["device_id", DAY] if by_day else ["device_id"]))
    rest = [rows[c] for c in rows.columns if c not in (*_PIECE, "pool")]
    return joined.select(*rest, there.node, there[DAY], **intersect(rows, there))


def _name_each(rows: Expr, pieces: Expr, gpus: Expr) -> Expr:
    """The GPUs that the numbers of each claim name."""
    said = rows.select(*_PIECE, "claim", gpu_index=rows.gpu_indices.split(",").unnest())
    said = said.mutate(gpu_index=said.gpu_index.try_cast("int64").cast("float64"))
    asked = pieces.join(said, covers(pieces, said, _PLACE)).select(pieces, said.claim, said.gpu_index)
    return asked.join(gpus, [*_PIECE, "gpu_index"]).select(*(asked[c] for c in (*_PIECE, "claim")), gpus.device_id)


def _find_whole(pieces: Expr, there: Expr, gpus: Expr) -> Expr:
    """The pieces in which all GPUs of the node are whole ones, numbered from 0 without a gap."""
    size = pieces.join(there, covers(pieces, there, _PLACE)).select(pieces, there.share)
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
    asked = pieces.join(rows, covers(pieces, rows, _PLACE)).select(pieces, rows.claim, rows.gpus)
    count = named.group_by([*_PIECE, "claim"]).aggregate(rows=named.count(), devices=named.device_id.nunique())
    counted = asked.left_join(count, [*_PIECE, "claim"]).select(
        *(asked[c] for c in (*_PIECE, "gpus")),
        rows=ibis.coalesce(count.rows, 0),
        devices=ibis.coalesce(count.devices, 0),
    )
    miscounted = counted.filter((counted.gpus != counted.rows) | (counted.gpus != counted.devices))
    by_others = pieces.join(held, covers(pieces, held, _PLACE)).select(pieces, held.device_id)
    mentioned = ibis.union(
        named.select(*_PIECE, "device_id", by_number=ibis.literal(1)),
        by_others.select(*_PIECE, "device_id", by_number=ibis.literal(0)),
    )
    mentioned = mentioned.group_by([*_PIECE, "device_id"]).aggregate(
        times=mentioned.count(), by_number=mentioned.by_number.sum()
    )
    twice = mentioned.filter(mentioned.times > 1, mentioned.by_number > 0)
    return ibis.union(*(of.select(*_PIECE) for of in (miscounted, twice)), distinct=True)
