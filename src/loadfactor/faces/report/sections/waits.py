"""How long did people wait for GPUs? By what the report splits by, and over the days."""

from loadfactor.faces.answer import Column, Table
from loadfactor.faces.charts import Chart, Series
from loadfactor.faces.formats import duration, number
from loadfactor.faces.report import Section
from loadfactor.faces.report.inquiry import Inquiry, spoken
from loadfactor.metrics.query.question import OF_A_WAIT
from loadfactor.units import S_PER_HOUR

METRICS = ("queue_wait_s_p50", "queue_wait_s_p90", "queue_wait_s_p99", "queue_waiting")
MOST_ROWS = 20


def section(inquiry: Inquiry) -> Section | None:
    """Quantiles of the waits that ended, those that did not counted; None where nobody is known to have waited."""
    whole = inquiry.whole
    if whole.value("queue_wait_s_p50") is None:
        return None
    split = [d for d in inquiry.parts if d in OF_A_WAIT] or ["team"]
    groups = inquiry.groups(*METRICS, "allocated_gpu_hours", by=split)
    groups = [(key, row) for key, row in groups if row.value("queue_wait_s_p50") is not None]
    groups.sort(key=lambda g: -(g[1].value("queue_wait_s_p90") or 0.0))
    days = inquiry.groups(*METRICS, by=("day",))
    table = Table(
        "",
        (
            Column(" and ".join(split)), Column("median", "duration"), Column("90 % within", "duration"),
            Column("99 % within", "duration"), Column("not started", "number"),
        ),
        [(spoken(key, row), *(row.value(m) for m in METRICS)) for key, row in groups[:MOST_ROWS]],
    )  # fmt: skip
    charts = []
    starts = [inquiry.local(next(iter(row.readings.values())).start) for _, row in days]
    if len(days) > 2:
        charts.append(
            Chart(
                "Queue wait of the jobs that started that day",
                "line",
                starts,
                [
                    Series(name, [_hours(row.value(metric)) for _, row in days])
                    for metric, name in (("queue_wait_s_p50", "median"), ("queue_wait_s_p90", "90 %"))
                ],
                x_label="day",
                y_label="hours",
            )
        )
    lead = (
        f"Half of the jobs that started waited at most {duration(whole.value('queue_wait_s_p50'))}, one in ten longer than "
        f"{duration(whole.value('queue_wait_s_p90'))}."
    )
    if whole.value("queue_waiting"):
        lead += f" {number(whole.value('queue_waiting'))} gave up or were still waiting: their waits are not in these numbers."
    readings = [*whole.some(*METRICS), *(r for _, row in (*groups, *days) for r in row.all)]
    return Section("waits", "How long people waited", lead, charts, (table,), readings=readings)


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / S_PER_HOUR
