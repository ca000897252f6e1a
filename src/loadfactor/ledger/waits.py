"""Waits of jobs, from their queue events and allocations: from eligible (else submitted or requeued) to started."""

from typing import Any

import ibis

from loadfactor.ledger.columns import HOLDER
from loadfactor.ledger.labels import pick_listed
from loadfactor.units import MS_PER_S

Expr = Any
_WHO = tuple(c for c in HOLDER if c not in ("job_id", "attempt"))


def list_waits(allocations: Expr, queue_events: Expr) -> Expr:
    """One row a wait: job_id, pool, who, gpus, queued_utc, ended_utc and wait_s (null while waiting), started.

    Allocations that say when they were requested for count as events too, and those of jobs with events at least as starts: who
    holds GPUs waits no longer. The same event from both sides is one. A requeued job waits again: each start or cancellation
    ends an episode.
    """
    listed = pick_listed(allocations)  # labels say when a job worked, not when it got its GPUs
    rows = ibis.union(_recorded(queue_events), *_implied(listed, queue_events), distinct=False)
    who = rows.group_by("job_id").aggregate(**{c: rows[c].max() for c in ("pool", *_WHO)})
    events = rows.group_by("job_id", "at_utc", "event").aggregate(gpus=rows.gpus.max())
    ends = events.event.isin(["started", "cancelled"])
    order = ibis.cases((events.event == "requeued", 0), (ends, 2), else_=1)
    events = events.mutate(ends=ibis.ifelse(ends, 1, 0), order=order)
    before = ibis.window(group_by=events.job_id, order_by=[events.at_utc, events.order], preceding=(None, 1))
    events = events.mutate(episode=ibis.coalesce(events.ends.sum().over(before), 0))
    requested = events.event.isin(["submitted", "requeued"])
    out = events.group_by("job_id", "episode").aggregate(
        queued_utc=ibis.coalesce(
            events.at_utc.max(where=events.event == "eligible"), events.at_utc.min(where=requested)
        ),
        started_utc=events.at_utc.min(where=events.event == "started"),
        cancelled_utc=events.at_utc.min(where=events.event == "cancelled"),
        gpus=events.gpus.max(),
    )
    out = out.join(who, "job_id")
    out = out.filter(out.queued_utc.notnull())
    ended = ibis.coalesce(out.started_utc, out.cancelled_utc)
    return out.mutate(
        started=out.started_utc.notnull(),
        ended_utc=ended,
        wait_s=(out.started_utc - out.queued_utc).cast("float64") / MS_PER_S,
    ).drop("started_utc", "cancelled_utc", "episode")


def _recorded(queue_events: Expr) -> Expr:
    columns = ["job_id", "at_utc", "event", "gpus", "pool", *_WHO]
    return queue_events.select(*columns)


def _implied(allocations: Expr, queue_events: Expr) -> list[Expr]:
    """The events that allocations speak of, with the GPUs of all rows of the same start added up."""
    requested = allocations.filter(
        allocations.submitted_utc.notnull()
        | allocations.eligible_utc.notnull()
        | allocations.job_id.isin(queue_events.job_id)
    )
    gpus = ibis.coalesce(requested.gpus, 1.0) * ibis.coalesce(requested.share, 1.0)
    starts = requested.group_by("job_id", "submitted_utc", "eligible_utc", "from_utc").aggregate(
        gpus=gpus.sum(), **{c: requested[c].max() for c in ("pool", *_WHO)}
    )
    return [
        starts.filter(starts[column].notnull()).select(
            "job_id",
            at_utc=starts[column],
            event=ibis.literal(event),
            gpus=starts.gpus,
            **{c: starts[c] for c in ("pool", *_WHO)},
        )
        for column, event in (("submitted_utc", "submitted"), ("eligible_utc", "eligible"), ("from_utc", "started"))
    ]
