"""How full the fleet was over time, by the hour (by the day in a long window), and what each day consists of."""

from datetime import date, datetime, timedelta

from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Section
from loadfactor.interfaces.formats import instant, percent
from loadfactor.interfaces.reports.facts import SectionFacts
from loadfactor.interfaces.reports.inquiry import Group, Inquiry, Key
from loadfactor.metrics import metric
from loadfactor.metrics.query.reading import rank

BY_THE_HOUR = timedelta(days=21)
"""Longer windows are drawn by the day."""
MOST_DAYS = 35
PARTS = ("effective", "underused", "idle", "unobserved", "unallocated", "down")
LINES = ("allocation", "utilization", "load_factor")


def build_section(inquiry: Inquiry) -> SectionFacts | None:
    """Allocation, utilization and load factor over time; None where fewer than two moments are known."""
    start, end = inquiry.window
    by = "hour" if end - start <= BY_THE_HOUR else "day"
    moments = inquiry.groups(*LINES, by=(by,))
    at = [inquiry.local(group.all[0].start) for _, group in moments]
    lines = {name: [group.value(name) for _, group in moments] for name in LINES}
    series = [
        Series(metric(name).title, values) for name, values in lines.items() if any(v is not None for v in values)
    ]
    if len(moments) < 2 or not series:
        return None
    chart = Chart("Allocation, utilization and load factor", "line", at, series, str(inquiry.timezone), "share")
    full = [(share, moment) for share, moment in zip(lines["load_factor"], at, strict=True) if share is not None]
    lead = ""
    if full:
        (high, when), (low, then) = max(full, key=_by_share), min(full, key=_by_share)
        lead = (
            f"Highest load factor of {'an' if by == 'hour' else 'a'} {by}: {percent(high)} at {instant(when)}. "
            f"Lowest: {percent(low)} at {instant(then)}."
        )
    days = inquiry.groups(*(f"{name}_{unit}" for unit in ("cost", "gpu_hours") for name in PARTS), by=("day",))
    charts = (chart, _days_chart(days)) if 2 <= len(days) <= MOST_DAYS else (chart,)
    readings = [r for _, group in (*moments, *days) for r in group.all]
    return SectionFacts("over_time", Section("Over time", lead, charts), readings)


def _by_share(moment: tuple[float, datetime]) -> tuple[float, datetime]:
    return rank(moment[0]), moment[1]


def _days_chart(days: list[tuple[Key, Group]]) -> Chart:
    """What each day consists of: its cost where there are prices, GPU-hours where not."""
    priced = any(group.value(f"{name}_cost") for _, group in days for name in PARTS)
    kind, unit = ("cost", days[0][1].currency) if priced else ("gpu_hours", "GPU-hours")
    names = [date.fromisoformat(key[0] or "").strftime("%a %d %b") for key, _ in days]
    series = [Series(name.capitalize(), [group.value(f"{name}_{kind}") for _, group in days]) for name in PARTS]
    title = "What the cost of each day consists of" if priced else "What the GPU-hours of each day consist of"
    return Chart(title, "stacked bar", names, series, y_label=unit)
