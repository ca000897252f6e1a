"""How full was the fleet, when? Allocation, utilization and load factor by the hour, or by the day in a long window."""

from datetime import timedelta

from loadfactor.faces.charts import Chart, Series
from loadfactor.faces.formats import instant, percent
from loadfactor.faces.report import Section
from loadfactor.faces.report.inquiry import Inquiry
from loadfactor.metrics import metric

BY_THE_HOUR = timedelta(days=21)  # longer windows are drawn by the day
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
        [r.start for r in lines[LINES[0]]],
        [Series(metric(name).title, values) for name, values in drawn],
        x_label="UTC",
        y_label="share",
    )
    full = [r for r in lines["load_factor"] if isinstance(r.value, float)]
    lead = ""
    if full:
        best = max(full, key=lambda r: r.value if isinstance(r.value, float) else 0.0)
        worst = min(full, key=lambda r: r.value if isinstance(r.value, float) else 1.0)
        top, low = (percent(r.value if isinstance(r.value, float) else None) for r in (best, worst))
        lead = f"Fullest {by}: {top} at {instant(best.start)}. Emptiest: {low} at {instant(worst.start)}."
    return Section("over_time", "When it was full", lead, (chart,), readings=asked)
