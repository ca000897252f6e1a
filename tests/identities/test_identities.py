"""A number is the same wherever it appears: all readers of every quantity of the table, on random fleets, in two zones."""

import os
from datetime import UTC, tzinfo
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.books.conftest import Write
from tests.identities.fleets import make_fleet
from tests.identities.table import IDENTITIES, Quantity, Value
from tests.long import rest_long

from loadfactor.interfaces.pages.bills import build_comparison_page
from loadfactor.interfaces.pages.bridge import cut
from loadfactor.interfaces.pages.budgets import build_budget_page
from loadfactor.interfaces.pages.chargeback import build_page as build_chargeback_page
from loadfactor.interfaces.pages.readings import build_page as build_show_page
from loadfactor.interfaces.reports.page import build_page as build_report_page
from loadfactor.interfaces.requests import BillRequest, BudgetRequest, ChargebackRequest, ReportRequest, ShowRequest
from loadfactor.money.amounts import BRIDGE

ZONES = (UTC, ZoneInfo("Europe/Berlin"), pytest.param(ZoneInfo("Asia/Kolkata"), marks=pytest.mark.long))
HOURS = 1e-6


def differs(quantity: Quantity, one: Value, other: Value) -> bool:
    """True where two values of a quantity are not the same."""
    if one is None or other is None or quantity.is_money:
        return one != other
    return abs(Decimal(str(one)) - Decimal(str(other))) > Decimal(str(HOURS))


@pytest.mark.parametrize("zone", ZONES, ids=str)
@pytest.mark.parametrize("seed", rest_long(range(6)))
def test_a_quantity_is_the_same_wherever_it_appears(seed: int, zone: tzinfo, tmp_path: Path, write: Write) -> None:
    """All readers of each quantity agree with its first one, money to the cent."""
    fleet = make_fleet(seed, tmp_path / "fleet", write, zone)
    found = []
    for quantity in IDENTITIES:
        values = {place: read(fleet) for place, read in quantity.readers.items()}
        place, first = next(iter(values.items()))
        for other, of_other in values.items():
            for key in {*first, *of_other}:
                if differs(quantity, first.get(key), of_other.get(key)):
                    found.append(
                        f"{quantity.name} of {key or 'all'}: {place} {first.get(key)}, {other} {of_other.get(key)}"
                    )
    assert not found, "\n".join(found)


def test_pages_that_show_an_amount_link_its_bridge(tmp_path: Path, write: Write) -> None:
    """Cost by team, statements, budgets, differences of bills and the report name `bill bridge`, which walks either way."""
    fleet = make_fleet(1, tmp_path / "fleet", write, UTC)
    store = {"store": fleet.folder / "books"}
    pages = {
        "chargeback": build_chargeback_page(ChargebackRequest(**store)),
        "budget": build_budget_page(BudgetRequest(**store)),
        "bill compare": build_comparison_page(BillRequest(**store)),
        "show cost --by team": build_show_page(ShowRequest(metrics=("cost",), by=("team",), **store)),
        "report": build_report_page(ReportRequest(**store)),
    }
    for name, page in pages.items():
        assert any(BRIDGE in of.command for section in page.sections for of in section.suggestions), name
    found = fleet.books.bridge("vision", fleet.month)
    there, back = (cut(found, ends).steps for ends in (("bill", "statement"), ("statement", "bill")))
    assert [step.amount for step in there] == [step.amount for step in reversed(back)]
    assert sum(step.change for step in there) == -sum(step.change for step in back)


PAGE = Path(__file__).parents[2] / "docs" / "one-number.md"
INTRODUCTION = """# A number is the same wherever it appears

Every quantity with the places that say it. A test asks all of them about random fleets with bills, budgets and tags, in
several time zones: money agrees to the cent. `UPDATE_PAGES=1 pytest tests/identities` writes this page from the table
`IDENTITIES` (tests/identities/table.py).

| quantity | places |
|---|---|
"""


def test_the_table_is_printed() -> None:
    """docs/one-number.md has a line for every quantity, and every place of it."""
    rows = [f"| {of.name} | {' · '.join(place.replace('|', '/') for place in of.readers)} |\n" for of in IDENTITIES]
    text = INTRODUCTION + "".join(rows)
    if os.environ.get("UPDATE_PAGES"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text
