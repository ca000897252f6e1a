"""Queue waits: by what the report is split by, and over the days."""

from loadfactor.base.units import S_PER_HOUR
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import DataTable, Section, TableColumn
from loadfactor.interfaces.formats import duration, number
from loadfactor.interfaces.reports.facts import SectionFacts
from loadfactor.interfaces.reports.inquiry import Group, Inquiry, Key, group_name
from loadfactor.metrics.query.question import OF_A_WAIT
from loadfactor.metrics.query.reading import rank

METRICS = ("queue_wait_s_p50", "queue_wait_s_p90", "queue_wait_s_p99", "queue_waiting")
MOST_ROWS = 20
ALL = "all"


def build_section(inquiry: Inquiry) -> SectionFacts | None:
    """Quantiles of the waits that ended in a start, the others counted; None where nobody is known to have waited."""
    totals = inquiry.totals
    if totals.value("queue_wait_s_p50") is None:
        return None
    split = [d for d in inquiry.dimensions if d in OF_A_WAIT] or ["team"]
    groups = inquiry.groups(*METRICS, "allocated_gpu_hours", by=split)
    groups = [(key, group) for key, group in groups if group.value("queue_wait_s_p50") is not None]
    groups.sort(key=lambda g: (-rank(g[1].value("queue_wait_s_p90")), str(g[0])))
    days = inquiry.groups(*METRICS, by=("day",))
    named = [(ALL, totals), *((group_name(key, group), group) for key, group in groups[:MOST_ROWS])]
    table = DataTable(
        (
            TableColumn(" and ".join(split)),
            TableColumn("median", "duration"),
            TableColumn("90 % within", "duration"),
            TableColumn("99 % within", "duration"),
            TableColumn("cancelled or pending", "number"),
        ),
        [(name, *(group.value(m) for m in METRICS)) for name, group in named],
    )
    p50, p90 = (duration(totals.value(m)) for m in METRICS[:2])
    lead = f"Half of the jobs that started waited at most {p50}, one in ten longer than {p90}."
    if totals.value("queue_waiting"):
        lead += f" {number(totals.value('queue_waiting'))} were cancelled or are pending: their waits are not counted."
    section = Section("Queue waits", lead, (_chart(inquiry, days),) if len(days) > 2 else (), (table,))
    readings = [*totals.some(*METRICS), *(r for _, group in (*groups, *days) for r in group.all)]
    return SectionFacts("waits", section, readings)


def _chart(inquiry: Inquiry, days: list[tuple[Key, Group]]) -> Chart:
    starts = [inquiry.local(group.all[0].start) for _, group in days]
    series = [
        Series(name, [_hours(group.value(metric)) for _, group in days])
        for metric, name in (("queue_wait_s_p50", "median"), ("queue_wait_s_p90", "90 %"))
    ]
    return Chart("Queue wait of the jobs that started that day", "line", starts, series, "day", "hours")


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / S_PER_HOUR
