"""What did a unit of work cost? Every unit the books have progress in, fully loaded."""

from loadfactor.faces.answer import Column, Table
from loadfactor.faces.formats import money
from loadfactor.faces.report import Section
from loadfactor.faces.report.inquiry import Inquiry
from loadfactor.metrics.money import UNITS
from loadfactor.units import TOKENS_PER_MTOK

MULTIPLES = (1, 1000, TOKENS_PER_MTOK)
SMALLEST_AMOUNT = 0.01  # what is cheaper is told by the thousand, then by the million


def section(inquiry: Inquiry) -> Section | None:
    """A table of unit costs; None where the books have no progress or no prices."""
    known = inquiry.whole
    rows = []
    for name, unit in UNITS:
        value = known.value(f"cost_per_{name}")
        if value is not None:
            spelled = unit.replace("_", " ")
            many = next((m for m in MULTIPLES if value * m >= SMALLEST_AMOUNT), TOKENS_PER_MTOK)
            if "token" in unit:
                many = TOKENS_PER_MTOK  # as everybody quotes them
            rows.append((f"{many:,} {spelled}s" if many > 1 else f"1 {spelled}", money(value * many)))
    if not rows:
        return None
    table = Table("", (Column("for"), Column("USD", "money")), rows)
    lead = (
        "Dollars of the jobs that made it, idle and unobserved time included, over what they made and kept. "
        "A job that makes several units bears its whole cost in each."
    )
    return Section(
        "unit_costs",
        "What a unit of work cost",
        lead,
        tables=(table,),
        readings=known.some(*(f"cost_per_{name}" for name, _ in UNITS)),
    )
