"""Load of the serving jobs of the books: their requests, tokens, hours and cost, as plans take them."""

from datetime import datetime
from typing import Any, Final

import ibis

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.units import MS_PER_S, S_PER_HOUR
from loadfactor.books.snapshot import Snapshot
from loadfactor.metrics.metric import CURRENCY, Made, Metric, PerUnit, Speed
from loadfactor.metrics.query.calendar import instant, milliseconds
from loadfactor.metrics.work import OUTPUT, PROMPT
from loadfactor.planner.economics.measured_load import MeasuredLoad

REQUEST: Final = "request"
ASKED: Final = (
    Metric("requests", "requests", "", "", "neither", Made(REQUEST)),
    Metric("prompts", "tokens", "", "", "neither", Made(PROMPT)),
    Metric("outputs", "tokens", "", "", "neither", Made(OUTPUT)),
    Metric("speed", "tokens/s", "", "", "neither", Speed(OUTPUT)),
    Metric("cost_each", f"{CURRENCY} per output token", "", "", "neither", PerUnit(OUTPUT)),
)
WHOLE_HOUR: Final = 0.5
"""An hour counts as the busiest only where at least this share of the most GPUs held in an hour was held in it."""


Window = tuple[datetime | None, datetime | None]
"""From when to when; None where nothing is reported."""


def find_serving_load(books: Snapshot, job: str | None = None, window: Window = (None, None)) -> MeasuredLoad:
    """Of all jobs that made output tokens, or of one, from the first of their progress in the window to the last.

    Raises InputError where there is none, where no requests were counted, or where they held no GPU that the books know.
    """
    rows = _list_progress(books, window)
    if not rows and any(window):
        raise InputError("the books hold no output tokens in that time; ask for another --from, --to or --last")
    if not rows:
        raise InputError(
            f"the books in {books.name} hold no output tokens; begin with `loadfactor import serving FILE…`"
        )
    if job is not None and job not in rows:
        raise no_such("job that serves", job, rows)
    chosen = {job: rows[job]} if job is not None else rows
    start, end = min(of["first"] for of in chosen.values()), max(of["last"] for of in chosen.values())
    counted_s = sum(of["counted"] for of in chosen.values()) / MS_PER_S
    where = {"job": job} if job is not None else None
    whole, hours = (books.show(ASKED, by, instant(start), instant(end), where=where) for by in ((), ("hour",)))
    total = {metric.name: _known(whole.column(metric.name)[0]) for metric in ASKED}
    of = job or "the jobs that serve"
    if not total["requests"]:
        raise InputError(
            f"nobody counted the requests of {of}; give --input-tokens, --output-tokens and demand instead of --store"
        )
    if not total["speed"] or not counted_s:
        raise InputError(f"the books know no GPUs that {of} held; import allocations, or their log with --job")
    gpu_s = total["outputs"] / total["speed"]
    by_hour = [
        {metric.name: _known(hours.column(metric.name)[place]) for metric in ASKED} for place in range(len(hours.keys))
    ]
    gpus = max(1, round(gpu_s / counted_s))
    active_s = sum(of["active"] for of in chosen.values()) / MS_PER_S
    cost_each = whole[-1]
    return MeasuredLoad(
        jobs=tuple(sorted(chosen)),
        span_s=(end - start) / MS_PER_S,
        gpu_s=gpu_s,
        cost=None if cost_each.value is None else total["cost_each"] * total["outputs"],
        currency=cost_each.currency or "",
        requests=total["requests"],
        prompt_tokens=total["prompts"],
        output_tokens=total["outputs"],
        duty_share=active_s / counted_s,
        counted_share=min(1.0, counted_s * gpus / gpu_s),
        busiest_tokens_per_gpu_s=_find_busiest(by_hour),
        busiest_requests_per_s=max(hour["requests"] for hour in by_hour) / S_PER_HOUR,
        gpus_per_replica=gpus,
    )


def _known(value: Any) -> float:
    return value if isinstance(value, float) else 0.0


def _find_busiest(hours: list[dict[str, float]]) -> float:
    """The most tokens that a GPU-second made over an hour."""
    held = {place: hour["outputs"] / hour["speed"] for place, hour in enumerate(hours) if hour["speed"]}
    least = WHOLE_HOUR * max(held.values())
    return max(
        (hours[place]["prompts"] + hours[place]["outputs"]) / gpu_s for place, gpu_s in held.items() if gpu_s >= least
    )


def _list_progress(books: Snapshot, window: Window) -> dict[str, dict[str, int]]:
    """By job with output tokens: its first and last instant, and the milliseconds of its replicas, counted and with tokens."""
    progress = books.view("progress")
    begin, end = (None if at is None else milliseconds(at) for at in window)
    cut = progress.mutate(
        from_utc=progress.from_utc if begin is None else ibis.greatest(progress.from_utc, begin),
        to_utc=progress.to_utc if end is None else ibis.least(progress.to_utc, end),
    )
    rows = cut.filter(cut.unit == OUTPUT, cut.to_utc > cut.from_utc)
    length = rows.to_utc - rows.from_utc
    found = rows.group_by("job_id").aggregate(
        first=rows.from_utc.min(),
        last=rows.to_utc.max(),
        counted=length.sum(),
        active=length.sum(where=rows.amount > 0),
    )
    return {row.pop("job_id"): {k: int(v or 0) for k, v in row.items()} for row in books.fetch(found).to_pylist()}
