"""How full was the fleet, when? Shares by the hour (by the day in a long window), and what became of each day."""

from datetime import date, timedelta

from loadfactor.faces.charts import Chart, Series
from loadfactor.faces.formats import instant, percent
from loadfactor.faces.report import Section
from loadfactor.faces.report.inquiry import Inquiry
from loadfactor.metrics import metric
from loadfactor.metrics.query.reading import Reading

BY_THE_HOUR = timedelta(days=21)  # longer windows are drawn by the day
MOST_DAYS = 35
BECAME = (
    ("effective", "Effective"),
    ("underused", "Underused"),
    ("idle", "Idle"),
    ("unobserved", "Unobserved"),
    ("unallocated", "Unallocated"),
    ("down", "Down"),
)
LINES = ("allocation", "utilization", "load_factor")


def section(inquiry: Inquiry) -> Section | None:
    """The shares of paid time that were held and effective, over time."""
    start, end = inquiry.window
    by = "hour" if end - start <= BY_THE_HOUR else "day"
    asked = inquiry.ask(*LINES, by=(by,))
    lines = {name: [r for r in asked if r.metric == name] for name in LINES}
    known = [(name, [r.value if isinstance(r.value, float) else None for r in rs]) for name, rs in lines.items()]
    drawn = [(name, values) for name, values in known if any(v is not None for v in values)]
    if len(lines[LINES[0]]) < 2 or not drawn:
        return None
    chart = Chart(
        "How full, over time",
        "line",
        [inquiry.local(r.start) for r in lines[LINES[0]]],
        [Series(metric(name).title, values) for name, values in drawn],
        x_label=str(inquiry.timezone),
        y_label="share",
    )
    full = [r for r in lines["load_factor"] if isinstance(r.value, float)]
    lead = ""
    if full:
        best = max(full, key=lambda r: r.value if isinstance(r.value, float) else 0.0)
        worst = min(full, key=lambda r: r.value if isinstance(r.value, float) else 1.0)
        top, low = (percent(r.value if isinstance(r.value, float) else None) for r in (best, worst))
        when, then = (instant(inquiry.local(r.start)) for r in (best, worst))
        lead = f"Fullest {by}: {top} at {when}. Emptiest: {low} at {then}."
    days = _days(inquiry)
    return Section(
        "over_time",
        "When it was full",
        lead,
        (chart, *([days[0]] if days[0] else [])),
        readings=[*asked, *days[1]],
    )


def _days(inquiry: Inquiry) -> tuple[Chart | None, list[Reading]]:
    """What became of each day: dollars where there are prices, GPU-hours where not. None for less than two days."""
    metrics = [f"{name}_{unit}" for unit in ("cost", "gpu_hours") for name, _ in BECAME]
    days = inquiry.groups(*metrics, by=("day",))
    readings = [r for _, row in days for r in row.all]
    if not 2 <= len(days) <= MOST_DAYS:
        return None, readings
    priced = any(row.value(f"{name}_cost") for _, row in days for name, _ in BECAME)
    unit, spelled = ("cost", "USD") if priced else ("gpu_hours", "GPU-hours")
    names = [date.fromisoformat(key[0] or "").strftime("%a %d %b") for key, _ in days]
    series = [Series(title, [row.value(f"{name}_{unit}") for _, row in days]) for name, title in BECAME]
    return Chart("What became of each day", "stacked bar", names, series, y_label=spelled), readings
