"""Traces of a job that the books know: seconds in the trace as money, at the job's own price of a GPU-hour."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from loadfactor.base.errors import InputError
from loadfactor.base.units import S_PER_HOUR, US_PER_S
from loadfactor.books.books import Books
from loadfactor.insight.diagnosis.finding import JobDiagnosis, Range
from loadfactor.insight.traces.report import FoundAt, TraceCost, TraceDiagnosis, TraceInBooks


@dataclass(frozen=True)
class JobRate:
    """What a job held and paid in a window; `price_per_gpu_hour` is None where no price is known."""

    job: str
    held_gpu_hours: float
    busy_gpu_hours: float
    price_per_gpu_hour: float | None
    currency: str


def read_rate(books: Books, job: str, window: tuple[datetime, datetime] | None = None) -> JobRate:
    """The rate of a job within [start, end), by default in all of the books. Raises InputError where they do not know it."""
    start, end = window or books.span
    with books.snapshot() as snapshot:
        found = snapshot.show(("paid_gpu_hours", "busy_gpu_hours", "cost"), "job", start, end, where={"job": job})
        currency = books.store.currency_of(books.store.manifest)
    held, busy, cost = (
        sum(value for value in found.column(name) if isinstance(value, int | float))
        for name in ("paid_gpu_hours", "busy_gpu_hours", "cost")
    )
    if not held:
        raise InputError(
            f"the books know no GPU that job {job!r} held in that time; `loadfactor show paid_gpu_hours --by job` lists jobs"
        )
    return JobRate(job, held, busy, cost / held if cost else None, currency)


def price_trace(found: TraceDiagnosis, rate: JobRate, diagnosis: JobDiagnosis | None = None) -> TraceDiagnosis:
    """The same with money: of each finding the GPU-seconds in the traces, and what the job loses if all it did ran like them.

    `diagnosis` is what the books say of the job, to stand beside it.
    """
    span_us = {(report.trace, report.rank, report.device): report.gpu_span_us for report in found.traces}
    price = rate.price_per_gpu_hour
    costs = []
    for finding in found.findings:
        gpu_s = _add_up(finding.found_at, span_us)
        hours = Range(finding.saved_share_low * rate.busy_gpu_hours, finding.saved_share_high * rate.busy_gpu_hours)
        costs.append(
            TraceCost(
                finding.cause,
                gpu_s,
                None if price is None or gpu_s is None else gpu_s / S_PER_HOUR * price,
                hours.low,
                hours.high,
                None if price is None else hours.low * price,
                None if price is None else hours.high * price,
            )
        )
    books = TraceInBooks(
        rate.job, rate.held_gpu_hours, rate.busy_gpu_hours, price, rate.currency, tuple(costs), diagnosis
    )
    return replace(found, in_books=books)


def _add_up(
    places: Sequence[FoundAt], span_us: Mapping[tuple[str, int | None, int | str | None], float | None]
) -> float | None:
    """The GPU-seconds of a finding: its share of the span of each device where it was found; None where there is no device."""
    spans = [(at.share, span_us.get((at.trace, at.rank, at.device))) for at in places]
    known = [share * span for share, span in spans if span is not None]
    return sum(known) / US_PER_S if known else None
