"""Overlapping samples of a GPU: at each instant, each measurement counts once, from the best sample that took it.

Two exporters may watch one GPU, and given intervals may overlap. Only such files pass through here (the store marks them).
Order of the samples of an instant, best first: the best activity signal measured, then the shorter interval (its part in the
hour), then the source's name, then the later start. Memory in use and memory there is make one share, so both are taken from the
best sample that has both, where there is one.
"""

from typing import Any

import ibis

from loadfactor.ledger.activity import ACTIVITIES
from loadfactor.ledger.intervals import covers, cut_at_bounds
from loadfactor.tables.schema import MEASUREMENTS, measured_bit

MEMORY = ("mem_used_bytes", "mem_total_bytes")
_AT = ("device_id", "hour_utc", "from_utc", "to_utc")

Expr = Any


def resolve_overlaps(samples: Expr, measured: int = -1) -> Expr:
    """The samples cut so that no two of a GPU overlap; same columns, the others from the best sample of the instant.

    `measured` is the union of the masks: measurements that nobody took are not looked at.
    """
    keys = ["device_id", "hour_utc"]
    pieces = cut_at_bounds([samples.select(*keys, "from_utc", "to_utc")], keys)
    order = ibis.cases(
        *(((samples.measured_mask & kind.bit) > 0, order) for order, kind in enumerate(ACTIVITIES)),
        else_=len(ACTIVITIES),
    )
    ranked = samples.mutate(kind_rank=order, length_ms=samples.to_utc - samples.from_utc)
    joined = pieces.join(ranked, covers(pieces, ranked, keys)).select(
        pieces, *(ranked[c] for c in ranked.columns if c not in _AT), start_utc=ranked.from_utc
    )
    best_first = [joined.kind_rank, joined.length_ms, joined.source, joined.start_utc.desc(), joined.sampled_utc]
    window = ibis.window(group_by=[joined.device_id, joined.from_utc], order_by=best_first)
    joined = joined.mutate(rank=ibis.row_number().over(window))
    taken = [c for c in MEASUREMENTS if measured & measured_bit(c)]
    given: dict[str, Expr] = {c: ibis.null(samples[c].type()) for c in MEASUREMENTS}
    given |= {c: _best(joined, c, joined[c].notnull()) for c in taken}
    if {*MEMORY} <= {*taken}:
        both = joined[MEMORY[0]].notnull() & joined[MEMORY[1]].notnull()
        given |= {c: ibis.coalesce(_best(joined, c, both), given[c]) for c in MEMORY}
    # the union of the masks bit by bit: not every engine has it as one function
    bits = [(joined.measured_mask & measured_bit(c)).max() for c in taken]
    given["measured_mask"] = sum(bits, (joined.measured_mask & 0).max())
    others = {c: _best(joined, c, joined["rank"] == 0) for c in samples.columns if c not in (*_AT, *given)}
    return joined.group_by(list(_AT)).aggregate(**given, **others).select(*samples.columns)


def _best(rows: Expr, column: str, where: Expr) -> Expr:
    """The value of the best row that satisfies a condition."""
    return rows[column].argmin(rows["rank"], where=where)
