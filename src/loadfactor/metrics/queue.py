"""How long did jobs wait? From eligible (else submitted or requeued) to started; who still waits is counted, not dropped."""

from typing import Any

import ibis

from loadfactor.ledger.holders import HOLDER
from loadfactor.metrics.metric import Count, Metric, Quantile
from loadfactor.units import MS_PER_S

Expr = Any
_WHO = tuple(c for c in HOLDER if c not in ("job_id", "attempt"))
_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


def waits(allocations: Expr, queue_events: Expr) -> Expr:
    """One row a wait: job_id, pool, who, gpus, queued_utc, ended_utc and wait_s (null while waiting), started.

    Allocations that say when they were asked for count as events too, and those of jobs with events at least as starts: who
    holds GPUs waits no longer. The same event from both sides is one. A requeued job waits again: each start or cancellation
    ends an episode.
    """
    told = ibis.union(_recorded(queue_events), *_implied(allocations, queue_events), distinct=False)
    who = told.group_by("job_id").aggregate(**{c: told[c].max() for c in ("pool", *_WHO)})
    events = told.group_by("job_id", "at_utc", "event").aggregate(gpus=told.gpus.max())
    ends = events.event.isin(["started", "cancelled"])
    order = ibis.cases((events.event == "requeued", 0), (ends, 2), else_=1)
    events = events.mutate(ends=ibis.ifelse(ends, 1, 0), order=order)
    before = ibis.window(group_by=events.job_id, order_by=[events.at_utc, events.order], preceding=(None, 1))
    events = events.mutate(episode=ibis.coalesce(events.ends.sum().over(before), 0))
    asked = events.event.isin(["submitted", "requeued"])
    out = events.group_by("job_id", "episode").aggregate(
        queued_utc=ibis.coalesce(events.at_utc.max(where=events.event == "eligible"), events.at_utc.min(where=asked)),
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
    asked = allocations.filter(
        allocations.submitted_utc.notnull()
        | allocations.eligible_utc.notnull()
        | allocations.job_id.isin(queue_events.job_id)
    )
    gpus = ibis.coalesce(asked.gpus, 1.0) * ibis.coalesce(asked.share, 1.0)
    starts = asked.group_by("job_id", "submitted_utc", "eligible_utc", "from_utc").aggregate(
        gpus=gpus.sum(), **{c: asked[c].max() for c in ("pool", *_WHO)}
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


def _wait(name: str, title: str, meaning: str, kind: Quantile) -> Metric:
    return Metric(name, "s", title, meaning, "lower", kind, "queue")


QUEUE = (
    *(
        _wait(f"queue_wait_s_{p}", f"Queue wait {p}", f"{q:.0%} of the jobs that started waited no longer.", Quantile("wait_s", q))
        for p, q in _QUANTILES
    ),
    _wait("queue_wait_s_mean", "Mean queue wait", "Mean wait of jobs that started.", Quantile("wait_s", mean=True)),
    *(
        _wait(
            f"queue_wait_s_{p}_gpu_weighted",
            f"Queue wait {p} by GPU",
            f"{q:.0%} of the GPUs asked for by jobs that started waited no longer.",
            Quantile("wait_s", q, weight="gpus"),
        )
        for p, q in _QUANTILES
    ),
    _wait(
        "queue_wait_s_mean_gpu_weighted", "Mean queue wait by GPU", "Mean wait, each job counted once a GPU.",
        Quantile("wait_s", weight="gpus", mean=True),
    ),
    Metric(
        "queue_waiting", "jobs", "Cancelled or pending",
        "Jobs that were pending at the end of the window or cancelled in it: their waits are longer than known.",
        "lower", Count(), "queue",
    ),
)  # fmt: skip
