"""From paid to effective, loss by loss, in GPU-hours and in money."""

from collections.abc import Sequence

from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Cell, DataTable, Section, TableColumn
from loadfactor.interfaces.formats import number, percent
from loadfactor.interfaces.reports.facts import SectionFacts
from loadfactor.interfaces.reports.inquiry import Group, Inquiry

LOSSES = (
    ("unallocated", "Unallocated", "usable, held by nobody"),
    ("down", "Down", "installed, not usable: drained or failed"),
    ("unobserved", "Unobserved", "held, without a valid sample"),
    ("idle", "Idle", "held, activity under the idle threshold"),
    ("underused", "Underused", "busy, less its activity"),
)


def build_section(inquiry: Inquiry) -> SectionFacts:
    """The waterfall from paid to effective, and its numbers."""
    totals = inquiry.totals
    hours = ["paid_gpu_hours", *(f"{name}_gpu_hours" for name, _, _ in LOSSES), "effective_gpu_hours"]
    costs = ["cost", *(f"{name}_cost" for name, _, _ in LOSSES), "effective_cost"]
    charts = (
        _chart(totals, "Cost, from paid to effective", totals.currency, costs),
        _chart(totals, "GPU-hours, from paid to effective", "GPU-hours", hours),
    )
    titles = ("Paid", *(title for _, title, _ in LOSSES), "Effective")
    meanings = ("everything installed, used or not", *(what for _, _, what in LOSSES), "held hours × activity")
    rows: list[Sequence[Cell]] = [
        (title, totals.value(hour), totals.value(cost), what)
        for title, hour, cost, what in zip(titles, hours, costs, meanings, strict=True)
    ]
    unattributed = totals.value("unattributed_gpu_hours")
    if unattributed:
        what = "no known holder; part of unobserved, idle, underused and effective"
        rows.append(("Unattributed", unattributed, totals.value("unattributed_cost"), what))
    columns = (
        TableColumn("part"),
        TableColumn("GPU-hours", "number"),
        TableColumn("cost", "money", totals.currency),
        TableColumn("meaning"),
    )
    section = Section(
        "From paid to effective",
        _lead(totals),
        [chart for chart in charts if chart is not None],
        (DataTable(columns, rows),),
    )
    asked = totals.some(*hours, *costs, "unattributed_gpu_hours", "unattributed_cost", "load_factor")
    return SectionFacts("waterfall", section, asked)


def _lead(totals: Group) -> str:
    full, effective, paid = (totals.value(name) for name in ("load_factor", "effective_gpu_hours", "paid_gpu_hours"))
    left = "unknown" if full is None else f"{number(effective)} of {number(paid)}, {percent(full)}"
    return f"Every GPU-hour is counted once. Effective GPU-hours: {left}."


def _chart(totals: Group, title: str, unit: str, metrics: Sequence[str]) -> Chart | None:
    """A waterfall, or None where not every step of it is known."""
    values = [totals.value(name) for name in metrics]
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known[0]:
        return None
    changes = [known[0], *(-loss for loss in known[1:-1])]
    names = ["Paid", *(title for _, title, _ in LOSSES)]
    return Chart(title, "waterfall", names, (Series(unit, changes),), y_label=unit, total="Effective")
