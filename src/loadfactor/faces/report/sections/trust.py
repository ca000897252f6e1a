"""Can these numbers be trusted? How much was observed and priced, whether the books balance, what is missing."""

from loadfactor.books.check import balance, findings
from loadfactor.faces.answer import Column, Table
from loadfactor.faces.formats import money, number, percent
from loadfactor.faces.report import Section
from loadfactor.faces.report.inquiry import Inquiry


def section(inquiry: Inquiry) -> Section:
    """Coverage of the window, the balance of the whole books with its residual, and the doctor's findings."""
    window = inquiry.whole
    asked = window.some("observed_gpu_hours", "unobserved_gpu_hours", "unobserved_cost", "cost")
    sides, found = balance(inquiry.books), list(findings(inquiry.books))
    verdict = "balance" if sides.holds else "DO NOT BALANCE"
    residual = f"residual {sides.residual_gpu_hours:.1e} GPU-hours"
    if sides.residual_cost is not None:
        residual += f", {sides.residual_cost:.1e} dollars"
    lead = (
        f"The books {verdict}: {number(sides.booked_gpu_hours, 6)} of {number(sides.installed_gpu_hours, 6)} GPU-hours are "
        f"booked ({residual}). "
        f"{percent(window.readings['observed_gpu_hours'].coverage)} of the held time was observed and "
        f"{percent(window.readings['cost'].coverage)} of the paid time has a price; the unobserved "
        f"{number(window.value('unobserved_gpu_hours'))} GPU-hours ({money(window.value('unobserved_cost'))}) are counted as "
        "unknown, not as idle and not as busy."
    )
    table = Table("", (Column("found"), Column("what to do")), [(f.what, f.do) for f in found])
    data = {
        "balances": sides.holds,
        "residual_gpu_hours": sides.residual_gpu_hours,
        "residual_cost": sides.residual_cost,
        "findings": [{"grade": f.grade, "what": f.what, "do": f.do} for f in found],
    }
    tables = (table,) if found else ()
    return Section("trust", "Can these numbers be trusted", lead, tables=tables, readings=asked, data=data)
