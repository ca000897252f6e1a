"""Who paid, and what did it buy? Dollars and GPU-hours of each team, or of whatever the reader splits by."""

from collections.abc import Sequence

from loadfactor.faces.answer import Cell, Column, Table
from loadfactor.faces.charts import Chart, Series
from loadfactor.faces.formats import money, percent
from loadfactor.faces.report import Section
from loadfactor.faces.report.inquiry import NOBODY, Inquiry, Row, spoken
from loadfactor.metrics import metric

BARS = ("effective_cost", "underused_cost", "idle_cost", "unobserved_cost", "unallocated_cost", "down_cost")
MOST_BARS, MOST_ROWS = 12, 25
Key = tuple[str | None, ...]


def section(inquiry: Inquiry) -> Section | None:
    """Bars of what each group's dollars bought, and the table behind them, the dearest first."""
    split = tuple(inquiry.parts)
    groups = inquiry.groups(
        "cost", *BARS, "allocated_gpu_hours", "unallocated_gpu_hours", "paid_gpu_hours", "utilization",
        "cost_per_effective_gpu_hour", by=split,
    )  # fmt: skip
    if not groups:
        return None
    groups.sort(key=lambda g: (-(g[1].value("cost") or 0.0), -(g[1].value("paid_gpu_hours") or 0.0)))
    spelled = " and ".join(split)
    shown = groups[:MOST_ROWS]
    rest = len(groups) - len(shown)
    table = Table(
        "",
        (
            Column(spelled), Column("cost", "money"), Column("held GPU-h", "number"), Column("utilization", "percent"),
            Column("idle", "money"), Column("underused", "money"), Column("$ / eff. GPU-h", "money"),
        ),
        [_cells(key, row) for key, row in shown],
        note=f"and {rest} more; see `loadfactor show cost --by {','.join(split)} {inquiry.options}`" if rest else "",
    )  # fmt: skip
    return Section(
        "groups",
        f"Who paid, by {spelled}",
        _lead(groups),
        _charts(groups[:MOST_BARS], spelled),
        (table,),
        readings=[r for _, row in groups for r in row.all],
    )


def _cells(key: Key, row: Row) -> Sequence[Cell]:
    names = (
        "cost",
        "allocated_gpu_hours",
        "utilization",
        "idle_cost",
        "underused_cost",
        "cost_per_effective_gpu_hour",
    )
    name = spoken(key, row)
    if name == NOBODY:  # holds nothing, so none of this is a question about it
        return (NOBODY, row.value("cost"), *("",) * 5)
    return (name, *(row.value(m) for m in names))


def _charts(groups: Sequence[tuple[Key, Row]], spelled: str) -> Sequence[Chart]:
    """What each group's dollars bought; GPU-hours where there are no dollars."""
    names = [spoken(key, row) for key, row in groups]
    if any(row.value("cost") for _, row in groups):
        series = [Series(metric(m).title, [row.value(m) for _, row in groups]) for m in BARS]
        return (Chart(f"What the dollars of each {spelled} bought", "stacked bar", names, series, y_label="USD"),)
    held = [row.value("allocated_gpu_hours") for _, row in groups]
    return (Chart(f"Held by {spelled}", "bar", names, (Series("held", held),), y_label="GPU-hours"),)


def _lead(groups: Sequence[tuple[Key, Row]]) -> str:
    """Who pays most, and who gets least activity for it."""
    holders = [(key, row) for key, row in groups if row.value("allocated_gpu_hours")]
    if not holders:
        return ""
    key, top = holders[0]
    said = []
    if top.value("cost") and len(holders) > 1:
        said.append(f"{spoken(key, top)} pays most, {money(top.value('cost'))}.")
    measured = [(k, r) for k, r in holders if r.value("utilization") is not None]
    if len(measured) > 1:
        key, low = min(measured, key=lambda g: g[1].value("utilization") or 0.0)
        said.append(f"{spoken(key, low)} uses least of what it holds, {percent(low.value('utilization'))}.")
    return " ".join(said)
