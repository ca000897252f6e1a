"""Where the budgets of the settings stand in the period that the report ends in: the table of `loadfactor budget`."""

from loadfactor.interfaces.document import Section
from loadfactor.interfaces.pages.budgets import describe_source, list_budgets, write_headline
from loadfactor.interfaces.reports.facts import BudgetFacts
from loadfactor.interfaces.reports.inquiry import Inquiry
from loadfactor.settings.config import settings


def build_section(inquiry: Inquiry) -> BudgetFacts | None:
    """All budgets; None where there are none, and where the report is of a part of the fleet."""
    if not settings().budget or inquiry.where:
        return None
    review = inquiry.books.budgets(None if inquiry.end is None else inquiry.last_month, inquiry.basis)
    lead = f"{write_headline(review)} {describe_source(review)}"
    return BudgetFacts("budget", Section("Budgets", lead, tables=(list_budgets(review),)), (), review)
