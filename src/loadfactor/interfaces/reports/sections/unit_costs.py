"""Cost of one unit of work, for every unit the books have progress in."""

from loadfactor.base.units import ONES_PER_MILLION
from loadfactor.interfaces.document import DataTable, Section, TableColumn
from loadfactor.interfaces.pages.readings import is_per_million
from loadfactor.interfaces.reports.facts import SectionFacts
from loadfactor.interfaces.reports.inquiry import Inquiry
from loadfactor.metrics.money import UNITS


def build_section(inquiry: Inquiry) -> SectionFacts | None:
    """A table of unit costs; None where the books have no progress or no prices."""
    totals = inquiry.totals
    metrics = [f"cost_per_{name}" for name, _ in UNITS]
    rows = []
    for metric, (_, unit) in zip(metrics, UNITS, strict=True):
        value = totals.value(metric)
        if value is not None:
            spelled = unit.replace("_", " ")
            if is_per_million(unit, [value]):
                rows.append((f"1 million {spelled}s", value * ONES_PER_MILLION))
            else:
                rows.append((f"1 {spelled}", value))
    if not rows:
        return None
    lead = (
        "Cost of the jobs that worked on it, idle and unobserved time included, ÷ what they made and kept. "
        "A job that makes several units has its whole cost in each."
    )
    table = DataTable((TableColumn("unit"), TableColumn("cost", "money", totals.currency)), rows)
    section = Section("Cost per unit of work", lead, tables=(table,))
    return SectionFacts("unit_costs", section, totals.some(*metrics))
