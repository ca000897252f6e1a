"""Bills from file to statement: nothing counts twice, no cent is lost, and `bill compare` agrees with a slow oracle."""

import csv
import gzip
import json
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.books.charging.gpu_bills import START, USUAL, Line, line, tag, write_focus_bill
from tests.books.charging.test_billed_nodes import bill, make_books
from tests.long import rest_long

from loadfactor.base.errors import InputError
from loadfactor.books.bill_comparison import HOURS, NEVER_BILLED, NEVER_SEEN, PRICE, UNSAID
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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
    write_focus_bill(path.with_suffix(".csv"), *rows)
    if form == "gzip":
        text = path.with_suffix(".csv").read_bytes()
        path.with_suffix(".csv.gz").write_bytes(gzip.compress(text))
        path.with_suffix(".csv").unlink()


@pytest.mark.long
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
    one.add("focus", [write_focus_bill(tmp_path / "bill.csv", *rows)])
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


@pytest.mark.long
def test_every_difference_has_its_amount(tmp_path: Path) -> None:
    """Billed and never seen, seen and never billed, hours, prices and unknown types are told apart, the largest amount first."""
    prices = [{"basis": "contracted", "price_per_gpu_hour": 1.0}]
    books = make_books(
        tmp_path, {"same": (8, 0, 24), "late": (8, 4, 24), "dear": (8, 0, 24), "own": (4, 0, 24)}, {"prices": prices}
    )
    lines = [line("same", hour, 1, "8") for hour in range(24)]
    lines += [line("late", 0, 24, "192"), line("dear", 0, 24, "240"), line("ghost", 0, 24, "500")]
    lines += [line("new", 0, 24, "70", kind="p99.48xlarge"), line("late", 0, 24, "9", kind="m5.large")]
    lines += [
        line("same", 0, 24, "99", CommitmentDiscountStatus="Unused"),
        line("same", 0, 24, "9", ChargeCategory="Tax"),
    ]
    bill(books, tmp_path, lines)
    found = books.compare_bills()
    assert [(d.kind, d.of, d.amount and round(d.amount, 9)) for d in found.differences] == [
        (NEVER_SEEN, "ghost", 500),
        (NEVER_BILLED, "own", 4 * 24 * 1.0),
        (UNSAID, "new", 70),
        (PRICE, "dear", 240 - 192),
        (HOURS, "late", 8 * 4 * 1.0),
    ]
    assert found.billed_gpu_hours == pytest.approx(4 * 192)
    assert found.seen_gpu_hours == pytest.approx(192 + 160 + 192 + 96)
    said = {f.what.split(":")[0]: (f.gpu_hours, f.cost) for f in books.check().findings}
    assert said[NEVER_SEEN] == (pytest.approx(192), pytest.approx(500))
    assert said[HOURS] == (pytest.approx(32), pytest.approx(32))
    assert said[PRICE] == (pytest.approx(192), pytest.approx(48))


def test_books_without_bills_have_nothing_to_compare(tmp_path: Path) -> None:
    """Without a bill, or one of another time, a line says what is missing; doctor has nothing to say."""
    books = make_books(tmp_path, {"n": (8, 0, 24)})
    with pytest.raises(InputError, match="hold no bills"):
        books.compare_bills()
    bill(books, tmp_path, [line("n", 100, 24, "8")])
    with pytest.raises(InputError, match="no bill charges for GPUs in time"):
        Books(tmp_path / "store").compare_bills()
    assert not any("billed" in f.what for f in books.check().findings)


GPUS = {"p4d.24xlarge": 8, "p4de.24xlarge": 8, "g5.xlarge": 1, "p99.48xlarge": None, "m5.large": 0}
AGREED = 1.25
Found = dict[tuple[str, str], tuple[float | None, float | None, float | None]]
"""Kind and name of a difference → hours billed and seen, amount."""


def make_line(rnd: random.Random, node: str) -> Line:
    """A line of an instance; now and then one that is no use of it."""
    start, hours = rnd.randrange(40), rnd.choice((1, 2.5, 24))
    kind = rnd.choice((*GPUS, "p4d.24xlarge", "p4d.24xlarge"))
    more = rnd.choice(({}, {}, {}, {}, {"ChargeCategory": "Tax"}, {"CommitmentDiscountStatus": "Unused"}))
    return line(node, start, hours, f"{rnd.randrange(1, 4000)}.{rnd.randrange(100):02}", kind, **more)


def compare(lines: list[Line], nodes: dict[str, tuple[int, float, float]]) -> Found:
    """What differs, line after line and node after node."""
    use = [
        at
        for at in lines
        if at["ChargeCategory"] == "Usage"
        and not at.get("CommitmentDiscountStatus")
        and GPUS[str(at["x_InstanceType"])] != 0
    ]
    spans = [(hour_of(at), hour_of(at) + float(str(at["ConsumedQuantity"]))) for at in use]
    first, last = max(0.0, min(s for s, _ in spans)), max(e for _, e in spans)
    first, last = max(first, min(s for _, s, _ in nodes.values())), min(last, max(e for _, _, e in nodes.values()))
    billed: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    unsaid: set[str] = set()
    for at, (start, end) in zip(use, spans, strict=True):
        part = (min(end, last) - max(start, first)) / (end - start)
        if part <= 0:
            continue
        name, gpus = str(at["ResourceId"]), GPUS[str(at["x_InstanceType"])]
        billed[name][1] += float(str(at["EffectiveCost"])) * part
        if gpus is None:
            unsaid.add(name)
        else:
            billed[name][0] += gpus * (end - start) * part
    seen = {n: g * max(0.0, min(e, last) - max(s, first)) for n, (g, s, e) in nodes.items()}
    found: Found = {}
    for name, (hours, cost) in billed.items():
        own = seen.get(name)
        if name in unsaid:
            found[UNSAID, name] = None, own or None, cost
        elif not own:
            found[NEVER_SEEN, name] = hours, 0.0, cost
        else:
            if abs(hours - own) > max(1.0, 0.01 * hours):
                found[HOURS, name] = hours, own, (hours - own) * cost / hours
            if abs(cost / hours - AGREED) > 0.001 * AGREED:
                found[PRICE, name] = hours, own, (cost / hours - AGREED) * hours
    for name, own in seen.items():
        if own and name not in billed:
            found[NEVER_BILLED, name] = 0.0, own, own * AGREED
    return found


def hour_of(at: Line) -> float:
    """The hour at which a line begins, counted from the start."""
    from datetime import datetime

    return (datetime.fromisoformat(str(at["ChargePeriodStart"])).timestamp() * 1000 - START) / 3_600_000


@pytest.mark.parametrize("seed", rest_long(range(6)))
def test_comparing_is_what_going_through_the_lines_says(seed: int, tmp_path: Path) -> None:
    """The same differences with the same hours and amounts, and the totals are the sums of the lines."""
    rnd = random.Random(seed)
    names = [f"n{i}" for i in range(rnd.randrange(3, 9))]
    nodes = {n: (8, rnd.randrange(20), rnd.randrange(21, 48)) for n in rnd.sample(names, max(1, len(names) - 1))}
    lines = [make_line(rnd, rnd.choice([*names, "ghost"])) for _ in range(rnd.randrange(5, 60))]
    lines.append(line(names[0], 0, 24, "192"))
    rnd.shuffle(lines)
    prices = [{"basis": "contracted", "price_per_gpu_hour": AGREED}]
    books = make_books(tmp_path, nodes, {"prices": prices})
    bill(books, tmp_path, lines)
    found = books.compare_bills()
    said = {(d.kind, d.of): (d.billed_gpu_hours, d.seen_gpu_hours, d.amount) for d in found.differences}
    expected = compare(lines, nodes)
    assert set(said) == set(expected)
    for which, numbers in expected.items():
        for is_one, number in zip(said[which], numbers, strict=True):
            assert is_one == (number if number is None else pytest.approx(number, rel=1e-9)), which
    assert len(said) == len(found.differences)
    amounts = [abs(d.amount or 0) for d in found.differences]
    assert amounts == sorted(amounts, reverse=True)
