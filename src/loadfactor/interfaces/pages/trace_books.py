"""Sections of the page of traces whose job the books know: what their seconds cost, and what the books say of the same job."""

from itertools import zip_longest
from typing import Final

from loadfactor.insight.causes import Cause
from loadfactor.insight.diagnosis.finding import JobDiagnosis
from loadfactor.insight.traces.report import TraceCost, TraceDiagnosis, TraceInBooks
from loadfactor.interfaces.document import Cell, DataTable, Section, TableColumn
from loadfactor.interfaces.formats import money, number
from loadfactor.interfaces.pages.diagnosis import say_job, say_stake

NOT_ADDED: Final = "causes are bounds one by one: they do not add up"
SECONDS: Final = (
    "traces are some seconds of the job, the books all of it: where they differ, ask for a trace of another time"
)


def list_costs(books: TraceInBooks) -> Section:
    """Each cause in the money of the job that the traces are of."""
    columns = (
        TableColumn("cause"),
        TableColumn("GPU-seconds in the traces", "number"),
        TableColumn("their cost", "money", books.currency),
        TableColumn("saved, if all work of the job ran so"),
    )
    rows: list[tuple[Cell, ...]] = []
    for cost in books.costs:
        rows.append((cost.cause, cost.gpu_s, cost.cost, _say_saved(cost, books.currency)))
    price = books.price_per_gpu_hour
    rate = "without a known price" if price is None else f"at {money(price, books.currency)} per GPU-hour"
    hours = f"{number(books.busy_gpu_hours)} of {number(books.held_gpu_hours)} GPU-hours"
    lead = f"Job {books.job} worked {hours} that it held, {rate}."
    return Section(f"In the books of job {books.job}", lead, tables=(DataTable(columns, rows, note=NOT_ADDED),))


def compare_with_books(diagnosis: JobDiagnosis, traced: TraceDiagnosis) -> Section:
    """What the books say of the job beside what its traces say, class by class, in the order of the books."""
    assert traced.in_books is not None
    currency, costs = traced.in_books.currency, {cost.cause: cost for cost in traced.in_books.costs}
    columns = (
        TableColumn("class"),
        TableColumn("by the books: at stake"),
        TableColumn("by the traces: saved, if all work ran so"),
    )
    classes: dict[Cause, None] = dict.fromkeys(
        (*(f.class_ for f in diagnosis.findings), *(f.class_ for f in traced.findings))
    )
    rows: list[tuple[Cell, ...]] = []
    for of in classes:
        known = [f for f in diagnosis.findings if f.class_ == of]
        seen = [f.cause for f in traced.findings if f.class_ == of]
        for finding, cause in zip_longest(known, seen):
            stake = say_stake(finding.gpu_hours, finding.cost, currency) if finding else ""
            by_books = f"{finding.title}: {stake}" if finding else None
            rows.append((of, by_books, f"{cause}: {_say_saved(costs[cause], currency)}" if cause else None))
    lead = say_job(diagnosis, currency)
    both = [of for of in classes if {f.class_ for f in diagnosis.findings} & {f.class_ for f in traced.findings} & {of}]
    if both:
        lead += f" Books and traces agree on {', '.join(both)}."
    elif diagnosis.findings and traced.findings:
        lead += " Books and traces name no cause of the same class."
    most = max((cost.job_gpu_hours_high for cost in traced.in_books.costs), default=0.0)
    if most > diagnosis.lost_gpu_hours:
        lead += (
            f" The traces would save {number(most)} GPU-hours, more than the books know to be lost: not all work of the job"
            " ran like them, or its activity is an optimistic signal."
        )
    return Section("Beside the books", lead, tables=(DataTable(columns, rows, note=SECONDS),) if rows else ())


def _say_saved(cost: TraceCost, currency: str) -> str:
    """What would be saved of all work of the job; GPU-hours where no price is known."""
    low, high = cost.job_cost_low, cost.job_cost_high
    if low is None or high is None:
        ends, unit = (number(cost.job_gpu_hours_low), number(cost.job_gpu_hours_high)), " GPU-h"
    else:
        ends, unit = (money(low, currency), money(high, currency)), ""
    return " – ".join(dict.fromkeys(ends)) + unit
