"""Where a GPU works that nobody is said to hold: which samples are evidence of that, and which belong to a holder before or after.

A sample is a mean over its interval. One that reaches into time in which somebody holds the GPU says nothing of the time beside
it: only a sample that lies in unheld time as a whole does. Hours are booked one by one, so a sample that reaches over the edge
of an hour counts when a whole one in the same unheld stretch of that hour shows work, too, or when the stretch has no whole
sample and nobody held the GPU in that hour.
"""

from typing import Any

import ibis

from loadfactor.ledger.intervals import number_islands

NONE, EDGE, WHOLE = 0, 1, 2
"""What a sample is evidence of in an unheld stretch: of nothing, perhaps, surely."""

Expr = Any


def list_spans(holdings: Expr, weighed: bool = True) -> Expr:
    """The stretches of single GPUs, each once however many share it.

    `free_from` and `free_to` limit the unheld time around a span in its hour, null where somebody holds the GPU; `held_hour`
    says that somebody holds it at another time of that hour. Not `weighed`: as if all were held, for there is no evidence.
    """
    columns = ["span", "device_id", "hour_utc", "from_utc", "to_utc"]
    nothing = ibis.null("int64")
    if not weighed:
        rows = holdings.select(*columns).distinct()
        return rows.mutate(free_from=nothing, free_to=nothing, held_hour=ibis.literal(False))
    rows = holdings.select(*columns, "free").distinct()
    keys = ["device_id", "hour_utc"]
    free = number_islands(rows.filter(rows.free).select(*columns), keys)
    stretch = ibis.window(group_by=[*keys, "island"])
    free = free.select(*columns, free_from=free.from_utc.min().over(stretch), free_to=free.to_utc.max().over(stretch))
    other = rows.filter(~rows.free)
    held = other.filter(other.device_id.notnull()).select(*keys, held_hour=ibis.literal(True)).distinct()
    out = ibis.union(free, other.select(*columns, free_from=nothing, free_to=nothing))
    marked = out.left_join(held, keys)
    return marked.select(out, held_hour=ibis.coalesce(held.held_hour, False))


def lies_within_hour(samples: Expr) -> Expr:
    """True where a sample lies in one hour as a whole. `since`, `until`: its part in the hour."""
    return (samples.since > samples.hour_utc) & (samples.until == samples.sampled_utc)


def weigh_evidence(samples: Expr, spans: Expr) -> Expr:
    """What a sample says of the unheld stretch around a span: NONE, EDGE or WHOLE. `whole`: see `lies_within_hour`."""
    inside = (samples.since >= spans.free_from) & (samples.until <= spans.free_to)
    return ibis.ifelse(inside, ibis.ifelse(samples.whole, WHOLE, EDGE), NONE).cast("int8")


def find_unheld_work(spans: Expr, observed: Expr) -> Expr:
    """Where GPUs work that nobody is said to hold: span, idle and evidence of such rows of `observed`, with `works` true."""
    free = spans.filter(spans.free_from.notnull())
    seen = observed.filter(observed.idle.notnull(), observed.evidence > NONE).join(free, "span")
    stretch = ["device_id", "hour_utc", "free_from"]
    whole = seen.evidence == WHOLE
    known = seen.group_by(stretch).aggregate(
        whole=ibis.ifelse(whole, 1, 0).sum(), working=ibis.ifelse(whole & ~seen.idle, 1, 0).sum()
    )
    active = seen.filter(~seen.idle).join(known, stretch)
    likely = (active.working > 0) | ((active.whole == 0) & ~active.held_hour)
    counted = active.filter((active.evidence == WHOLE) | likely)
    return counted.select("span", "idle", "evidence", works=ibis.literal(True)).distinct()
