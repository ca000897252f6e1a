"""Waits of jobs, from queue events and allocations: from eligible (else submitted or requeued) to started; and jobs as they ran."""

import ibis

from loadfactor.base.units import MS_PER_S
from loadfactor.ledger.columns import HOLDER, SIZES
from loadfactor.ledger.intervals import Expr
from loadfactor.ledger.labels import pick_listed
from loadfactor.tables.schema import EVENTS

_WHO = (*(c for c in HOLDER if c not in ("job_id", "attempt")), "queue")


def list_waits(allocations: Expr, queue_events: Expr) -> Expr:
    """One row a wait: job_id, episode, pool, queue, who, gpus, size, reason, queued_utc, ended_utc, wait_s, started.

    `ended_utc` and `wait_s` are null while it waits; `size` is the class of `gpus` (1 where not known); `reason` is the last one
    reported while it waited, up to its first colon.

    Allocations that say when they were requested for count as events too, and those of jobs with events at least as starts: who
    holds GPUs waits no longer. The same event from both sides is one. A requeued job waits again: each start or cancellation
    ends an episode.
    """
    rows = _gather(allocations, queue_events)
    who = rows.group_by("job_id").aggregate(**{c: rows[c].max() for c in ("pool", *_WHO)})
    events = _number_episodes(rows)
    requested = events.event.isin(["submitted", "requeued"])
    out = events.group_by("job_id", "episode").aggregate(
        queued_utc=ibis.coalesce(
            events.at_utc.max(where=events.event == "eligible"), events.at_utc.min(where=requested)
        ),
        started_utc=events.at_utc.min(where=events.event == "started"),
        cancelled_utc=events.at_utc.min(where=events.event == "cancelled"),
        gpus=events.gpus.max(),
        reason=events.reason.argmax(events.moment, where=events.reason.notnull()),
        reported_utc=events.at_utc.max(where=events.reason.notnull()),
    )
    out = out.join(who, "job_id")
    out = out.filter(out.queued_utc.notnull())
    ended = ibis.coalesce(out.started_utc, out.cancelled_utc)
    return out.mutate(
        size=_class_sizes(out.gpus),
        reason=ibis.ifelse(
            out.reported_utc >= out.queued_utc, out.reason, ibis.null("string")
        ),  # else it held the job back before
        started=out.started_utc.notnull(),
        ended_utc=ended,
        wait_s=(out.started_utc - out.queued_utc).cast("float64") / MS_PER_S,
    ).drop("started_utc", "cancelled_utc", "reported_utc")


def list_reasons(waits: Expr, allocations: Expr, queue_events: Expr) -> Expr:
    """One row a reason that a wait had for a while: job_id, episode, reported, from_utc and to_utc (null while it lasts).

    What was reported before the job could have started, a dependency or a hold, is the reason of no wait.
    """
    of_some = queue_events.filter(queue_events.reason.notnull()).job_id
    of_them = (table.filter(table.job_id.isin(of_some)) for table in (allocations, queue_events))
    events = _number_episodes(_gather(*of_them))
    stated = events.filter(events.reason.notnull())
    after = ibis.window(group_by=[stated.job_id, stated.episode], order_by=stated.moment)
    stated = stated.select(
        "job_id", "episode", "at_utc", reported=stated.reason, next_utc=stated.at_utc.lead().over(after)
    )
    rows = stated.join(waits, ["job_id", "episode"])
    rows = rows.filter(rows.at_utc >= rows.queued_utc)
    rows = rows.select(
        "job_id",
        "episode",
        "reported",
        from_utc=rows.at_utc,
        to_utc=ibis.coalesce(ibis.least(rows.next_utc, rows.ended_utc), rows.next_utc, rows.ended_utc),
    )
    return rows.filter(rows.to_utc.isnull() | (rows.to_utc > rows.from_utc))


def _gather(allocations: Expr, queue_events: Expr) -> Expr:
    listed = pick_listed(allocations)  # labels say when a job worked, not when it got its GPUs
    columns = ["job_id", "at_utc", "event", "gpus", "reason", "pool", *_WHO]
    return ibis.union(queue_events.select(*columns), *_implied(listed, queue_events), distinct=False)


def _number_episodes(rows: Expr) -> Expr:
    """Events, each once, with the `episode` of their job that they belong to, and a `moment` that puts those of one in order."""
    reason = rows.reason.split(":")[0]
    events = rows.group_by("job_id", "at_utc", "event").aggregate(gpus=rows.gpus.max(), reason=reason.max())
    ends = events.event.isin(["started", "cancelled"])
    order = ibis.cases((events.event == "requeued", 0), (ends, 2), else_=1)
    place = ibis.cases(*((events.event == event, number) for number, event in enumerate(EVENTS)), else_=0)
    events = events.mutate(
        ends=ibis.ifelse(ends, 1, 0),
        order=order,
        moment=events.at_utc * len(EVENTS) + place,
        reason=ibis.ifelse(ends, ibis.null("string"), events.reason),  # why it ended is another question
    )
    before = ibis.window(group_by=events.job_id, order_by=[events.at_utc, events.order], preceding=(None, 1))
    return events.mutate(episode=ibis.coalesce(events.ends.sum().over(before), 0))


def _class_sizes(gpus: Expr) -> Expr:
    requested = ibis.coalesce(gpus, 1.0)
    classes = [(requested <= most, name) for name, most in SIZES.items() if most is not None]
    smallest, *_, largest = SIZES
    return ibis.cases((requested < 1, smallest), *classes, else_=largest)


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
            reason=ibis.null("string"),
            **{c: starts[c] for c in ("pool", *_WHO)},
        )
        for column, event in (("submitted_utc", "submitted"), ("eligible_utc", "eligible"), ("from_utc", "started"))
    ]


def list_jobs(allocations: Expr) -> Expr:
    """One row for each time a job held GPUs: submitted_ms (else eligible, else the start), from_ms, to_ms, gpus, team, requested.

    Besides job_id, and where that was as far as rows say: pool, node and device_id, the first of several.

    Rows of one start (a gang named GPU by GPU) are one job; a requeued job that starts again is another.
    """
    gpus = ibis.coalesce(allocations.gpus, 1.0) * ibis.coalesce(allocations.share, 1.0)
    requested = ibis.coalesce(allocations.submitted_utc, allocations.eligible_utc)
    rows = allocations.mutate(held_gpus=gpus, requested_utc=requested)
    jobs = rows.group_by("job_id", "attempt", "from_utc").aggregate(
        gpus=rows.held_gpus.sum(),
        to_ms=rows.to_utc.max(),
        requested_utc=rows.requested_utc.min(),
        team=rows.team.max(),
        pool=rows.pool.min(),
        node=rows.node.min(),
        device_id=rows.device_id.min(),
    )
    return jobs.select(
        submitted_ms=ibis.least(ibis.coalesce(jobs.requested_utc, jobs.from_utc), jobs.from_utc),
        from_ms=jobs.from_utc,
        to_ms=jobs.to_ms,
        gpus=jobs.gpus,
        team=ibis.coalesce(jobs.team, ""),
        requested=jobs.requested_utc.notnull(),
        job_id=jobs.job_id,
        pool=jobs.pool,
        node=jobs.node,
        device_id=jobs.device_id,
    )
