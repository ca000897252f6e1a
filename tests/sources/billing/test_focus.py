"""FOCUS bills: totals of the real samples, the invariants of commitments, and what is read tolerantly.

The samples are of FOCUS-Sample-Data, FOCUS_Spec's examples, Oracle's FOCUS reports and Microsoft's FinOps toolkit.
"""

import json
from collections import defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from tests.sources.billing.bills import Bill, read_bill, read_rows, sum_column, write_csv

from loadfactor.sources.billing.focus import SOURCE
from loadfactor.tables.charges import COSTS

ROW = {
    "BilledCost": "1.5",
    "EffectiveCost": "1.25",
    "BillingCurrency": "USD",
    "BillingPeriodStart": "2024-09-01T00:00:00Z",
    "ChargePeriodStart": "2024-09-18T22:00:00Z",
    "ChargeCategory": "Usage",
}


def _ms(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1000


@pytest.fixture
def sample(shared: Path) -> Path:
    """1,000 rows of AWS, Microsoft and Oracle."""
    return shared / "data" / "billing" / "focus_1.0_sample_1000.csv.gz"


def test_every_cost_of_the_sample_is_the_sum_of_its_cells(sample: Path) -> None:
    """Four costs, each exactly what Python's decimals add up to; what the file does not say stays unknown."""
    bill = read_bill(SOURCE, sample)
    for cost in COSTS:
        assert bill.total(cost) == sum_column(sample, cost)
    assert bill.charges["ContractedCost"].null_count == 7
    assert bill.charges.num_rows == 1000
    assert set(bill.column("BillingCurrency")) == {"USD"}


def test_cells_of_the_sample_say_what_the_file_says(sample: Path) -> None:
    """NULL is null, times without a zone are UTC, tags are objects with sorted keys, instance types are found."""
    rows, bill = read_rows(sample), read_bill(SOURCE, sample)
    assert bill.column("ResourceId") == [None if r["ResourceId"] in ("", "NULL") else r["ResourceId"] for r in rows]
    assert bill.column("ChargePeriodStart")[0] == _ms(2024, 9, 18, 22)
    assert bill.column("BillingPeriodEnd")[0] == _ms(2024, 10, 1)
    for text, row in zip(bill.column("Tags"), rows, strict=True):
        said = {} if row["Tags"] in ("", "NULL") else json.loads(row["Tags"])
        assert (json.loads(text) if text else {}) == said
        assert text is None or list(json.loads(text)) == sorted(said)
    assert set(bill.column("ChargeFrequency")) == {"Usage-Based", "One-Time"}
    assert "g3.4xlarge" in bill.column("x_InstanceType")
    assert not bill.gaps


EXAMPLES = "data/billing/focus_spec_examples"
# focus_spec_examples of shared/data/billing: BilledCost and EffectiveCost added up by hand
TOTALS = {
    "with_commitment_discount_flexibility_with_1_resource": ("2.75", "2.75"),
    "with_commitment_discount_flexibility_with_2_resources": ("2", "2"),
    "one_hundred_percent_utilization_without_commitment_discount_flexibility": ("1.5", "1.5"),
    "zero_percent_utilization_without_commitment_discount_flexibility": ("3.5", "3.5"),
    "simple_saas_agreements_a1": ("10000", "10000"),
    "simple_saas_agreements_a2": ("50000", "50000"),
    "simple_saas_agreements_a3": ("1000", "1000"),
    "simple_saas_agreements_b": ("50000", "50000"),
    "simple_saas_agreements_c": ("35800", "35800"),
}


def _example(shared: Path, ending: str) -> Bill:
    (path,) = (shared / EXAMPLES).glob(f"*{ending}.csv")
    return read_bill(SOURCE, path, currency="USD")


@pytest.mark.parametrize("ending", TOTALS)
def test_examples_of_the_specification_add_up(shared: Path, ending: str) -> None:
    """ "$10,000.00 " is an amount and 5/1/25 a day; each cost is its file's sum."""
    bill = _example(shared, ending)
    (path,) = (shared / EXAMPLES).glob(f"*{ending}.csv")
    assert (bill.total("BilledCost"), bill.total("EffectiveCost")) == tuple(map(Decimal, TOTALS[ending]))
    for cost in COSTS:
        if cost in read_rows(path)[0]:
            assert bill.total(cost) == sum_column(path, cost)


def test_days_of_the_agreements_are_months_first(shared: Path) -> None:
    """Billing periods begin with a month, which tells 4/1/25 from 1 April to 4 January."""
    charge = _example(shared, "simple_saas_agreements_a1").rows()[0]
    assert charge["BillingPeriodStart"] == charge["ChargePeriodStart"] == _ms(2025, 4, 1)
    assert (charge["BillingPeriodEnd"], charge["ChargePeriodEnd"]) == (_ms(2025, 5, 1), _ms(2026, 4, 1))


@pytest.mark.parametrize("ending", [name for name in TOTALS if "commitment" in name])
def test_commitments_keep_the_invariants_of_focus(shared: Path, ending: str) -> None:
    """Of each commitment, what usage cost effectively is what was bought, used and unused together (economics.md §3.1)."""
    bought: dict[object, Decimal] = defaultdict(Decimal)
    spent: dict[object, Decimal] = defaultdict(Decimal)
    by_status: dict[object, Decimal] = defaultdict(Decimal)
    for row in _example(shared, ending).rows():
        commitment = row.get("CommitmentDiscountId")
        if commitment and row["ChargeCategory"] == "Purchase":
            bought[commitment] += row["BilledCost"]
            assert row["EffectiveCost"] == 0
        elif commitment:
            spent[commitment] += row["EffectiveCost"]
            by_status[commitment] += (
                row["EffectiveCost"] if row["CommitmentDiscountStatus"] in ("Used", "Unused") else 0
            )
            assert row["BilledCost"] == 0
    assert bought == spent == by_status
    assert sum(bought.values()) > 0


def test_unused_commitments_are_lines_of_their_own(shared: Path) -> None:
    """The commitment that nothing used is one line, with its status and all of its cost."""
    rows = _example(shared, "zero_percent_utilization_without_commitment_discount_flexibility").rows()
    (unused,) = (row for row in rows if row.get("CommitmentDiscountStatus") == "Unused")
    assert unused["EffectiveCost"] == Decimal("1.5")


def test_newer_versions_are_read(tmp_path: Path) -> None:
    """1.3 renames the provider, 1.2 knows instance types and capacity reservations; unknown columns are passed over."""
    row = ROW | {
        "ServiceProviderName": "Nebius",
        "SkuPriceDetails": '{"InstanceType": "gpu-h100-sxm", "GpuCount": 8}',
        "CapacityReservationId": "cr-1",
        "CapacityReservationStatus": "UNUSED",
        "AllocatedMethodId": "even",
        "x_Whatever": "…",
        "chargeclass": "correction",
    }
    (charge,) = read_bill(SOURCE, write_csv(tmp_path / "bill.csv", [row])).rows()
    assert (charge["ProviderName"], charge["x_InstanceType"]) == ("Nebius", "gpu-h100-sxm")
    assert (charge["CapacityReservationId"], charge["CapacityReservationStatus"]) == ("cr-1", "Unused")
    assert (charge["ChargeClass"], charge["AllocatedMethodId"]) == ("Correction", "even")
    assert charge["BillingPeriodEnd"] == _ms(2024, 10, 1)


def test_oracles_names_of_columns(tmp_path: Path) -> None:
    """Oracle's FOCUS reports have names of the first drafts, hours without seconds, and columns of their own."""
    row = {
        "BilledCost": "3.0",
        "EffectiveCost": "3.0",
        "BillingCurrency": "EUR",
        "BillingPeriodStart": "2024-06-01T00:00Z",
        "ChargePeriodStart": "2024-06-03T07:00Z",
        "ChargePeriodEnd": "2024-06-03T08:00Z",
        "ChargeCategory": "Usage",
        "ChargeSubcategory": "On-Demand",
        "InvoiceIssuer": "Oracle",
        "Provider": "Oracle",
        "Publisher": "Oracle",
        "Region": "eu-frankfurt-1",
        "UsageQuantity": "8.0",
        "UsageUnit": "GPU Hours",
        "Tags": '{"team": "vision"}',
        "oci_CompartmentName": "training",
        "oci_OverageFlag": "N",
    }
    (charge,) = read_bill(SOURCE, write_csv(tmp_path / "bill.csv", [row])).rows()
    assert (charge["ProviderName"], charge["PublisherName"], charge["InvoiceIssuerName"]) == ("Oracle",) * 3
    assert (charge["RegionId"], charge["RegionName"]) == ("eu-frankfurt-1",) * 2
    assert (charge["ConsumedQuantity"], charge["ConsumedUnit"]) == (Decimal(8), "GPU Hours")
    assert (charge["x_ChargeType"], charge["team"]) == ("On-Demand", "vision")
    assert charge["ChargePeriodStart"] == _ms(2024, 6, 3, 7)


ORACLE = (
    "AvailabilityZone,BilledCost,BillingAccountId,BillingAccountName,BillingCurrency,BillingPeriodEnd,BillingPeriodStart,"
    "ChargeCategory,ChargeDescription,ChargeFrequency,ChargePeriodEnd,ChargePeriodStart,ChargeSubcategory,"
    "CommitmentDiscountCategory,CommitmentDiscountId,CommitmentDiscountName,CommitmentDiscountType,EffectiveCost,InvoiceIssuer,"
    "ListCost,ListUnitPrice,PricingCategory,PricingQuantity,PricingUnit,Provider,Publisher,Region,ResourceId,ResourceName,"
    "ResourceType,ServiceCategory,ServiceName,SkuId,SkuPriceId,SubAccountId,SubAccountName,Tags,UsageQuantity,UsageUnit,"
    "oci_ReferenceNumber,oci_CompartmentId,oci_CompartmentName,oci_OverageFlag,oci_UnitPriceOverage,oci_BilledQuantityOverage,"
    "oci_CostOverage,oci_AttributedUsage,oci_AttributedCost,oci_BackReferenceNumber"
)


def test_oracles_report_of_today(tmp_path: Path) -> None:
    """All columns that Oracle's reports have, by tables that users load them into: months to the nanosecond, empty cells."""
    said = {
        "BilledCost": "80.000000000000", "BillingAccountId": "1234567", "BillingCurrency": "USD",
        "BillingPeriodStart": "2026-10-01T00:00:00.000000000Z", "BillingPeriodEnd": "2026-11-01T00:00:00.000000000Z",
        "ChargeCategory": "Usage", "ChargePeriodStart": "2026-10-05T07:00+00:00", "ChargePeriodEnd": "2026-10-05T08:00+00:00",
        "EffectiveCost": "80.000000000000", "ListCost": "96", "Provider": "Oracle", "Region": "us-chicago-1",
        "ResourceId": "ocid1.instance.oc1.us-chicago-1.a", "SkuId": "B98415", "UsageQuantity": "8", "UsageUnit": "GPU Hours",
        "Tags": '{"orcl-cloud.free-tier-retained":"false","team":"vision"}', "oci_CostOverage": "", "oci_OverageFlag": "N",
    }  # fmt: skip
    bill = read_bill(SOURCE, write_csv(tmp_path / "bill.csv", [dict.fromkeys(ORACLE.split(","), "") | said]))
    (charge,) = bill.rows()
    assert (charge["BilledCost"], charge["ListCost"], charge.get("ContractedCost")) == (Decimal(80), Decimal(96), None)
    assert (charge["ChargePeriodStart"], charge["ChargePeriodEnd"]) == (_ms(2026, 10, 5, 7), _ms(2026, 10, 5, 8))
    assert (charge["BillingPeriodEnd"], charge["team"], charge["ConsumedQuantity"]) == (
        _ms(2026, 11, 1),
        "vision",
        Decimal(8),
    )


def test_alibabas_columns_of_its_own(tmp_path: Path) -> None:
    """FOCUS 1.0 in yuan, with the five columns that Microsoft's FinOps toolkit lists as Alibaba's: costs and names stand."""
    own = {
        "ProviderName": "Alibaba Cloud", "BillingCurrency": "CNY", "ChargePeriodStart": "2026-10-05T00:00:00Z",
        "ChargePeriodEnd": "2026-10-06T00:00:00Z", "ResourceId": "i-bp1", "x_InstanceID": "i-bp1", "x_CommodityCode": "ecs",
        "x_CommodityName": "Elastic Compute Service", "x_BillingItemCode": "InstanceType", "x_BillingItemName": "Instance Type",
    }  # fmt: skip
    (charge,) = read_bill(SOURCE, write_csv(tmp_path / "bill.csv", [ROW | own])).rows()
    assert (charge["ProviderName"], charge["BillingCurrency"], charge["ResourceId"]) == (
        "Alibaba Cloud",
        "CNY",
        "i-bp1",
    )
    assert (charge["BilledCost"], charge["EffectiveCost"]) == (Decimal("1.5"), Decimal("1.25"))


def test_a_bill_without_days_says_so(tmp_path: Path) -> None:
    """Its charges count at the start of their billing period."""
    row = {name: cell for name, cell in ROW.items() if not name.startswith("ChargePeriod")}
    bill = read_bill(SOURCE, write_csv(tmp_path / "bill.csv", [row | {"BillingPeriodStart": "2024-09-01"}]))
    assert bill.column("ChargePeriodStart") == [_ms(2024, 9, 1)]
    assert [gap.what for gap in bill.gaps if "start of its billing period" in gap.what]


def test_signs_are_kept(tmp_path: Path) -> None:
    """Credits, refunds and corrections stay negative, and are never folded into one another's column."""
    rows = [ROW, ROW | {"BilledCost": "-0.5", "EffectiveCost": "-0.25", "ChargeCategory": "credit"}]
    bill = read_bill(SOURCE, write_csv(tmp_path / "bill.csv", rows))
    assert bill.column("BilledCost") == [Decimal("1.5"), Decimal("-0.5")]
    assert bill.column("EffectiveCost") == [Decimal("1.25"), Decimal("-0.25")]
    assert bill.column("ChargeCategory") == ["Usage", "Credit"]
    assert bill.charges["ListCost"].null_count == 2
    assert {gap.what for gap in bill.gaps} == {
        f"no column {c}; it stays unknown" for c in ("ListCost", "ContractedCost")
    }
