"""The report on books that hold bills and no GPUs: who paid, the budgets, and what to import for the rest."""

from collections.abc import Sequence
from shlex import quote

from loadfactor.books.charging.fleet_chargeback import FleetChargeback
from loadfactor.interfaces.document import Document, Section, Suggestion, Tile
from loadfactor.interfaces.formats import instant, percent
from loadfactor.interfaces.reports.facts import ChargebackFacts, NextStepsFacts, ReportFacts, SectionFacts
from loadfactor.interfaces.reports.inquiry import Inquiry
from loadfactor.interfaces.reports.sections import budget, chargeback

TITLES = {"BilledCost": "Billed", "EffectiveCost": "Effective cost", "ListCost": "List cost"}


def build_bill_document(inquiry: Inquiry) -> Document:
    """What bills alone can tell. Raises InputError where the budgets of the settings cannot be followed."""
    built = (chargeback.build_section(inquiry), budget.build_section(inquiry), _suggest(inquiry))
    facts: list[SectionFacts] = [section for section in built if section is not None]
    found = next((fact.chargeback for fact in facts if isinstance(fact, ChargebackFacts)), None)
    start, end = inquiry.window
    headline = f"{_say_bill(found)} No GPUs are known beside it, so how full they were is unknown."
    return Document(
        headline=headline,
        subtitle=f"{instant(start)} to {instant(end)}.",
        tiles=_tiles(found) if found else (),
        sections=[fact.section for fact in facts],
        data=ReportFacts(headline, start, end, (), facts),
    )


def _say_bill(found: FleetChargeback | None) -> str:
    if found is None:
        return "The books hold a bill."
    amounts = [
        f"{total.charged:,f} {found.currency} of {name}" for name, total in found.totals.items() if name in TITLES
    ]
    return f"The bill is {' and '.join(amounts[:2])}."


def _tiles(found: FleetChargeback) -> Sequence[Tile]:
    tiles = [
        Tile(title, f"{found.totals[name].charged:,f} {found.currency}", name)
        for name, title in TITLES.items()
        if name in found.totals
    ]
    if found.tag_coverage_share is not None:
        share = percent(float(found.tag_coverage_share))
        tiles.append(Tile("Tag coverage", share, f"of the cost has its {', '.join(found.by)}"))
    return tiles


def _suggest(inquiry: Inquiry) -> NextStepsFacts:
    there = f"--store {quote(str(inquiry.folder))}"
    steps = (
        Suggestion(f"loadfactor chargeback --by project {there}", "who pays, by other names"),
        Suggestion(f"loadfactor bill commitments {there}", "what commitments saved, and what of them was not used"),
        Suggestion(f"loadfactor doctor {there}", "which GPUs are billed, and what is missing in these books"),
        Suggestion("loadfactor check", "what this machine has that measures or lists GPUs, to import beside the bill"),
    )
    return NextStepsFacts("next", Section("What to try next", suggestions=steps), ())
