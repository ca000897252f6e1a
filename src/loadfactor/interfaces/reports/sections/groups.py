"""Cost and GPU-hours of each team, or of whatever the report is split by."""

from collections.abc import Sequence

from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Cell, DataTable, Section, TableColumn
from loadfactor.interfaces.formats import percent
from loadfactor.interfaces.reports.facts import SectionFacts
from loadfactor.interfaces.reports.inquiry import NOBODY, Group, Inquiry, Key, group_name
from loadfactor.metrics import metric
from loadfactor.metrics.query.reading import rank

BARS = ("effective_cost", "underused_cost", "idle_cost", "unobserved_cost", "unallocated_cost", "down_cost")
CELLS = ("cost", "paid_gpu_hours", "utilization", "idle_cost", "underused_cost", "cost_per_effective_gpu_hour")
MOST_BARS, MOST_ROWS = 12, 25
Groups = Sequence[tuple[Key, Group]]


def build_section(inquiry: Inquiry) -> SectionFacts | None:
    """What the cost of each group consists of, and the table behind it, the highest cost first."""
    by = tuple(inquiry.dimensions)
    groups = inquiry.groups(*CELLS, *BARS, "allocated_gpu_hours", "unallocated_gpu_hours", by=by)
    if not groups:
        return None
    groups.sort(key=lambda g: (-rank(g[1].value("cost")), -rank(g[1].value("paid_gpu_hours")), str(g[0])))
    name = " and ".join(by)
    rest = len(groups) - MOST_ROWS
    note = f"and {rest} more; see `loadfactor show cost --by {','.join(by)} {inquiry.options}`" if rest > 0 else ""
    currency = inquiry.totals.currency
    columns = (
        TableColumn(name),
        TableColumn("cost", "money", currency),
        TableColumn("paid GPU-hours", "number"),
        TableColumn("utilization", "percent"),
        TableColumn("idle cost", "money", currency),
        TableColumn("underused cost", "money", currency),
        TableColumn("cost per effective GPU-hour", "money", currency),
    )
    table = DataTable(columns, [_cells(key, group) for key, group in groups[:MOST_ROWS]], note=note)
    section = Section(f"Cost by {name}", _lead(groups), (_chart(groups[:MOST_BARS], name, currency),), (table,))
    return SectionFacts("groups", section, [reading for _, group in groups for reading in group.all])


def _cells(key: Key, group: Group) -> Sequence[Cell]:
    name = group_name(key, group)
    if name == NOBODY:  # holds nothing, so it has no utilization and leaves nothing idle
        return (name, *(group.value(m) for m in CELLS[:2]), *("",) * (len(CELLS) - 2))
    return (name, *(group.value(m) for m in CELLS))


def _chart(groups: Groups, name: str, currency: str) -> Chart:
    """What the cost of each group consists of; GPU-hours where there are no prices."""
    names = [group_name(key, group) for key, group in groups]
    if any(group.value("cost") for _, group in groups):
        series = [Series(metric(m).title, [group.value(m) for _, group in groups]) for m in BARS]
        return Chart(f"What the cost of each {name} consists of", "stacked bar", names, series, y_label=currency)
    paid = Series("paid", [group.value("paid_gpu_hours") for _, group in groups])
    return Chart(f"Paid GPU-hours by {name}", "bar", names, (paid,), y_label="GPU-hours")


def _lead(groups: Groups) -> str:
    """Who costs most, and who has the lowest utilization."""
    holders = [(key, group) for key, group in groups if group.value("allocated_gpu_hours")]
    said = []
    if len(holders) > 1 and holders[0][1].value("cost"):
        key, top = holders[0]
        said.append(f"{group_name(key, top)} has the highest cost, {top.money('cost')}.")
    measured = [(key, group) for key, group in holders if group.value("utilization") is not None]
    if len(measured) > 1:
        key, low = min(measured, key=lambda g: (rank(g[1].value("utilization")), str(g[0])))
        said.append(f"{group_name(key, low)} has the lowest utilization, {percent(low.value('utilization'))}.")
    return " ".join(said)
