"""Data quality: how much was observed and priced, whether the books balance, what is missing."""

from loadfactor.interfaces.document import Cell, DataTable, Section, TableColumn
from loadfactor.interfaces.formats import money, number, percent
from loadfactor.interfaces.pages.books import say_finding
from loadfactor.interfaces.reports.facts import DataQualityFacts
from loadfactor.interfaces.reports.inquiry import Inquiry


def build_section(inquiry: Inquiry) -> DataQualityFacts:
    """Coverage of the window, the balance of the whole books with its residual, and what `doctor` finds."""
    checked = inquiry.books.check()
    totals, sides, found = inquiry.totals, checked.balance, list(checked.findings)
    observed, priced = (totals.readings[name].coverage for name in ("observed_gpu_hours", "cost"))
    unobserved = number(totals.value("unobserved_gpu_hours"))
    lead = (
        f"The books {'balance' if sides.holds else 'DO NOT BALANCE'}. The {unobserved} unobserved GPU-hours are unknown: "
        "they count neither as idle nor as busy."
    )
    residual = f"{sides.residual_gpu_hours:+.1e} GPU-hours"
    if sides.residual_cost is not None:
        residual += f", {sides.residual_cost:+.1e} {totals.currency}"
    rows: list[tuple[Cell, ...]] = [
        ("held time that was observed (coverage)", percent(observed)),
        ("paid time that has a price", percent(priced)),
        ("unobserved GPU-hours", unobserved),
        ("cost of unobserved GPU-hours", totals.money("unobserved_cost")),
        ("GPU-hours installed", number(sides.installed_gpu_hours)),
        ("GPU-hours in the ledger", number(sides.booked_gpu_hours)),
        ("cost of what was installed", money(sides.installed_cost, totals.currency)),
        ("cost in the ledger", money(sides.booked_cost, totals.currency)),
        ("residual (ledger less installed)", residual),
    ]
    tables = [DataTable((TableColumn("check"), TableColumn("value", "number")), rows)]
    if found:
        tables.append(
            DataTable(
                (TableColumn("found"), TableColumn("what to do")),
                [(say_finding(f, totals.currency), f.do) for f in found],
            )
        )
    return DataQualityFacts(
        "trust",  # the name that programs know this section by
        Section("Data quality", lead, tables=tables),
        totals.some("observed_gpu_hours", "unobserved_gpu_hours", "unobserved_cost", "cost"),
        sides.holds,
        sides.residual_gpu_hours,
        sides.residual_cost,
        found,
    )
