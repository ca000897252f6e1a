"""Azure cost exports: the real samples, headers of every kind, actual beside amortized.

Header variants as OpenCost's tests have them (opencost/opencost, pkg/cloud/azure/resources/billingexports, Apache-2.0): translated
names with the original in brackets, camel case, a byte order mark, no price, tags without braces.
"""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from tests.sources.billing.bills import read_bill, sum_column, write_csv

from loadfactor.base.errors import SourceError
from loadfactor.sources.billing.azure_cost import SOURCE

LINE = {
    "BillingAccountId": "1",
    "BillingPeriodStartDate": "09/01/2023",
    "BillingPeriodEndDate": "09/30/2023",
    "BillingCurrencyCode": "CAD",
    "SubscriptionId": "s",
    "Date": "09/02/2023",
    "CostInBillingCurrency": "5",
    "Quantity": "2",
    "UnitPrice": "3",
    "PayGPrice": "4",
    "ChargeType": "Usage",
    "PricingModel": "OnDemand",
    "ReservationId": "",
    "Tags": '"team": "nlp","env": "prod"',
    "AdditionalInfo": '"ServiceType": "Standard_ND96asr_v4", "VCPUs": 96',
    "ResourceId": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm",
}
RESERVED = LINE | {"PricingModel": "Reservation", "ReservationId": "r-1"}
BOUGHT = RESERVED | {"ChargeType": "Purchase", "CostInBillingCurrency": "100"}


def _ms(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1000


def test_totals_of_the_sample(shared: Path) -> None:
    """Billed and effective are the sum of its costs, exponents included."""
    path = shared / "data" / "billing" / "azure_ea_export_sample_anonymous.csv"
    bill = read_bill(SOURCE, path)
    assert bill.total("BilledCost") == bill.total("EffectiveCost") == sum_column(path, "CostInBillingCurrency")
    assert set(bill.column("BillingCurrency")) == {"CAD"}
    assert set(bill.column("ChargePeriodStart")) == {_ms(2023, 9, 2)}
    assert set(bill.column("BillingPeriodEnd")) == {_ms(2023, 10, 1)}
    assert set(bill.column("PricingCategory")) == {"Standard", "Dynamic"}
    assert bill.column("Tags")[0] == '{"tagA":"valueA","tagB":"valueB","tagC":"valueC"}'


VARIANTS = {
    "headersets__Enterprise.csv": ("CostInBillingCurrency", "CAD", None),
    "headersets__PayAsYouGo.csv": ("PreTaxCost", "USD", None),
    "values__VirtualMachine.csv": ("costinbillingcurrency", "EUR", "EUR"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_totals_of_every_variant(shared: Path, name: str) -> None:
    """Billed is the sum of the column of costs that the header has."""
    column, currency, given = VARIANTS[name]
    path = shared / "data" / "billing" / "azure_export_variants" / name
    bill = read_bill(SOURCE, path, currency=given)
    assert bill.total("BilledCost") == sum_column(path, column)
    assert bill.column("BillingCurrency") == [currency]
    assert bill.column("ResourceId")[0].startswith("/subscriptions/")


def test_prices_at_list_are_kept_apart(shared: Path) -> None:
    """What pay-as-you-go would have cost is the list cost; the instance type is found in AdditionalInfo."""
    path = shared / "data" / "billing" / "azure_export_variants" / "values__VirtualMachine.csv"
    (charge,) = read_bill(SOURCE, path, currency="EUR").rows()
    assert (charge["BilledCost"], charge["ListCost"]) == (4, 5)
    assert charge["x_InstanceType"] == "Standard_DS2_v2"
    with pytest.raises(SourceError, match="no column names its currency; name it with --currency USD"):
        read_bill(SOURCE, path)


def test_translated_headers(tmp_path: Path) -> None:
    """The name in brackets counts; a row without a cost adds nothing and is said; a byte order mark is read over."""
    row = {
        "Abonnement-GUID (SubscriptionGuid)": "s",
        "UsageDateTime (UsageDateTime)": "2021-02-02",
        "UsageQuantity (UsageQuantity)": "3",
        "Ressourcensatz (ResourceRate)": "0.025",
        "PreTaxCost (PreTaxCost)": "0.075",
        "InstanceId (InstanceId)": "/subscriptions/s/kubernetes",
        "Zusätzliche Informationen (AdditionalInfo)": "",
        "Currency": "USD",
    }
    path = write_csv(tmp_path / "german.csv", [row, row | {"PreTaxCost (PreTaxCost)": "", "Currency": ""}])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    bill = read_bill(SOURCE, path)
    assert bill.column("BilledCost") == [Decimal("0.075"), None]
    assert (bill.column("ResourceId")[0], bill.column("SubAccountId")[0]) == ("/subscriptions/s/kubernetes", "s")
    assert [(gap.what, gap.count) for gap in bill.gaps] == [("rows without a BilledCost; they add nothing", 1)]


def test_camel_case_without_a_billing_period(tmp_path: Path) -> None:
    """A customer agreement leaves the period empty: it is the month of the day."""
    row = {
        "billingPeriodStartDate": "",
        "date": "10/15/2024",
        "billingCurrency": "USD",
        "pricingCurrency": "USD",
        "costInBillingCurrency": "2.304",
        "costInUsd": "9",
        "quantity": "24",
        "PayGPrice": "0.1",
        "chargeType": "Usage",
    }
    (charge,) = read_bill(SOURCE, write_csv(tmp_path / "camel.csv", [row])).rows()
    assert charge["BilledCost"] == Decimal("2.304")
    assert (charge["BillingPeriodStart"], charge["BillingPeriodEnd"]) == (_ms(2024, 10, 1), _ms(2024, 11, 1))
    assert charge["ListCost"] == Decimal("2.4")
    (other,) = read_bill(SOURCE, write_csv(tmp_path / "other.csv", [row | {"pricingCurrency": "EUR"}])).rows()
    assert "ListCost" not in other


def test_actual_export(tmp_path: Path) -> None:
    """The purchase is billed; what covered usage cost effectively is not said, rather than 0."""
    bill = read_bill(
        SOURCE, write_csv(tmp_path / "export.csv", [LINE, RESERVED | {"CostInBillingCurrency": "0"}, BOUGHT])
    )
    assert bill.column("BilledCost") == [5, 0, 100]
    assert bill.column("EffectiveCost") == [5, None, 0]
    assert bill.column("ChargeCategory") == ["Usage", "Usage", "Purchase"]
    assert bill.column("CommitmentDiscountStatus") == [None, "Used", None]
    assert set(bill.column("x_Dataset")) == {"actual"}


def test_amortized_export(tmp_path: Path) -> None:
    """Usage and what was not used carry the purchase; none of it is on the invoice of these rows, and that is said."""
    unused = RESERVED | {"ChargeType": "UnusedReservation", "CostInBillingCurrency": "7"}
    bill = read_bill(SOURCE, write_csv(tmp_path / "export.csv", [LINE, RESERVED, unused]))
    assert bill.column("BilledCost") == [5, 0, 0]
    assert bill.column("EffectiveCost") == [5, 5, 7]
    assert bill.column("CommitmentDiscountStatus") == [None, "Used", "Unused"]
    assert bill.column("ConsumedQuantity") == [2, 2, None]
    assert set(bill.column("x_Dataset")) == {"amortized"}
    assert [gap.what for gap in bill.gaps if "lacks what was paid for commitments" in gap.what]


@pytest.mark.parametrize(
    ("folder", "dataset"), [("ActualCost", "actual"), ("daily-amortized", "amortized"), ("costs", None)]
)
def test_the_path_says_which_export_it_is(tmp_path: Path, folder: str, dataset: str | None) -> None:
    """Where nothing of a commitment is in a file, both exports say the same and only a path tells them apart."""
    bill = read_bill(SOURCE, write_csv(tmp_path / folder / "part_0.csv.gz", [LINE]))
    assert bill.column("x_Dataset") == [dataset]
    assert bill.column("BilledCost") == bill.column("EffectiveCost") == [5]
    assert bill.rows()[0]["Tags"] == '{"env":"prod","team":"nlp"}'
    assert bill.rows()[0]["x_InstanceType"] == "Standard_ND96asr_v4"


def test_list_and_contracted_costs_are_price_times_quantity(tmp_path: Path) -> None:
    """PayGPrice and UnitPrice times Quantity, beside the cost and never in it."""
    (charge,) = read_bill(SOURCE, write_csv(tmp_path / "export.csv", [LINE])).rows()
    assert (charge["ListCost"], charge["ContractedCost"], charge["BilledCost"]) == (8, 6, 5)
