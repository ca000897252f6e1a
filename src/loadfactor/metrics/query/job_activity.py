"""What the GPUs of one job did, sample by sample: queries that hold no name and no instant, so that they are compiled once."""

from typing import Any

import ibis

from loadfactor.ledger.columns import ACTIVITIES
from loadfactor.ledger.intervals import shares_time
from loadfactor.ledger.states import resolve_overlaps

Expr = Any


def list_held(allocations: Expr) -> Expr:
    """What the table `held_gpus` holds: the GPUs that allocations name for the job, or labels by its scheduler's number.

    The table `chosen_job` is one row: the job, and the time asked for.
    """
    asked = ibis.table({"job_id": "string", "from_utc": "int64", "to_utc": "int64"}, name="chosen_job")
    own = allocations.semi_join(asked, "job_id")
    labels = own.select(label=ibis.coalesce(own.job_number, own.job_id))
    own = ibis.union(own, allocations.semi_join(labels, allocations.job_id == labels.label))
    named = own.filter(own.device_id.notnull())
    held = named.cross_join(asked).select(
        named.device_id,
        from_utc=ibis.greatest(named.from_utc, asked.from_utc),
        to_utc=ibis.least(ibis.coalesce(named.to_utc, asked.to_utc), asked.to_utc),
    )
    return held.filter(held.from_utc < held.to_utc).distinct()


def list_activity(samples: Expr, overlaps: bool) -> Expr:
    """Activity of `held_gpus` while they are held, by the best signal of each sample: device_id, from_ms, to_ms, activity."""
    held = ibis.table({"device_id": "string", "from_utc": "int64", "to_utc": "int64"}, name="held_gpus")
    samples = samples.semi_join(held, "device_id")
    if overlaps:
        samples = resolve_overlaps(samples)
    rows = samples.mutate(activity=ibis.coalesce(*(samples[kind.column] for kind in ACTIVITIES)))
    rows = rows.filter(rows.activity.notnull())
    return rows.join(held, shares_time(rows, held, ["device_id"])).select(
        rows.device_id,
        from_ms=ibis.greatest(rows.from_utc, held.from_utc),
        to_ms=ibis.least(rows.to_utc, held.to_utc),
        activity=rows.activity,
    )
