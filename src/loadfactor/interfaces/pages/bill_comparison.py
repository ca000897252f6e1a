"""The page of `loadfactor bill compare`: what bills and the books disagree about, in money, and what to do about it."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from loadfactor.base.units import MS_PER_S
from loadfactor.interfaces.document import Assumption, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import counted, instant, money, number

if TYPE_CHECKING:
    from loadfactor.books.charging.bill_comparison import BillComparison


def build_comparison(found: "BillComparison") -> Document:
    """Differences by node or resource, with the largest amount first."""
    currency = found.currency
    billed = f"{money(found.billed_cost, currency)} billed for {number(found.billed_gpu_hours)} GPU-hours"
    both = f"{billed}; the books saw {number(found.seen_gpu_hours)}"
    if found.differences:
        headline = f"{both}. {counted(len(found.differences), 'difference')}, {money(found.amount, currency)} in all."
    else:
        headline = f"{both}. They agree."
    columns = (
        TableColumn("difference"),
        TableColumn("of"),
        TableColumn("billed GPU-hours", "number"),
        TableColumn("seen GPU-hours", "number"),
        TableColumn("billed price", "money", currency),
        TableColumn("agreed price", "money", currency),
        TableColumn("amount", "money", currency),
    )
    rows = [
        (d.kind, d.of, d.billed_gpu_hours, d.seen_gpu_hours, d.billed_price, d.agreed_price, d.amount)
        for d in found.differences
    ]
    what = {d.kind: d.do for d in found.differences}
    start, end = (instant(datetime.fromtimestamp(at / MS_PER_S, UTC)) for at in (found.from_ms, found.to_ms))
    return Document(
        headline,
        (Section(tables=(DataTable(columns, rows),)),) if rows else (),
        f"Between {start} and {end}: time that both speak of.",
        assumptions=(Assumption("GPU share", found.gpu_share, "[billing] gpu_share"),),
        notes=tuple(f"{kind}: {do}" for kind, do in what.items()),
        data=found,
    )
