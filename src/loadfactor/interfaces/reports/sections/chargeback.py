"""Who paid the bill: the statements of owners and pools that `loadfactor chargeback` prints."""

from shlex import quote

from loadfactor.base.errors import InputError
from loadfactor.books.charging.fleet_chargeback import OWNERS, ChargeQuestion
from loadfactor.interfaces.document import Section
from loadfactor.interfaces.pages.chargeback import build_chargeback
from loadfactor.interfaces.reports.facts import ChargebackFacts
from loadfactor.interfaces.reports.inquiry import Inquiry
from loadfactor.settings.config import settings

TITLE = "Who paid"


def build_section(inquiry: Inquiry) -> ChargebackFacts | None:
    """Statements of the whole bill, or where the report is of a window, of the month (UTC) that it ends in.

    None where there is no bill, and where the report is of a part of the fleet; what is missing for statements is said.
    """
    if inquiry.where or not inquiry.books.has_bill:
        return None
    by = tuple(name for name in inquiry.dimensions if name in OWNERS) or ("team",)
    month = None if inquiry.start is None and inquiry.end is None else inquiry.last_month
    try:
        found = inquiry.books.charge(ChargeQuestion(by, month, None, settings().chargeback))
    except InputError as error:
        return ChargebackFacts("chargeback", Section(TITLE, f"No statements: {error}."), (), None)
    page = build_chargeback(found, f" --store {quote(str(inquiry.folder))}")
    section = Section(TITLE, f"{page.headline} {page.subtitle}", tables=page.sections[0].tables)
    return ChargebackFacts("chargeback", section, (), found)
