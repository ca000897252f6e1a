"""A number is the same wherever it appears: all readers of every quantity of the table, on random fleets, in three zones."""

import os
from collections.abc import Iterator, Sequence
from datetime import UTC
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import pytest
from tests.books.conftest import Write
from tests.identities.fleet import Fleet
from tests.identities.fleets import cut_fleet, make_fleet
from tests.identities.table import IDENTITIES
from tests.identities.values import Quantity, differs
from tests.long import mark_long

from loadfactor.interfaces.pages.bills import build_comparison_page
from loadfactor.interfaces.pages.bridge import cut
from loadfactor.interfaces.pages.budgets import build_budget_page
from loadfactor.interfaces.pages.chargeback import build_page as build_chargeback_page
from loadfactor.interfaces.pages.readings import build_page as build_show_page
from loadfactor.interfaces.reports.page import build_page as build_report_page
from loadfactor.interfaces.requests import BillRequest, BudgetRequest, ChargebackRequest, ReportRequest, ShowRequest
from loadfactor.money.amounts import BRIDGE

ZONES = (UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata"))
FLEETS = int(os.environ.get("IDENTITY_FLEETS", "0"))
"""So many are walked in one test: `IDENTITY_FLEETS=200 pytest tests/identities`; two, a test each, unless it is set."""
JUDGED = "utilization that rules compared"
MANY = 20
"""In so many fleets every place has something to say."""
FIRST = int(os.environ.get("IDENTITY_FIRST", "1"))
"""A fleet with a bill; that before it has none, and its pages are drawn and its plans made, which takes long."""


PARTS = 4
"""The fleet whose pages are drawn and whose plans are made is walked in so many tests, each of a part of the table."""
WALKS = [
    *([(range(FIRST, FIRST + FLEETS), IDENTITIES)] if FLEETS else [([FIRST + n], IDENTITIES) for n in range(2)]),
    *(mark_long(([FIRST - 1], IDENTITIES[part::PARTS])) for part in range(PARTS)),
]


@pytest.mark.parametrize(("seeds", "quantities"), WALKS, ids=range(len(WALKS)))
def test_a_quantity_is_the_same_wherever_it_appears(
    seeds: Sequence[int], quantities: Sequence[Quantity], tmp_path: Path, write: Write
) -> None:
    """All readers of each quantity agree with its first one, on every fleet, and each says something of one of them."""
    found, silent = [], {f"{of.name}: {place}" for of in quantities for place in of.readers}
    for seed in seeds:
        fleet = make_fleet(seed, tmp_path / str(seed), write, ZONES[seed // 2 % len(ZONES)])
        try:
            for quantity in quantities:
                found += [f"fleet {seed}: {line}" for line in compare(quantity, fleet, silent)]
        finally:
            fleet.close()
    assert not found, "\n".join(found)
    known = {f"{of.name}: {place}" for of in quantities for place in of.readers if name_first(of) not in silent}
    assert not silent & known or len(seeds) < MANY, f"never said in {len(seeds)} fleets: {sorted(silent & known)}"


def name_first(of: Quantity) -> str:
    """The first place of a quantity, by which the others are judged."""
    return f"{of.name}: {next(iter(of.readers))}"


def compare(quantity: Quantity, fleet: Fleet, silent: set[str]) -> Iterator[str]:
    """Values that differ from those of the first reader; a place that says one is no more `silent`."""
    values = {place: read(fleet) for place, read in quantity.readers.items()}
    (first, expected), *others = values.items()
    for place, of_place in values.items():
        if any(value is not None for value in of_place.values()):
            silent.discard(f"{quantity.name}: {place}")
    for place, of_place in others:
        for key, value in of_place.items():
            if differs(expected.get(key), value):
                yield f"{quantity.name}, {key or 'all'}: {first} {expected.get(key)}, {place} {value}"


@pytest.mark.parametrize("seed", [mark_long(FIRST), mark_long(FIRST - 1)])
def test_fleet_merged_from_two_stores_says_the_same(seed: int, tmp_path: Path, write: Write) -> None:
    """Every place says of two merged stores, each with a node of a fleet, what it says of one into which all was imported."""
    zone, found = ZONES[seed // 2 % len(ZONES)], []
    one = make_fleet(seed, tmp_path / "fleet", write, zone)
    one.random.seed(seed)
    two = cut_fleet(one, Random(seed))
    try:
        for quantity in (of for of in IDENTITIES if of.name != JUDGED):  # rules are judged where rows are received
            for place, read in quantity.readers.items():
                expected, values = read(one), read(two)
                found += [
                    f"{quantity.name}, {place}, {key or 'all'}: {expected.get(key)}, merged {values.get(key)}"
                    for key in {**expected, **values}
                    if differs(expected.get(key), values.get(key))
                ]
    finally:
        one.close()
        two.close()
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

Every quantity with the places that say it. A test asks all of them about random fleets with bills, budgets, tags, owned prices
and networks, in several time zones: what is charged agrees to the cent, other numbers to nine digits, printed ones to their last
digit. `IDENTITY_FLEETS=200 pytest tests/identities` walks 200 fleets; `UPDATE_PAGES=1 pytest tests/identities` writes this page
from the table `IDENTITIES` (tests/identities/table.py). A command, an endpoint, a page of the server, a gauge or a section of the
report that is in no line of it fails, unless tests/identities/test_places.py says why.

| quantity | places |
|---|---|
"""


def test_the_table_is_printed() -> None:
    """docs/one-number.md has every quantity, with every place of it; those with the same places in one line."""
    lines: dict[str, list[str]] = {}
    for of in IDENTITIES:
        lines.setdefault(" · ".join(of.readers), []).append(of.name)
    rows = [f"| {', '.join(names)} | {places} |\n" for places, names in lines.items()]
    text = INTRODUCTION + "".join(rows)
    if os.environ.get("UPDATE_PAGES"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text
