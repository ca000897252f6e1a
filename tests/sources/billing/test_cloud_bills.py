"""AWS Cost and Usage Reports, Azure's cost exports and Google's billing export, in the meaning of FOCUS.

Line items of AWS (https://docs.aws.amazon.com/cur/latest/userguide/) and columns of Google (cloud.google.com/billing/docs) are as
documented; amounts are made up. Azure's variants of headers are as OpenCost's tests have them (opencost/opencost,
pkg/cloud/azure/resources/billingexports, Apache-2.0): names with the original in brackets, camel case, a byte order mark. The
whole samples are of finopsfoundation/focus_converters; others follow Microsoft's documentation of cost exports and
Google's documentation of billing exports.
"""

import gzip
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sources.billing.bills import Bill, read_bill, read_rows, sum_column, write_csv

from loadfactor.base.errors import SourceError
from loadfactor.sources.billing.aws_cur import SOURCE
from loadfactor.sources.billing.azure_cost import SOURCE as AZURE
from loadfactor.sources.billing.gcp_billing import SOURCE as GCP

PLAN, RESERVATION = "arn:aws:savingsplans::1:savingsplan/a", "arn:aws:ec2:us-east-1:1:reserved-instances/b"
LINE = {
    "bill/PayerAccountId": "1",
    "bill/BillingPeriodStartDate": "2024-09-01T00:00:00Z",
    "bill/BillingPeriodEndDate": "2024-10-01T00:00:00Z",
    "lineItem/UsageAccountId": "2",
    "lineItem/LineItemType": "Usage",
    "lineItem/UsageStartDate": "2024-09-01T00:00:00Z",
    "lineItem/UsageEndDate": "2024-09-01T01:00:00Z",
    "lineItem/UsageType": "BoxUsage:p4d.24xlarge",
    "lineItem/ResourceId": "i-1",
    "lineItem/UsageAmount": "1",
    "lineItem/CurrencyCode": "USD",
    "lineItem/UnblendedCost": "32.77",
    "pricing/publicOnDemandCost": "32.77",
} | dict.fromkeys(
    [
        *("product/instanceType", "product/capacitystatus", "reservation/ReservationARN", "reservation/EffectiveCost"),
        *("reservation/UnusedAmortizedUpfrontFeeForBillingPeriod", "reservation/UnusedRecurringFee"),
        *("savingsPlan/SavingsPlanARN", "savingsPlan/SavingsPlanEffectiveCost", "savingsPlan/TotalCommitmentToDate"),
        *("savingsPlan/UsedCommitment", "resourceTags/user:team", "resourceTags/aws:createdBy"),
    ],
    "",
)


def _line(kind: str, cost: str, **more: str) -> dict[str, str]:
    written = {name.replace("__", "/"): value for name, value in more.items()}
    return LINE | {"lineItem/LineItemType": kind, "lineItem/UnblendedCost": cost} | written


COMMITTED = {"savingsPlan/TotalCommitmentToDate": "8", "savingsPlan/UsedCommitment": "6"}
UNUSED = {"reservation/UnusedAmortizedUpfrontFeeForBillingPeriod": "0.25", "reservation/UnusedRecurringFee": "0.75"}
LINES = [
    _line("Usage", "32.77", **{"resourceTags/user:team": "nlp", "resourceTags/aws:createdBy": "x"}),
    _line("SavingsPlanCoveredUsage", "10", savingsPlan__SavingsPlanARN=PLAN, savingsPlan__SavingsPlanEffectiveCost="6"),
    _line("SavingsPlanNegation", "-10", savingsPlan__SavingsPlanARN=PLAN),
    _line("SavingsPlanRecurringFee", "8", savingsPlan__SavingsPlanARN=PLAN, **COMMITTED),
    _line("DiscountedUsage", "0", reservation__ReservationARN=RESERVATION, reservation__EffectiveCost="3"),
    _line("RIFee", "4", reservation__ReservationARN=RESERVATION, **UNUSED),
    _line("Tax", "1.5"),
    _line("Credit", "-2"),
    _line(
        "Refund", "-3", lineItem__UsageStartDate="2024-08-01T00:00:00Z", lineItem__UsageEndDate="2024-08-01T01:00:00Z"
    ),
    _line("EdpDiscount", "-0.5"),
]


def test_totals_of_the_sample(shared: Path) -> None:
    """Billed is the sum of unblended costs; without commitments it is the effective cost, too."""
    path = shared / "data" / "billing" / "aws_cur_sample_anonymous.csv.gz"
    bill, rows = read_bill(SOURCE, path), read_rows(path)
    total = sum_column(path, "lineItem/UnblendedCost")
    assert bill.total("BilledCost") == bill.total("EffectiveCost") == total == Decimal("1.6823086974")
    listed = Decimal(0)
    for row in rows:  # AWS puts no public price on a tax
        tax = row["lineItem/LineItemType"] == "Tax"
        listed += Decimal(row["lineItem/UnblendedCost"] if tax else row["pricing/publicOnDemandCost"])
    assert bill.total("ListCost") == listed
    assert bill.column("ChargeCategory") == [r["lineItem/LineItemType"] for r in rows]
    assert set(bill.column("BillingCurrency")) == {"USD"}
    assert bill.charges["CommitmentDiscountId"].null_count == len(rows)
    assert not bill.gaps


def test_costs_mean_what_focus_means(tmp_path: Path) -> None:
    """The invoice is kept whole; commitments are bought once and spread once; what was not used is a line of its own."""
    path = write_csv(tmp_path / "cur.csv.gz", LINES)
    bill = read_bill(SOURCE, path)
    assert bill.total("BilledCost") == sum_column(path, "lineItem/UnblendedCost")
    found = {}
    for row in bill.rows():
        charged = (row["ChargeCategory"], row["BilledCost"], row["EffectiveCost"])
        found[row["x_ChargeType"], row.get("CommitmentDiscountStatus")] = charged
    assert found == {
        ("Usage", None): ("Usage", Decimal("32.77"), Decimal("32.77")),
        ("SavingsPlanCoveredUsage", "Used"): ("Usage", 0, 6),
        ("SavingsPlanRecurringFee", None): ("Purchase", 8, 0),
        ("SavingsPlanRecurringFee", "Unused"): ("Usage", 0, 2),
        ("DiscountedUsage", "Used"): ("Usage", 0, 3),
        ("RIFee", None): ("Purchase", 4, 0),
        ("RIFee", "Unused"): ("Usage", 0, 1),
        ("Tax", None): ("Tax", Decimal("1.5"), Decimal("1.5")),
        ("Credit", None): ("Credit", -2, -2),
        ("Refund", None): ("Adjustment", -3, -3),
        ("EdpDiscount", None): ("Adjustment", Decimal("-0.5"), Decimal("-0.5")),
    }
    for commitment in (PLAN, RESERVATION):
        mine = [row for row in bill.rows() if row.get("CommitmentDiscountId") == commitment]
        bought = sum(row["BilledCost"] for row in mine if row["ChargeCategory"] == "Purchase")
        assert bought == sum(row["EffectiveCost"] for row in mine if row["ChargeCategory"] == "Usage")


def test_other_columns(tmp_path: Path) -> None:
    """Instance type from the usage type, tags without the mark of users, a correction of the month before, unused has no use."""
    rows = read_bill(SOURCE, write_csv(tmp_path / "cur.csv", LINES)).rows()
    assert rows[0]["x_InstanceType"] == "p4d.24xlarge"
    assert json.loads(str(rows[0]["Tags"])) == {"team": "nlp", "aws:createdBy": "x"}
    by_kind = {row["x_ChargeType"]: row for row in rows if row.get("CommitmentDiscountStatus") != "Unused"}
    assert by_kind["Refund"]["ChargeClass"] == "Correction"
    assert by_kind["SavingsPlanCoveredUsage"]["ContractedCost"] == 10
    assert by_kind["RIFee"]["ChargeFrequency"] == "Recurring"
    (unused,) = (
        row for row in rows if row.get("CommitmentDiscountStatus") == "Unused" and row["x_ChargeType"] == "RIFee"
    )
    assert not {"ConsumedQuantity", "PricingQuantity", "ListCost"} & set(unused)
    assert (unused["CommitmentDiscountType"], unused["PricingCategory"]) == ("Reserved Instance", "Committed")


def test_what_negations_do_not_take_back_is_kept(tmp_path: Path) -> None:
    """The total of the invoice is kept to the last digit, over all parts of a report."""
    first = write_csv(tmp_path / "report-1.csv", [LINES[1]])
    second = write_csv(
        tmp_path / "report-2.csv", [_line("SavingsPlanNegation", "-9.9999999999", savingsPlan__SavingsPlanARN=PLAN)]
    )
    bill = read_bill(SOURCE, first, second)
    assert bill.total("BilledCost") == Decimal("0.0000000001")
    (rest,) = (row for row in bill.rows() if row["ChargeCategory"] == "Adjustment")
    assert rest["CommitmentDiscountId"] == PLAN
    assert not [
        row
        for row in read_bill(SOURCE, write_csv(tmp_path / "c.csv", LINES)).rows()
        if "less its" in row.get("ChargeDescription", "")
    ]


@pytest.mark.parametrize("form", ["cur-2.0", "athena"])
def test_newer_headers_say_the_same(tmp_path: Path, form: str) -> None:
    """CUR 2.0 and Athena write line_item_unblended_cost; CUR 2.0 keeps tags as one JSON object."""

    def spell(name: str) -> str:
        table, _, column = name.partition("/")
        words = "".join(f"_{c.lower()}" if c.isupper() else c for c in f"{table}_{column}")
        return words.replace("__", "_").replace("_a_r_n", "_a_r_n" if form == "cur-2.0" else "_arn").replace(":", "_")

    def convert(line: dict[str, str]) -> dict[str, str]:
        tags = {f"user_{k.rpartition(':')[2]}": v for k, v in line.items() if "user:" in k and v}
        plain = {spell(k): v for k, v in line.items() if not k.startswith("resourceTags") or form == "athena"}
        return plain | ({"resource_tags": json.dumps(tags)} if form == "cur-2.0" else {})

    old = read_bill(SOURCE, write_csv(tmp_path / "old.csv", LINES))
    new = read_bill(SOURCE, write_csv(tmp_path / "new.csv", [convert(line) for line in LINES]))
    assert old.charges.drop(["Tags"]) == new.charges.drop(["Tags"])
    assert json.loads(new.column("Tags")[0])["team"] == "nlp"


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_cur_2_with_maps_and_split_costs(tmp_path: Path, form: str) -> None:
    """A Data Export: an hour of an instance, one of a reservation that nobody used, and pods among which AWS split the first.

    Columns and types as AWS' dictionary of CUR 2.0 has them: maps of texts, doubles, timestamps. The instance counts once: 65.54.
    """
    compute = {"product_name": "Amazon Elastic Compute Cloud"}
    pods = {"product_name": "Amazon Elastic Container Service for Kubernetes"}
    lines: list[tuple[str, float, dict[str, str], dict[str, str], float | None]] = [
        ("i-1", 32.77, {"user_team": "nlp"}, compute | {"capacitystatus": "Used"}, None),
        ("cr-1", 32.77, {}, compute | {"capacitystatus": "UnusedCapacityReservation"}, None),
        ("pod/a", 0.0, {"aws_eks_namespace": "ns"}, pods, 16.0),
        ("pod/b", 0.0, {"aws_eks_namespace": "ns"}, pods, 16.385),
    ]
    resource, cost, tags, product, split = (list(column) for column in zip(*lines, strict=True))
    maps = pa.map_(pa.string(), pa.string())
    month, begun, ended = (
        pa.array([int(datetime(2026, 10, *of, tzinfo=UTC).timestamp() * 1000)] * 4, pa.timestamp("ms"))
        for of in ((1, 0), (2, 0), (2, 1))
    )
    columns: dict[str, Any] = {
        "bill_billing_period_start_date": month,
        "line_item_usage_start_date": begun,
        "line_item_usage_end_date": ended,
        "line_item_line_item_type": ["Usage"] * 4,
        "line_item_product_code": ["AmazonEC2", "AmazonEC2", "AmazonEKS", "AmazonEKS"],
        "line_item_currency_code": ["USD"] * 4,
        "line_item_resource_id": resource,
        "line_item_unblended_cost": cost,
        "split_line_item_split_cost": split,
        "split_line_item_parent_resource_id": [None, None, "i-1", "i-1"],
    }
    if form == "parquet":
        table = pa.table(columns | {"resource_tags": pa.array(tags, maps), "product": pa.array(product, maps)})
        path = tmp_path / "export-00001.snappy.parquet"
        pq.write_table(table, path)
    else:
        texts = {
            name: [json.dumps(of) for of in column] for name, column in (("resource_tags", tags), ("product", product))
        }
        path = tmp_path / "export-00001.csv.gz"
        rows = pa.table(columns | texts).to_pylist()
        write_csv(path, [{name: "" if cell is None else str(cell) for name, cell in row.items()} for row in rows])
    bill = read_bill(SOURCE, path)
    assert bill.total("BilledCost") == Decimal("65.54")
    assert bill.column("CapacityReservationId") == [None, "cr-1", None, None]
    assert bill.column("ServiceName")[1:3] == [*compute.values(), *pods.values()]
    assert bill.column("Tags") == ['{"team":"nlp"}', None, *['{"aws_eks_namespace":"ns"}'] * 2]
    assert [gap.count for gap in bill.gaps if "pods that AWS split" in gap.what] == [2]


def test_tags_that_differ_in_case_are_two(tmp_path: Path) -> None:
    """Team and team are two tags of AWS."""
    line = LINE | {"resourceTags/user:team": "a", "resourceTags/user:Team": "b"}
    assert read_bill(SOURCE, write_csv(tmp_path / "cur.csv", [line])).column("Tags") == ['{"Team":"b","team":"a"}']


def test_unused_capacity_reservations_have_their_status(tmp_path: Path) -> None:
    """What was reserved and not run is billed as UnusedBox, and says which reservation."""
    line = LINE | {"lineItem/UsageType": "UnusedBox:p5.48xlarge", "lineItem/ResourceId": "arn:cr-1"}
    (charge,) = read_bill(SOURCE, write_csv(tmp_path / "cur.csv", [line])).rows()
    assert (charge["CapacityReservationId"], charge["CapacityReservationStatus"]) == ("arn:cr-1", "Unused")
    assert charge["x_InstanceType"] == "p5.48xlarge"


AZURE_LINE = {
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
RESERVED = AZURE_LINE | {"PricingModel": "Reservation", "ReservationId": "r-1"}
BOUGHT = RESERVED | {"ChargeType": "Purchase", "CostInBillingCurrency": "100"}


def _ms(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1000


def test_azure_totals_of_the_sample(shared: Path) -> None:
    """Billed and effective are the sum of its costs, exponents included."""
    path = shared / "data" / "billing" / "azure_ea_export_sample_anonymous.csv"
    bill = read_bill(AZURE, path)
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
    bill = read_bill(AZURE, path, currency=given)
    assert bill.total("BilledCost") == sum_column(path, column)
    assert bill.column("BillingCurrency") == [currency]
    assert bill.column("ResourceId")[0].startswith("/subscriptions/")


def test_prices_at_list_are_kept_apart(shared: Path) -> None:
    """What pay-as-you-go would have cost is the list cost; the instance type is found in AdditionalInfo."""
    path = shared / "data" / "billing" / "azure_export_variants" / "values__VirtualMachine.csv"
    (charge,) = read_bill(AZURE, path, currency="EUR").rows()
    assert (charge["BilledCost"], charge["ListCost"]) == (4, 5)
    assert charge["x_InstanceType"] == "Standard_DS2_v2"
    with pytest.raises(SourceError, match="no column names its currency; name it with --currency USD"):
        read_bill(AZURE, path)


def test_translated_headers(tmp_path: Path) -> None:
    """The name in brackets counts; a row without a cost adds nothing and is said; a byte order mark is read over."""
    row = {"Abonnement-GUID (SubscriptionGuid)": "s", "UsageDateTime (UsageDateTime)": "2021-02-02"}
    row |= {"UsageQuantity (UsageQuantity)": "3", "Ressourcensatz (ResourceRate)": "0.025"}
    row |= {"PreTaxCost (PreTaxCost)": "0.075", "InstanceId (InstanceId)": "/subscriptions/s/kubernetes"}
    row |= {"Zusätzliche Informationen (AdditionalInfo)": "", "Currency": "USD"}
    path = write_csv(tmp_path / "german.csv", [row, row | {"PreTaxCost (PreTaxCost)": "", "Currency": ""}])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    bill = read_bill(AZURE, path)
    assert bill.column("BilledCost") == [Decimal("0.075"), None]
    assert (bill.column("ResourceId")[0], bill.column("SubAccountId")[0]) == ("/subscriptions/s/kubernetes", "s")
    assert [(gap.what, gap.count) for gap in bill.gaps] == [("rows without a BilledCost; they add nothing", 1)]


def test_camel_case_without_a_billing_period(tmp_path: Path) -> None:
    """A customer agreement leaves the period empty: it is the month of the day."""
    row = {"billingPeriodStartDate": "", "date": "10/15/2024", "billingCurrency": "USD"}
    row |= {"pricingCurrency": "USD", "costInBillingCurrency": "2.304", "costInUsd": "9"}
    row |= {"quantity": "24", "PayGPrice": "0.1", "chargeType": "Usage"}
    (charge,) = read_bill(AZURE, write_csv(tmp_path / "camel.csv", [row])).rows()
    assert charge["BilledCost"] == Decimal("2.304")
    assert (charge["BillingPeriodStart"], charge["BillingPeriodEnd"]) == (_ms(2024, 10, 1), _ms(2024, 11, 1))
    assert charge["ListCost"] == Decimal("2.4")
    (other,) = read_bill(AZURE, write_csv(tmp_path / "other.csv", [row | {"pricingCurrency": "EUR"}])).rows()
    assert "ListCost" not in other


def test_actual_export(tmp_path: Path) -> None:
    """The purchase is billed; what covered usage cost effectively is not said, rather than 0."""
    bill = read_bill(
        AZURE, write_csv(tmp_path / "export.csv", [AZURE_LINE, RESERVED | {"CostInBillingCurrency": "0"}, BOUGHT])
    )
    assert bill.column("BilledCost") == [5, 0, 100]
    assert bill.column("EffectiveCost") == [5, None, 0]
    assert bill.column("ChargeCategory") == ["Usage", "Usage", "Purchase"]
    assert bill.column("CommitmentDiscountStatus") == [None, "Used", None]
    assert set(bill.column("x_Dataset")) == {"actual"}


def test_amortized_export(tmp_path: Path) -> None:
    """Usage and what was not used carry the purchase; none of it is on the invoice of these rows, and that is said."""
    unused = RESERVED | {"ChargeType": "UnusedReservation", "CostInBillingCurrency": "7"}
    bill = read_bill(AZURE, write_csv(tmp_path / "export.csv", [AZURE_LINE, RESERVED, unused]))
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
    bill = read_bill(AZURE, write_csv(tmp_path / folder / "part_0.csv.gz", [AZURE_LINE]))
    assert bill.column("x_Dataset") == [dataset]
    assert bill.column("BilledCost") == bill.column("EffectiveCost") == [5]
    assert bill.rows()[0]["Tags"] == '{"env":"prod","team":"nlp"}'
    assert bill.rows()[0]["x_InstanceType"] == "Standard_ND96asr_v4"


def test_list_and_contracted_costs_are_price_times_quantity(tmp_path: Path) -> None:
    """PayGPrice and UnitPrice times Quantity, beside the cost and never in it."""
    (charge,) = read_bill(AZURE, write_csv(tmp_path / "export.csv", [AZURE_LINE])).rows()
    assert (charge["ListCost"], charge["ContractedCost"], charge["BilledCost"]) == (8, 6, 5)


CUD = {"name": "n", "full_name": "cud", "id": "c-1", "type": "COMMITTED_USAGE_DISCOUNT", "amount": -1.1}
GIFT = {"name": "p", "full_name": "promo", "id": "p-1", "type": "PROMOTION", "amount": -0.5}


def _gcp_line(sku: str, cost: float, *credits_: dict, **more: object) -> dict:
    return {
        "billing_account_id": "01-A",
        "service": {"id": "6F", "description": "Compute Engine"},
        "sku": {"id": "S", "description": sku},
        "usage_start_time": datetime(2024, 8, 31, 23, tzinfo=UTC),
        "usage_end_time": datetime(2024, 9, 1, tzinfo=UTC),
        "project": {"id": "p1", "name": "Project"},
        "labels": [{"key": "team", "value": "nlp"}, {"key": "app", "value": "x"}],
        "system_labels": [{"key": "compute.googleapis.com/machine_spec", "value": "a2-highgpu-1g"}],
        "location": {"region": "us-east1", "zone": "us-east1-b"},
        "resource": {"name": "vm", "global_name": "//compute.googleapis.com/projects/1/instances/2"},
        "cost": cost,
        "cost_at_list": 3.0,
        "currency": "USD",
        "usage": {"amount": 3600.0, "unit": "seconds", "amount_in_pricing_units": 1.0, "pricing_unit": "hour"},
        "invoice": {"month": "202409"},
        "cost_type": "regular",
        "adjustment_info": {"id": None, "type": None},
        "credits": list(credits_),
    } | more


GCP_LINES = [
    _gcp_line("Nvidia Tesla A100 GPU running in Americas", 2.933908, CUD, GIFT),
    _gcp_line("Commitment v1: A100 GPU in Americas for 1 year", 0.7),
    _gcp_line("Spot Preemptible A100 GPU", 0.1),
    _gcp_line("Taxes", 0.25, cost_type="tax"),
    _gcp_line("Rounding error", -0.01, cost_type="rounding_error"),
    _gcp_line("Correction", -0.5, cost_type="adjustment", adjustment_info={"id": "a", "type": "GENERAL_ADJUSTMENT"}),
]


def _flatten(line: dict, prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in line.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}_")
        elif isinstance(value, list):
            flat[prefix + name] = json.dumps(value) if value else ""
        else:
            flat[prefix + name] = "" if value is None else str(value)
    return flat


@pytest.fixture
def bill(tmp_path: Path) -> Bill:
    """The lines from Parquet, as BigQuery exports them."""
    pq.write_table(pa.Table.from_pylist(GCP_LINES), tmp_path / "part-000.parquet")
    return read_bill(GCP, tmp_path)


def test_the_invoice_is_kept_whole(bill: Bill) -> None:
    """Billed is every cost and every credit, each once; stored doubles are read by their shortest text, and said."""
    expected = sum((Decimal(repr(line["cost"])) for line in GCP_LINES), Decimal(0)) + Decimal("-1.6")
    assert bill.total("BilledCost") == bill.total("EffectiveCost") == expected
    assert [gap.what for gap in bill.gaps] == [
        "amounts stored as binary floating point; read as the shortest decimals that are them"
    ]


def test_discounts_lower_a_line_and_gifts_are_lines(bill: Bill) -> None:
    """A commitment's discount is the price of its line; a promotion is a credit of the same holder."""
    rows = bill.rows()
    first, gift = rows[0], rows[-1]
    assert (first["BilledCost"], first["ContractedCost"]) == (Decimal("1.833908"), Decimal("2.933908"))
    assert (first["ListCost"], first["PricingCategory"]) == (3, "Committed")
    assert (first["CommitmentDiscountId"], first["CommitmentDiscountStatus"]) == ("c-1", "Used")
    assert (gift["ChargeCategory"], gift["ChargeDescription"]) == ("Credit", "promo")
    assert gift["BilledCost"] == Decimal("-0.5")
    assert (gift["ResourceId"], gift["SubAccountId"]) == (first["ResourceId"], "p1")
    assert "CommitmentDiscountId" not in gift
    assert len(rows) == len(GCP_LINES) + 1


def test_kinds_of_lines(bill: Bill) -> None:
    """Fees of commitments are purchases, spot is dynamic, taxes, rounding and corrections are told apart."""
    kinds = [(row["ChargeCategory"], row.get("PricingCategory"), row.get("ChargeClass")) for row in bill.rows()[:6]]
    assert kinds == [
        ("Usage", "Committed", None),
        ("Purchase", "Standard", None),
        ("Usage", "Dynamic", None),
        ("Tax", None, None),
        ("Adjustment", None, None),
        ("Adjustment", None, "Correction"),
    ]
    first = bill.rows()[0]
    assert (first["Tags"], first["x_InstanceType"]) == ('{"app":"x","team":"nlp"}', "a2-highgpu-1g")
    assert first["BillingPeriodStart"] == int(datetime(2024, 9, 1, tzinfo=UTC).timestamp()) * 1000


def test_flat_csv_says_the_same(bill: Bill, tmp_path: Path) -> None:
    """service_description for service.description, credits and labels as JSON; amounts exact from the text."""
    flat = read_bill(GCP, write_csv(tmp_path / "flat.csv.gz", [_flatten(line) for line in GCP_LINES]))
    assert flat.charges == bill.charges
    assert not flat.gaps


def test_lines_of_json_say_the_same(bill: Bill, tmp_path: Path) -> None:
    """As BigQuery exports a table: nested objects, lists, numbers exact as they are written."""
    path = tmp_path / "part.jsonl"
    path.write_text("".join(json.dumps(line, default=str) + "\n" for line in GCP_LINES))
    found = read_bill(GCP, tmp_path / "part.jsonl")
    assert found.charges == bill.charges
    assert not found.gaps


@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_of_json_says_the_same(bill: Bill, tmp_path: Path, indent: int | None) -> None:
    """As `bq query --format=json` and BigQuery's console save results: one array, in one line or many."""
    path = tmp_path / "results.json"
    text = json.dumps(GCP_LINES, default=str, indent=indent)
    for data in (text.encode(), b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(), gzip.compress(text.encode())):
        path.write_bytes(data)
        found = read_bill(GCP, path)
        assert found.charges == bill.charges
        assert not found.gaps
    for wrong in (
        text[:-1],
        text[:-40],
        text + "]",
        text.replace("}, {", "} {", 1) + ",",
        "[[1]]",
        "[{},]",
        text[1:-1] + "]",
    ):
        path.write_text(wrong)
        with pytest.raises(SourceError, match=r"results\.json"):
            read_bill(GCP, path)


def test_a_long_array_is_read_in_pieces(tmp_path: Path) -> None:
    """More rows than a batch holds; objects that two pieces of the file share are whole."""
    (tmp_path / "results.json").write_text(json.dumps([GCP_LINES[2]] * 4000, default=str))
    bill = read_bill(GCP, tmp_path / "results.json")
    assert bill.total("BilledCost") == Decimal(400)


BROKEN = ('{"cost": 1', "[1]", '{"cost": "\\ud800"}', "{}x", '{"cost": NaN, "usage_start_time": "2024-09-01"}')


@pytest.mark.parametrize("line", BROKEN)
def test_broken_json_is_refused_in_one_line(line: str, tmp_path: Path) -> None:
    """A line that is no object, or holds what is no amount and no text."""
    path = tmp_path / "part.jsonl"
    path.write_text(json.dumps(GCP_LINES[0], default=str) + "\n" + line + "\n")
    with pytest.raises(SourceError, match=r"part\.jsonl, (line|lines|row) ") as error:
        read_bill(GCP, path)
    assert "\n" not in str(error.value)


def test_broken_credits_are_refused(tmp_path: Path) -> None:
    """One line names file, row, column and value."""
    rows = [_flatten(line) | {"credits": "-1.5"} for line in GCP_LINES[:1]]
    with pytest.raises(SourceError, match=r"flat\.csv, row 1: credits '-1\.5' is no list of credits"):
        read_bill(GCP, write_csv(tmp_path / "flat.csv", rows))


def test_a_file_without_credits_says_so(tmp_path: Path) -> None:
    """Costs before credits are not what is invoiced."""
    rows = [{k: v for k, v in _flatten(line).items() if k != "credits"} for line in GCP_LINES]
    assert [gap.what for gap in read_bill(GCP, write_csv(tmp_path / "flat.csv", rows)).gaps] == [
        "no column credits; costs stand before discounts and credits"
    ]
