"""Budgets and commitments by a bill: exact sums of what is in the file, days of charges, and FOCUS's own invariants."""

import csv
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from tests.books.conftest import Write
from tests.long import rest_long

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.money.commitments import CommitmentUse
from loadfactor.sources.base import ReadOptions

Cells = dict[str, str]
BUDGETS = """
[[budget]]
amount = 10_000
[[budget]]
team = "vision"
amount = 5_000
[[budget]]
team = "vision"
amount = 5_000
column = "BilledCost"
"""
TODAY = date(2026, 6, 20)


def bill(folder: Path, rows: list[Cells]) -> Books:
    """Books with these charges of June 2026 as a FOCUS file."""
    always = {
        "ProviderName": "cloud",
        "BillingAccountId": "1",
        "BillingCurrency": "USD",
        "BillingPeriodStart": "2026-06-01T00:00:00Z",
        "BillingPeriodEnd": "2026-07-01T00:00:00Z",
        "ChargeCategory": "Usage",
        "ChargeFrequency": "Usage-Based",
        "ServiceName": "instances",
    }
    full = [always | row for row in rows]
    names = sorted({name for row in full for name in row})
    folder.mkdir()
    with (folder / "bill.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(full)
    books = Books(folder / "store")
    books.add("focus", [folder / "bill.csv"])
    return books


def charge(start: datetime, days: float, cost: str, **cells: str) -> Cells:
    """A charge that begins at a time and lasts so many days; all of its costs are the same unless cells say otherwise."""
    period = {
        "ChargePeriodStart": f"{start:%Y-%m-%dT%H:%M:%SZ}",
        "ChargePeriodEnd": f"{start + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}",
    }
    return period | dict.fromkeys(("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"), cost) | cells


def tagged(team: str) -> str:
    return f'{{"team": "{team}"}}' if team else ""


@pytest.mark.parametrize("seed", rest_long(range(2)))
def test_spent_is_the_exact_sum_of_the_charges(seed: int, tmp_path: Path, write: Write) -> None:
    """By hand in Python's decimals: each column by itself, credits with their sign, every charge on its days."""
    write(BUDGETS)
    rnd = random.Random(seed)
    rows, expected = [], dict.fromkeys(("everybody", "vision", "billed"), Decimal(0))
    for _ in range(300):
        start = datetime(2026, 6, 1, tzinfo=UTC) + timedelta(hours=rnd.randrange(0, 18 * 24))
        team = rnd.choice(["vision", "nlp", ""])
        effective = Decimal(rnd.randint(-(10**9), 10**11)) / 10**9
        billed = Decimal(rnd.randint(0, 10**11)) / 10**9
        length = rnd.choice([1 / 24, 1, 3])
        rows.append(
            charge(start, length, str(effective), BilledCost=str(billed), Tags=tagged(team), ResourceId=str(len(rows)))
        )
        if start + timedelta(days=length) <= datetime(2026, 7, 1, tzinfo=UTC):
            expected["everybody"] += effective
            expected["vision"] += effective if team == "vision" else 0
            expected["billed"] += billed if team == "vision" else 0
    review = bill(tmp_path / "b", rows).budgets(today=TODAY)
    assert (review.source, review.basis, review.complete_through) == ("bill", None, date(2026, 6, 18))
    assert [status.spent for status in review.statuses] == list(expected.values())


def test_fixed_cost_is_not_carried_on_and_a_daily_one_goes_on(tmp_path: Path, write: Write) -> None:
    """A fee of $3,000 on day 1 and $250 a day of use come to $10,500 in June; a commitment amortized at $10 a day to $300 more."""
    write("[[budget]]\namount = 12_000\n")
    june = datetime(2026, 6, 1, tzinfo=UTC)
    use = [charge(june + timedelta(n), 1, "250", ResourceId=str(n)) for n in range(12)]
    fee = charge(june, 30, "3000", ChargeCategory="Purchase", ChargeFrequency="Recurring")
    (status,) = bill(tmp_path / "b", [*use, fee]).budgets(today=date(2026, 6, 14)).statuses
    assert status.forecast is not None
    assert (status.fixed_spent, status.spent, status.forecast.total) == (3000, 6000, 10_500)
    assert status.burn_rate == Decimal(6000) * 30 / (12_000 * 12)
    amortized = [
        charge(
            june + timedelta(n), 1, "10", CommitmentDiscountId="c", CommitmentDiscountStatus="Used", ResourceId=f"c{n}"
        )
        for n in range(12)
    ]
    (status,) = bill(tmp_path / "c", [*use, fee, *amortized]).budgets(today=date(2026, 6, 14)).statuses
    assert status.forecast is not None
    assert status.forecast.total == 10_800


def test_a_charge_of_several_days_lies_on_each_of_them(tmp_path: Path, write: Write) -> None:
    """$10 for three days pass $5 on the second; the days sum to $10 exactly."""
    write("[[budget]]\namount = 10\nthresholds_percent = [50, 100]\n")
    rows = [charge(datetime(2026, 6, 1, tzinfo=UTC), 3, "10")]
    (status,) = bill(tmp_path / "b", rows).budgets(today=date(2026, 6, 10)).statuses
    assert status.spent == 10
    assert [threshold.reached_on for threshold in status.thresholds] == [date(2026, 6, 2), date(2026, 6, 3)]


def test_a_commitment_is_measured_by_the_bill(tmp_path: Path, write: Write) -> None:
    """100 committed at 1.80, 80 used at 3.00 on demand: saved a quarter, $36 unused; coverage by use beside it; spot apart."""
    write("")
    june = datetime(2026, 6, 1, tzinfo=UTC)
    committed = {
        "CommitmentDiscountId": "arn/ri-1",
        "CommitmentDiscountType": "Reserved",
        "PricingCategory": "Committed",
    }
    rows = [
        charge(june, 30, "0", ChargeCategory="Purchase", BilledCost="180", ChargeFrequency="Recurring", **committed),
        charge(june, 1, "144", BilledCost="0", ContractedCost="240", CommitmentDiscountStatus="Used", **committed),
        charge(june, 1, "36", BilledCost="0", ContractedCost="60", CommitmentDiscountStatus="Unused", **committed),
        charge(june, 1, "60", ResourceId="beside"),
        charge(june, 1, "500", ServiceName="storage"),
        charge(june, 1, "12", ContractedCost="30", PricingCategory="Dynamic"),
    ]
    found = bill(tmp_path / "b", rows).commitments()
    (one,) = found.commitments
    assert one.use == CommitmentUse(Decimal(144), Decimal(36), Decimal(0), Decimal(240))
    assert (one.use.effective_savings_share, one.use.utilization_share) == (Decimal("0.25"), Decimal("0.8"))
    assert (one.label, one.purchased_cost, one.difference_cost) == ("ri-1", 180, 0)
    assert (found.uncovered.uncovered_cost, found.together.coverage_share) == (60, Decimal("0.8"))
    assert found.spot.effective_savings_share == Decimal("0.6")


SPEC = {  # file: purchased, used, unused, on demand of covered use, of use beside it; typed from FOCUS's examples
    "one_hundred_percent_utilization_with_commitment_discount_flexibility_with_1_resource": "0.5 0.5 0 3 2.25",
    "one_hundred_percent_utilization_with_commitment_discount_flexibility_with_2_resources": "2 2 0 4 0",
    "one_hundred_percent_utilization_without_commitment_discount_flexibility": "1.5 1.5 0 3 0",
    "zero_percent_utilization_without_commitment_discount_flexibility": "1.5 0 1.5 0 2",
}


@pytest.mark.parametrize("name", SPEC)
def test_the_examples_of_focus_keep_its_invariants(name: str, tmp_path: Path, write: Write, shared: Path) -> None:
    """What was purchased is what usage costs amortized, and that is what was used and what was not."""
    write("")
    path = shared / "data" / "billing" / "focus_spec_examples" / f"commitment_discount_flexibility__{name}.csv"
    books = Books(tmp_path / "store")
    books.add("focus", [path], ReadOptions(currency="USD"))
    found = books.commitments()
    (one,) = found.commitments
    said = [one.purchased_cost, one.use.used_cost, one.use.unused_cost, one.use.covered_on_demand_cost]
    assert [*said, found.uncovered.uncovered_on_demand_cost] == [Decimal(x) for x in SPEC[name].split()]
    assert one.difference_cost == 0


def test_of_two_exports_of_a_period_each_cost_is_read_once(tmp_path: Path, write: Write) -> None:
    """What is invoiced is that of the actual one, amortized cost that of the other, and of a period that has one only all of it.

    Charges in another currency count at the dated rate; without one they are refused.
    """
    write('[[budget]]\namount = 1\n[[budget]]\namount = 1\ncolumn = "BilledCost"\n')
    rows = [
        "ProviderName,BillingAccountId,BillingPeriodStart,ChargePeriodStart,BillingCurrency,x_Dataset,BilledCost,EffectiveCost"
    ]
    rows += [
        f"Azure,{account},2026-06-01T00:00:00Z,2026-06-02T00:00:00Z,{currency},{dataset},{billed},{effective}"
        for account, currency, dataset, billed, effective in (
            ("a", "USD", "actual", 7, 1),
            ("a", "USD", "amortized", 90, 5),
            ("b", "USD", "amortized", 400, 600),
            ("b", "EUR", "", 8000, 9000),
        )
    ]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "charges.csv").write_text("\n".join(rows))
    books = Books(tmp_path / "store")
    books.add("tables", [tmp_path / "b"])
    with pytest.raises(InputError, match="no rate of EUR in USD is known"):
        books.budgets(today=TODAY)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "exchange_rates.csv").write_text("currency,rate\nEUR,1.25\n")
    books.add("tables", [tmp_path / "c"])
    review = books.budgets(today=TODAY)
    assert [status.spent for status in review.statuses] == [605 + 11_250, 407 + 10_000]
    assert (review.currency, len(review.remarks)) == ("USD", 1)
