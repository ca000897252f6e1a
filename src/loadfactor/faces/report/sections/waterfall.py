"""Where did it go? From what is paid down to what was effective, loss by loss, in GPU-hours and in dollars."""

from loadfactor.faces.answer import Column, Table
from loadfactor.faces.charts import Chart, Series
from loadfactor.faces.formats import percent
from loadfactor.faces.report import Section
from loadfactor.faces.report.inquiry import Inquiry, Row

LOSSES = (
    ("unallocated", "Unallocated", "usable, and nobody held it"),
    ("down", "Down", "drained or failed"),
    ("unobserved", "Unobserved", "held, and nobody knows: no samples"),
    ("idle", "Idle", "held, with activity under the threshold"),
    ("underused", "Underused", "busy, less its activity"),
)


def section(inquiry: Inquiry) -> Section:
    """The waterfall from paid to effective, and its numbers."""
    hours = [f"{name}_gpu_hours" for name, _, _ in LOSSES]
    dollars = [f"{name}_cost" for name, _, _ in LOSSES]
    whole = inquiry.whole
    asked = whole.some(
        "paid_gpu_hours", *hours, "effective_gpu_hours", "cost", *dollars, "effective_cost", "load_factor"
    )
    charts = [
        chart
        for chart in (
            _chart(whole, "Dollars, from paid to effective", "USD", "cost", dollars, "effective_cost"),
            _chart(
                whole, "GPU-hours, from paid to effective", "GPU-hours", "paid_gpu_hours", hours, "effective_gpu_hours"
            ),
        )
        if chart is not None
    ]
    rows: list[tuple[str, float | None, float | None, str]] = [
        ("Paid", whole.value("paid_gpu_hours"), whole.value("cost"), "everything installed, used or not"),
        *((title, whole.value(f"{n}_gpu_hours"), whole.value(f"{n}_cost"), why) for n, title, why in LOSSES),
        ("Effective", whole.value("effective_gpu_hours"), whole.value("effective_cost"), "held hours × activity"),
    ]
    table = Table(
        "", (Column("where"), Column("GPU-hours", "number"), Column("USD", "money"), Column("what it means")), rows
    )
    full = whole.value("load_factor")
    left = "not known" if full is None else f"{percent(full)} of what was paid for"
    lead = f"Every GPU-hour is counted once; what is left at the bottom is {left}."
    return Section("waterfall", "Where it went", lead, charts, (table,), readings=asked)


def _chart(whole: Row, title: str, unit: str, paid: str, losses: list[str], left: str) -> Chart | None:
    """A waterfall, or None where not every step of it is known."""
    top = whole.value(paid)
    steps = [whole.value(name) for name in losses]
    if not top or whole.value(left) is None or any(step is None for step in steps):
        return None
    falls = [-step for step in steps if step is not None]  # drawn downwards
    names = ["Paid", *(title for _, title, _ in LOSSES)]
    return Chart(title, "waterfall", names, (Series(unit, (top, *falls)),), y_label=unit, total="Effective")
