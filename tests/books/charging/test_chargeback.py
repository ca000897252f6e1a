"""Tests of chargeback from books: bills and ledgers as statements that sum to the cent, closed months, FOCUS out and in."""

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from tests.books.charging.gpu_bills import tag, write_focus_bill
from tests.commands import measure_width

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.books.charging.fleet_chargeback import FleetChargeback
from loadfactor.books.import_remarks import find_remarks
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.pages.books import build_receipt
from loadfactor.interfaces.pages.chargeback import build_changes, build_chargeback, write_focus
from loadfactor.interfaces.render.json import render_json
from loadfactor.interfaces.render.terminal import render_text
from loadfactor.sources.base import ReadOptions
from loadfactor.store.live import LiveBatch, LiveLog

Amounts = dict[tuple[str | None, str | None], str]


def amounts(found: FleetChargeback, column: str = "BilledCost") -> Amounts:
    """Amounts by team and pool."""
    return {(s.by["team"], s.pool): str(s.amounts[column]) for s in found.statements}


def check_sums(found: FleetChargeback) -> None:
    """Statements sum to what is charged, parts to statements, and nothing differs."""
    for column, total in found.totals.items():
        assert sum(s.amounts[column] for s in found.statements) == total.charged
        assert total.difference == 0
        assert total.bill == total.charged + total.rounding
        for statement in found.statements:
            assert sum((part.amounts[column] for part in statement.parts), Decimal(0)) == statement.amounts[column]


@pytest.fixture
def bill(tmp_path: Path) -> Callable[..., Books]:
    """A function that imports bills, each a list of rows, into new books."""

    def make(*bills: list[dict[str, str]]) -> Books:
        books = Books(tmp_path / "books")
        for number, rows in enumerate(bills):
            books.add("focus", [write_focus_bill(tmp_path / f"bill-{number}.csv", *rows)])
        return books

    return make


@pytest.mark.long
def test_what_changed_since_a_month_was_closed_is_known_to_the_hour(tmp_path: Path) -> None:
    """Two hours of a GPU at $2 that come late are the hours that differ, with their GPU-hours and money."""
    header = "job_id,device_id,team,from_utc,to_utc\n"
    day = "2026-10-05T{:02}:00Z"
    tables = {
        "devices": "device_id,node,from_utc,to_utc\ng0,n0,2026-10-05T00:00Z,2026-10-06T00:00Z\n",
        "prices": "basis,price_per_gpu_hour\ncontracted,2\n",
        "allocations": f"{header}j,g0,a,{day.format(0)},{day.format(4)}\n",
    }
    (tmp_path / "first").mkdir()
    for name, text in tables.items():
        (tmp_path / "first" / f"{name}.csv").write_text(text)
    books = Books(tmp_path / "books")
    books.add("tables", [tmp_path / "first"])
    books.close_month("2026-10", is_known_to_lack=True)
    (tmp_path / "allocations.csv").write_text(
        f"{header}j,g0,a,{day.format(0)},{day.format(4)}\nk,g0,b,{day.format(13)},{day.format(15)}\n"
    )
    books.add("tables", [tmp_path / "allocations.csv"])
    changed = books.compare_closed("2026-10")
    assert [(c.by["team"], str(c.change["EffectiveCost"])) for c in changed.statements if c.pool is None] == [
        ("b", "4.00")
    ]
    assert [of.what for of in changed.reasons if of.kind == "hour"] == [
        "2026-10-05 13:00 to 15:00: held GPU-hours 0.0 → 2.0"
    ]
    assert not any(
        of.kind == "hour"
        for of in books.compare_closed("2026-10", timezone=ZoneInfo("Asia/Kolkata")).reasons
        if "13:00" in of.what
    )


@pytest.mark.long
def test_what_came_live_after_a_month_was_closed_is_late_data(tmp_path: Path) -> None:
    """Of a day of that month; of another month it is no reason."""
    day = round(datetime(2026, 10, 5, tzinfo=UTC).timestamp()) * 1_000
    table = tmp_path / "devices.csv"
    table.write_text("device_id,node,from_utc,to_utc\ng0,n0,2026-10-05T00:00Z,2026-11-06T00:00Z\n")
    (tmp_path / "prices.csv").write_text("basis,price_per_gpu_hour\ncontracted,2\n")
    books = Books(tmp_path / "books")
    books.add("tables", [table, tmp_path / "prices.csv"])
    books.close_month("2026-10", is_known_to_lack=True)
    with LiveLog.open(books.store.folder) as log:
        for at in (day, day + 31 * MS_PER_DAY):
            held = {
                "job_id": ["k"],
                "device_id": ["g0"],
                "team": ["b"],
                "from_utc": [at],
                "to_utc": [at + 2 * MS_PER_HOUR],
            }
            log.acknowledge([LiveBatch("labels:gpus", "allocations", pa.table(held), "n0")])
        log.discard_through(books.flush())
    reasons = books.compare_closed("2026-10").reasons
    assert [of.what for of in reasons if of.kind == "late data"] == [
        "labels:gpus, live 2026-10-05: came after the month was closed"
    ]
    assert not [of for of in reasons if of.kind == "import"]


def test_every_line_of_a_bill_finds_its_statement(bill: Callable[..., Books]) -> None:
    """Tags name the owner; without one: taxes and support are shared, unused commitments their own pool, the rest is untagged."""
    books = bill(
        [
            {"cost": "100.005", "Tags": tag("vision")},
            {"cost": "50.01", "Tags": tag("llm")},
            {"cost": "7", "CommitmentDiscountStatus": "Unused", "Tags": tag("llm")},
            {"cost": "3.5", "ChargeCategory": "Tax"},
            {"cost": "20", "ServiceName": "Premium Support"},
            {"cost": "9.99"},
            {"cost": "-4", "ChargeCategory": "Credit"},
        ]
    )
    found = books.chargeback()
    check_sums(found)
    assert found.cost_source == "bill"
    assert amounts(found) == {
        ("llm", None): "50.01",
        ("vision", None): "100.00",
        (None, "shared"): "19.50",
        (None, "unused commitment"): "7.00",
        (None, "untagged"): "9.99",
    }
    assert str(found.totals["BilledCost"].rounding) == "0.005"


def test_a_month_holds_what_is_charged_for_it(bill: Callable[..., Books]) -> None:
    """A correction that is billed in November for October is of October; a month without anything is refused in one line."""
    later = {"BillingPeriodStart": "2026-11-01T00:00:00Z", "BillingPeriodEnd": "2026-12-01T00:00:00Z"}
    books = bill([{"cost": "10", "Tags": tag("a")}], [later | {"cost": "-1", "Tags": tag("a")}])
    assert amounts(books.chargeback("2026-10")) == {("a", None): "9.00"}
    with pytest.raises(InputError, match="no GPU-hours of 2026-12"):
        books.chargeback("2026-12")
    with pytest.raises(InputError, match="is no month"):
        books.chargeback("2026-13")


@pytest.mark.long
def test_currencies_are_converted_by_dated_rates_or_picked(bill: Callable[..., Books], tmp_path: Path) -> None:
    """Without a rate one line says which is missing; with it amounts are converted exactly; --currency picks the lines of one."""
    euro = {"BillingCurrency": "EUR", "BillingAccountId": "2"}
    books = bill([{"cost": "10", "Tags": tag("a")}], [euro | {"cost": "20", "Tags": tag("a")}])
    with pytest.raises(InputError, match="no rate of EUR in USD is known for 2026-10-05"):
        books.chargeback()
    euros = books.chargeback(currency="EUR")
    assert (euros.currency, amounts(euros)) == ("EUR", {("a", None): "20.00"})
    assert euros.remarks == ("lines of bills in other currencies are left out: 1 in USD",)
    (tmp_path / "exchange_rates.csv").write_text("currency,from_utc,rate\nEUR,2026-10-01,1.1\nEUR,2026-11-01,2\n")
    books.add("tables", [tmp_path / "exchange_rates.csv"])
    assert amounts(books.chargeback()) == {("a", None): "32.00"}


@pytest.mark.long
def test_closed_months_are_kept_and_name_what_they_replace(bill: Callable[..., Books], tmp_path: Path) -> None:
    """Closing keeps statements, unchanged ones once; after a late bill --diff says what changed, and a new closing replaces."""
    books = bill([{"cost": "10", "Tags": tag("a")}])
    with pytest.raises(InputError, match="is not closed"):
        books.compare_closed("2026-10")
    with pytest.raises(
        InputError, match=r"2026-10 is not whole: the bill covers 0\.0 of its 31 days.*about [\d,.]+ USD.*--yes"
    ):
        books.close_month("2026-10")
    with pytest.raises(InputError, match="is not closed"):
        books.show_closed("2026-10")
    first = books.close_month("2026-10", is_known_to_lack=True, remark="the rest comes late")
    assert (first.closing, first.replaces) == ("2026-10.1", None)
    assert books.close_month("2026-10", is_known_to_lack=True).closing == "2026-10.1"
    closed = books.chargeback("2026-10")
    assert closed.closing == "2026-10.1"
    assert "was closed on" in closed.remarks[-1]
    assert "the rest comes late" in closed.remarks[-1]
    assert not books.compare_closed("2026-10").statements
    late = [{"cost": "10", "Tags": tag("a")}, {"cost": "2.5", "Tags": tag("b")}]
    books.add("focus", [write_focus_bill(tmp_path / "late.csv", *late)])
    now = books.chargeback("2026-10")
    assert now.closing is None
    assert "as 2026-10.1, by team in USD; these statements are not those" in now.remarks[-1]
    assert books.show_closed("2026-10").statements == closed.statements
    changed = books.compare_closed("2026-10")
    assert [(reason.kind, str(reason.amount)) for reason in changed.reasons] == [("import", "None"), ("day", "2.50")]
    assert "late.csv" in changed.reasons[0].what
    assert changed.reasons[1].what == "2026-10-05"
    assert [(c.by["team"], str(c.change["BilledCost"])) for c in changed.statements] == [("b", "2.50")]
    assert "1 statements of 2026-10 changed" in build_changes(changed, "").headline
    second = books.close_month("2026-10", is_known_to_lack=True)
    assert (second.closing, second.replaces) == ("2026-10.2", "2026-10.1")
    number = books.imports[-1].number
    with pytest.raises(InputError, match="statements of a closed month"):
        books.forget(number)


def test_a_month_without_statements_is_not_closed(bill: Callable[..., Books]) -> None:
    """A bill whose lines all cost nothing gives nobody a statement, so there is none to keep."""
    books = bill([{"cost": "0", "Tags": tag("a")}])
    assert not books.chargeback("2026-10").statements
    with pytest.raises(InputError, match="nothing of 2026-10 is charged to anybody"):
        books.close_month("2026-10")


@pytest.mark.long
def test_statements_loaded_back_are_the_same(bill: Callable[..., Books], tmp_path: Path) -> None:
    """What --format focus writes, imported into other books, gives the same statements to the cent, pools among them."""
    rows = [
        {"cost": "10.333", "Tags": tag("a")},
        {"cost": "5", "Tags": tag("ü, b"), "ServiceCategory": "Storage"},
        {"cost": "3", "ChargeCategory": "Tax"},
        {"cost": "1"},
        {"cost": "2", "CommitmentDiscountStatus": "Unused"},
    ]
    found = bill(rows).chargeback()
    path = tmp_path / "focus.csv"
    path.write_text(write_focus(build_chargeback(found, "")), encoding="utf-8")
    again = Books(tmp_path / "again")
    again.add("focus", [path])
    for column in ("BilledCost", "EffectiveCost"):
        assert amounts(again.chargeback(), column) == amounts(found, column)


# FOCUS 1.3, Cost and Usage: columns of feature level Mandatory; True where the column does not allow nulls
MANDATORY = {
    **dict.fromkeys(
        ("BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart"), True
    ),
    **dict.fromkeys(
        ("ChargeCategory", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost"), True
    ),
    **dict.fromkeys(
        ("InvoiceIssuerName", "ListCost", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName"), True
    ),
    **dict.fromkeys(("HostProviderName", "ServiceProviderName"), True),
    **dict.fromkeys(
        ("BillingAccountName", "ChargeClass", "ChargeDescription", "PricingQuantity", "PricingUnit"), False
    ),
}
ALLOCATION = (
    "AllocatedMethodId",
    "AllocatedMethodDetails",
    "AllocatedResourceId",
    "AllocatedResourceName",
    "AllocatedTags",
)


def test_focus_has_the_columns_of_the_specification(bill: Callable[..., Books]) -> None:
    """Every mandatory column is there and filled where it may not be empty; so are the allocation columns of 1.3."""
    costs = dict.fromkeys(("ListCost", "ContractedCost"), "4")
    found = bill([{"cost": "3", "Tags": tag("a")} | costs, {"cost": "1", "ChargeCategory": "Tax"} | costs]).chargeback()
    rows = list(csv.DictReader(io.StringIO(write_focus(build_chargeback(found, "")))))
    assert len(rows) == 2
    for row in rows:
        assert {*MANDATORY, *ALLOCATION} <= set(row)
        assert [name for name, filled in MANDATORY.items() if filled and not row[name]] == []
        assert json.loads(row["AllocatedMethodDetails"])["Elements"][0]["AllocatedRatio"] in (0.75, 0.25)


def test_without_a_bill_prices_are_charged(simulated_books: Books) -> None:
    """Price × installed time: every state has its statement, sums are those of `show cost`, and only EffectiveCost is known."""
    found = simulated_books.chargeback(by=("team", "project"))
    check_sums(found)
    assert list(found.totals) == ["EffectiveCost"]
    (cost,) = simulated_books.show("cost")
    assert float(found.totals["EffectiveCost"].bill) == pytest.approx(cost.value, rel=1e-7)
    teams = {s.by["team"] for s in found.statements if s.pool is None}
    assert teams
    assert None not in teams
    page = build_chargeback(found, "")
    for width in (80, 100):
        assert measure_width(render_text(page, width)) <= width
    assert '"difference": "0.00"' in render_json(page)


@pytest.mark.long
def test_real_bills_are_charged_to_the_cent(shared: Path, tmp_path: Path) -> None:
    """Of every Azure header variant and every example of FOCUS the statements sum to the rounded file, with a difference of 0."""
    billing = shared / "data" / "billing"
    files = [("azure-cost", path) for path in sorted((billing / "azure_export_variants").glob("*.csv"))]
    files += [("focus", path) for path in sorted((billing / "focus_spec_examples").glob("*.csv"))[:4]]
    assert files
    for number, (source, path) in enumerate(files):
        books = Books(tmp_path / str(number))
        is_named = "urrency" in path.read_text(encoding="utf-8-sig").partition("\n")[0].replace("inbillingcurrency", "")
        books.add(source, [path], ReadOptions(currency=None if is_named else "USD"))
        check_sums(books.chargeback())


def test_statements_of_other_pages_are_no_focus(bill: Callable[..., Books]) -> None:
    """A page of changes cannot be written as FOCUS, and names that nothing is by are refused with the nearest."""
    with pytest.raises(InputError, match="leave --diff out"):
        write_focus(Document("changes", data={}))
    with pytest.raises(InputError, match="team"):
        bill([{"cost": "1"}]).chargeback(by="taem")


def test_gpu_lines_are_of_kind_gpu_without_devices(bill: Callable[..., Books]) -> None:
    """A type of the catalog with GPUs makes a line's kind gpu, also where the ledger knows no node."""
    kinds = {"ServiceCategory": "Storage"}
    books = bill(
        [
            {"cost": "10", "Tags": tag("a"), "x_InstanceType": "p4d.24xlarge", **kinds},
            {"cost": "5", "Tags": tag("a"), "x_InstanceType": "m5.large", **kinds},
            {
                "cost": "2",
                "Tags": tag("a"),
                "x_InstanceType": "p4d.24xlarge",
                "CommitmentDiscountStatus": "Used",
                **kinds,
            },
        ]
    )
    (statement,) = books.chargeback().statements
    assert {part.name: str(part.amounts["BilledCost"]) for part in statement.parts} == {
        "gpu": "12.00",
        "storage": "5.00",
    }


def test_an_import_says_its_control_total_and_prices_of_no_gpu(bill: Callable[..., Books], tmp_path: Path) -> None:
    """Lines and costs by month, account and currency as the file has them; a price of GPUs that nobody has is named."""
    rows = [
        {"cost": "10.005"},
        {"cost": "-1"},
        {"cost": "3", "BillingAccountId": "2", "ChargePeriodStart": "2026-09-30T00:00:00Z"},
    ]
    books = bill(rows)
    totals = find_remarks(books.store, 1).control_totals
    assert [(t.month, t.account, t.currency, t.lines, str(t.billed_cost)) for t in totals] == [
        ("2026-09", "2", "USD", 1, "3"),
        ("2026-10", "1", "USD", 2, "9.005"),
    ]
    (tmp_path / "prices.csv").write_text(
        "accelerator,basis,price_per_gpu_hour\nb200-sxm,contracted,4\nh100-sxm,list,3\n"
    )
    (tmp_path / "devices.csv").write_text("device_id,accelerator,from_utc\na,h100-sxm,2026-10-05T00:00:00Z\n")
    books.add("tables", [tmp_path / "devices.csv"])
    receipt = books.add("tables", [tmp_path / "prices.csv"])
    page = build_receipt(receipt, books)
    assert [price.of for price in page.data.unmatched_prices] == ["b200-sxm"]
    assert "Prices that match no GPU" in render_text(page)


@pytest.mark.long
def test_a_rate_divides_only_amounts_that_have_these_hours(bill: Callable[..., Books], tmp_path: Path) -> None:
    """GPUs of a bill on no known node have no hours, and hours of nodes that nobody billed have no amount: no rate of either.

    Where nothing was observed, idle and effective are not known.
    """
    books = bill([{"cost": "100", "x_InstanceType": "p5.48xlarge", "ResourceId": "i-0", "Tags": tag("a")}])
    span = "2026-10-05T00:00:00Z,2026-10-05T04:00:00Z"
    (tmp_path / "devices.csv").write_text(f"device_id,node,from_utc,to_utc\ng,n1,{span}\n")
    (tmp_path / "allocations.csv").write_text(f"job_id,device_id,team,from_utc,to_utc\nj,g,a,{span}\n")
    books.add("tables", [tmp_path / "devices.csv", tmp_path / "allocations.csv"])
    (of,) = (statement for statement in books.chargeback("2026-10").statements if statement.pool is None)
    assert (of.hours.total, of.amounts["BilledCost"], of.rates["BilledCost"]) == (4, 100, None)
    assert (of.hours.idle, of.hours.effective) == (None, None)
