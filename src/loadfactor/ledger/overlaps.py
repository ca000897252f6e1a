"""Overlapping samples of a GPU: at each instant one of them counts, the one with the best signal.

Two exporters may watch one GPU, and given intervals may overlap. Only such files pass through here (the store marks them).
Order: the best activity signal measured, then the shorter interval (its part in the hour), then the source's name, then the
later start.
"""

from typing import Any

import ibis

from loadfactor.ledger.activity import ACTIVITIES
from loadfactor.ledger.intervals import covers, cut_at_bounds

Expr = Any


def resolve_overlaps(samples: Expr) -> Expr:
    """The samples cut so that no two of a GPU overlap; same columns."""
    keys = ["device_id", "hour_utc"]
    pieces = cut_at_bounds([samples.select(*keys, "from_utc", "to_utc")], keys)
    rank = ibis.cases(
        *(((samples.measured_mask & kind.bit) > 0, order) for order, kind in enumerate(ACTIVITIES)),
        else_=len(ACTIVITIES),
    )
    ranked = samples.mutate(kind_rank=rank, length_ms=samples.to_utc - samples.from_utc)
    joined = pieces.join(ranked, covers(pieces, ranked, keys)).select(
        pieces,
        *(ranked[c] for c in ranked.columns if c not in (*keys, "from_utc", "to_utc")),
        start_utc=ranked.from_utc,
    )
    order = [joined.kind_rank, joined.length_ms, joined.source, joined.start_utc.desc(), joined.sampled_utc]
    window = ibis.window(group_by=[joined.device_id, joined.from_utc], order_by=order)
    first = joined.mutate(rank=ibis.row_number().over(window)).filter(lambda t: t["rank"] == 0)
    return first.select(*samples.columns)
