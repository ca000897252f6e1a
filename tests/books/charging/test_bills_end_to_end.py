"""Bills from file to statement: whatever order, parts and forms they come in, nothing is counted twice and no cent is lost."""

import csv
import gzip
import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.books.charging.focus_bills import USUAL, tag, write_bill
from tests.books.charging.test_billed_prices import make_books
from tests.long import rest_long

from loadfactor.books.bill_comparison import HOURS, NEVER_SEEN
from loadfactor.books.books import Books

Row = dict[str, Any]
COMMITTED: Row = {"CommitmentDiscountId": "c-1", "CommitmentDiscountType": "Reserved", "ServiceName": "VM"}
COVERED: Row = COMMITTED | {"BilledCost": "0", "PricingCategory": "Committed", "CommitmentDiscountStatus": "Used"}
UNUSED: Row = COVERED | {"CommitmentDiscountStatus": "Unused", "ResourceId": ""}
BOUGHT: Row = COMMITTED | {"ChargeCategory": "Purchase", "EffectiveCost": "0", "ResourceId": "", "Tags": ""}
EXAMPLES: dict[str, tuple[list[Row], str, str, str]] = {
    "all of it is used by one": (
        [BOUGHT | {"BilledCost": "1.50"}, COVERED | {"EffectiveCost": "1.50", "Tags": tag("a")}],
        "1.50 1.50 1.50 0",
        "a: 0.00 1.50",
        "shared: 1.50 0.00",
    ),
    "two share it beside usage on demand": (
        [
            BOUGHT | {"BilledCost": "2"},
            COVERED | {"EffectiveCost": "1.333333333", "Tags": tag("a")},
            COVERED | {"EffectiveCost": "0.666666667", "Tags": tag("b")},
            {"BilledCost": "2.25", "EffectiveCost": "2.25", "Tags": tag("b")},
        ],
        "2 2 2 0",
        "a: 0.00 1.33, b: 2.25 2.92",
        "shared: 2.00 0.00",
    ),
    "nobody uses it": (
        [
            BOUGHT | {"BilledCost": "1.50"},
            UNUSED | {"EffectiveCost": "1.50"},
            {"BilledCost": "2", "EffectiveCost": "2", "Tags": tag("b")},
        ],
        "1.50 1.50 0 1.50",
        "b: 2.00 2.00",
        "shared: 1.50 0.00, unused commitment: 0.00 1.50",
    ),
    "paid upfront, with a fee every hour and a refund": (
        [
            BOUGHT | {"BilledCost": "8.76", "ChargeFrequency": "One-Time"},
            BOUGHT | {"BilledCost": "1.25", "ChargeFrequency": "Recurring"},
            BOUGHT | {"BilledCost": "-0.01", "ChargeFrequency": "One-Time"},
            COVERED | {"EffectiveCost": "7.5", "Tags": tag("a")},
            UNUSED | {"EffectiveCost": "2.5"},
        ],
        "10.00 10.0 7.5 2.5",
        "a: 0.00 7.50",
        "shared: 10.00 0.00, unused commitment: 0.00 2.50",
    ),
}
"""Rows of a commitment; then purchased, amortized, used, unused; what each owner and pool is billed, and its effective cost."""


def say(books: Books, month: str | None = "2026-10") -> dict[str, str]:
    """Statements as text, owner or pool → amounts; every column sums to the bill."""
    found = books.chargeback(month)
    for total in found.totals.values():
        assert total.difference == 0
        assert total.bill - total.rounding == total.charged
    return {
        s.pool or str(s.by["team"]): f"{s.amounts['BilledCost']:f} {s.amounts['EffectiveCost']:f}"
        for s in found.statements
    }


def write_focus_rows(path: Path, rows: list[Row]) -> Path:
    """Rows as a FOCUS file with every column that any of them has."""
    full = [USUAL | row for row in rows]
    names = list(dict.fromkeys(name for row in full for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(full)
    return path


@pytest.mark.parametrize("name", EXAMPLES)
def test_commitments_keep_the_invariants_of_focus(name: str, tmp_path: Path) -> None:
    """What was purchased is what usage costs amortized, used and unused; the waste is in a pool of its own, nothing is spread."""
    rows, amounts, owners, pools = EXAMPLES[name]
    books = Books(tmp_path / "store")
    books.add("focus", [write_focus_rows(tmp_path / "bill.csv", rows)])
    (one,) = books.commitments().commitments
    bought, amortized, used, unused = map(Decimal, amounts.split())
    assert (one.purchased_cost, one.use.used_cost, one.use.unused_cost) == (bought, used, unused)
    assert one.use.used_cost + one.use.unused_cost == amortized
    assert one.difference_cost == 0
    expected = dict(part.split(": ") for said in (owners, pools) for part in said.split(", "))
    assert say(books) == expected


HEAD = {
    "BillingAccountId": "1",
    "SubscriptionId": "s",
    "BillingPeriodStartDate": "10/01/2026",
    "BillingPeriodEndDate": "10/31/2026",
    "Date": "10/05/2026",
    "MeterCategory": "Virtual Machines",
    "MeterSubCategory": "NDasrA100_v4 Series",
    "MeterName": "ND96asr A100 v4",
    "UnitOfMeasure": "1 Hour",
    "BillingCurrencyCode": "USD",
    "Quantity": "24",
    "Tags": '"team": "a"',
    "ChargeType": "Usage",
    "PricingModel": "OnDemand",
    "ReservationId": "",
    "AdditionalInfo": '{"ServiceType": "Standard_ND96asr_v4"}',
    "ResourceId": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/n1",
    "CostInBillingCurrency": "240",
}
RESERVED = HEAD | {"PricingModel": "Reservation", "ReservationId": "r-1", "ResourceId": HEAD["ResourceId"][:-1] + "2"}
NOBODYS = {"ResourceId": "", "Tags": "", "AdditionalInfo": ""}
ACTUAL = [
    HEAD,
    RESERVED | {"CostInBillingCurrency": "0"},
    RESERVED | NOBODYS | {"ChargeType": "Purchase", "CostInBillingCurrency": "300", "Quantity": "1"},
]
AMORTIZED = [
    HEAD,
    RESERVED | {"CostInBillingCurrency": "190"},
    RESERVED | NOBODYS | {"ChargeType": "UnusedReservation", "CostInBillingCurrency": "110", "Quantity": "1"},
]


@pytest.mark.parametrize("order", [("actual", "amortized"), ("amortized", "actual"), ("actual", "amortized", "actual")])
def test_actual_and_amortized_exports_count_each_cost_once(order: tuple[str, ...], tmp_path: Path) -> None:
    """In either order, and delivered again: invoiced is what the actual one says, effective the other; GPU-hours count once."""
    books = make_books(tmp_path, {"n1": (8, 96, 120), "n2": (8, 96, 108)})
    for number, which in enumerate(order):
        rows = ACTUAL if which == "actual" else AMORTIZED
        path = tmp_path / f"{number}" / "export.csv"
        path.parent.mkdir()
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, HEAD)
            writer.writeheader()
            writer.writerows(
                [*rows, HEAD | NOBODYS | {"MeterCategory": f"Storage {number}", "CostInBillingCurrency": "0"}]
            )
        books.add("azure-cost", [path])
    totals = books.chargeback("2026-10").totals
    assert (totals["BilledCost"].bill, totals["EffectiveCost"].bill) == (540, 540)
    (one,) = books.commitments().commitments
    assert (one.purchased_cost, one.use.used_cost, one.use.unused_cost, one.difference_cost) == (300, 190, 110, 0)
    compared = books.compare_bills()
    assert compared.billed_gpu_hours == pytest.approx(2 * 192)
    assert compared.billed_cost == pytest.approx(430)
    assert [(d.kind, d.of, d.billed_gpu_hours, d.seen_gpu_hours) for d in compared.differences] == [
        (HOURS, "n2", 192, 96)
    ]
    assert say(books)["unused commitment"] == "0.00 110.00"


def google_line(
    sku: str, hours: float, cost: float, resource: str, machine: str, unit: str = "seconds", **more: Any
) -> Row:
    """A line as BigQuery exports it, from 5 October on."""
    start = datetime(2026, 10, 5, tzinfo=UTC)
    amount = hours * {"seconds": 3600, "h": 1}[unit]
    return {
        "billing_account_id": "01-A",
        "service": {"id": "6F", "description": "Compute Engine"},
        "sku": {"id": sku, "description": sku},
        "usage_start_time": start,
        "usage_end_time": start + timedelta(hours=24),
        "project": {"id": "p1", "name": "Project"},
        "labels": [{"key": "team", "value": "nlp"}],
        "system_labels": [{"key": "compute.googleapis.com/machine_spec", "value": machine}],
        "location": {"region": "us-east1", "zone": "us-east1-b"},
        "resource": {"name": resource, "global_name": f"//compute.googleapis.com/projects/1/instances/{resource}"},
        "cost": cost,
        "cost_at_list": cost,
        "currency": "USD",
        "usage": {"amount": amount, "unit": unit, "amount_in_pricing_units": hours, "pricing_unit": "hour"},
        "invoice": {"month": "202610"},
        "cost_type": "regular",
        "adjustment_info": {"id": None, "type": None},
        "credits": [],
    } | more


def test_google_bills_of_gpus_become_gpu_hours(tmp_path: Path) -> None:
    """A SKU of GPUs counts its own hours, whatever the machine's cores and memory cost; a machine sold whole counts its GPUs."""
    books = make_books(tmp_path, {"vm-1": (2, 96, 120), "vm-2": (8, 96, 120)})
    lines = [
        google_line("Nvidia L4 GPU running in Americas", 48, 33.6, "vm-1", "g2-standard-24"),
        google_line("G2 Instance Core running in Americas", 24 * 24, 14.4, "vm-1", "g2-standard-24"),
        google_line("G2 Instance Ram running in Americas", 96 * 24, 6.9, "vm-1", "g2-standard-24"),
        google_line("Nvidia H100 80GB GPU running in Americas", 192, 1900.5, "vm-2", "a3-highgpu-8g", "h"),
        google_line("A3 Instance Core running in Americas", 208 * 24, 120.25, "vm-2", "a3-highgpu-8g"),
        google_line("Nvidia H100 80GB GPU running in Americas", 16, 160, "vm-3", "a3-highgpu-8g"),
        google_line("N1 Predefined Instance Core running in Americas", 24, 1.5, "vm-4", "n1-standard-1"),
        google_line("Balanced PD Capacity", 24, 2.25, "disk-1", ""),
    ]
    pq.write_table(pa.Table.from_pylist(lines), tmp_path / "part-000.parquet")
    books.add("gcp-billing", [tmp_path / "part-000.parquet"])
    compared = books.compare_bills()
    assert compared.billed_gpu_hours == pytest.approx(48 + 192 + 16)
    assert compared.seen_gpu_hours == pytest.approx(48 + 192)
    assert [(d.kind, d.of, d.billed_gpu_hours, d.amount) for d in compared.differences] == [
        (NEVER_SEEN, "vm-3", pytest.approx(16), pytest.approx(160))
    ]
    whole = sum((Decimal(repr(at["cost"])) for at in lines), Decimal(0))
    assert {total.bill for total in books.chargeback("2026-10").totals.values()} == {whole}
    say(books)


def write_part(path: Path, rows: list[Row], form: str) -> None:
    """A part of a bill as CSV, gzipped or Parquet."""
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist([USUAL | row for row in rows]), path.with_suffix(".parquet"))
        return
    write_bill(path.with_suffix(".csv"), *rows)
    if form == "gzip":
        text = path.with_suffix(".csv").read_bytes()
        path.with_suffix(".csv.gz").write_bytes(gzip.compress(text))
        path.with_suffix(".csv").unlink()


@pytest.mark.parametrize("seed", rest_long(range(4)))
def test_no_order_and_no_parts_change_a_statement(seed: int, tmp_path: Path) -> None:
    """The rows of a bill in one file, or shuffled over parts of every form in a folder, or those parts named in any order."""
    rnd = random.Random(seed)
    rows = [
        {
            "BilledCost": f"{rnd.randrange(-900, 9000)}.{rnd.randrange(10**9):09}",
            "EffectiveCost": f"{rnd.randrange(9000)}.{rnd.randrange(10**6):06}",
            "Tags": rnd.choice((tag("a"), tag("b"), json.dumps({"team": "c", "owner": "ann"}), "")),
            "ChargeCategory": rnd.choice(("Usage", "Usage", "Credit", "Tax")),
            "ResourceId": rnd.choice(("vm-1", "vm-2", "")),
        }
        for _ in range(rnd.randrange(2, 90))
    ]
    one = Books(tmp_path / "one")
    one.add("focus", [write_bill(tmp_path / "bill.csv", *rows)])
    expected = say(one)
    rnd.shuffle(rows)
    folder = tmp_path / "parts"
    folder.mkdir()
    count = rnd.randrange(1, 7)
    for number in range(count):
        if part := rows[number::count]:
            write_part(folder / f"part-{rnd.randrange(10**6)}-{number}", part, rnd.choice(("csv", "gzip", "parquet")))
    whole = Books(tmp_path / "whole")
    whole.add("focus", [folder])
    assert say(whole) == expected
    named = sorted(folder.iterdir())
    rnd.shuffle(named)
    by_name = Books(tmp_path / "named")
    by_name.add("focus", named)
    assert say(by_name) == expected
