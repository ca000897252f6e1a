"""AWS Cost and Usage Reports: the real sample, both generations of headers, savings plans and reservations in FOCUS's meaning.

Line items as https://docs.aws.amazon.com/cur/latest/userguide/ describes them; amounts are made up.
"""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from tests.sources.billing.bills import read_bill, read_rows, sum_column, write_csv

from loadfactor.sources.billing.aws_cur import SOURCE

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
    "product/instanceType": "",
    "product/capacitystatus": "",
    "reservation/ReservationARN": "",
    "reservation/EffectiveCost": "",
    "reservation/UnusedAmortizedUpfrontFeeForBillingPeriod": "",
    "reservation/UnusedRecurringFee": "",
    "savingsPlan/SavingsPlanARN": "",
    "savingsPlan/SavingsPlanEffectiveCost": "",
    "savingsPlan/TotalCommitmentToDate": "",
    "savingsPlan/UsedCommitment": "",
    "resourceTags/user:team": "",
    "resourceTags/aws:createdBy": "",
}


def _line(kind: str, cost: str, **more: str) -> dict[str, str]:
    return (
        LINE
        | {"lineItem/LineItemType": kind, "lineItem/UnblendedCost": cost}
        | {k.replace("__", "/"): v for k, v in more.items()}
    )


LINES = [
    _line("Usage", "32.77", **{"resourceTags/user:team": "nlp", "resourceTags/aws:createdBy": "x"}),
    _line("SavingsPlanCoveredUsage", "10", savingsPlan__SavingsPlanARN=PLAN, savingsPlan__SavingsPlanEffectiveCost="6"),
    _line("SavingsPlanNegation", "-10", savingsPlan__SavingsPlanARN=PLAN),
    _line(
        "SavingsPlanRecurringFee",
        "8",
        savingsPlan__SavingsPlanARN=PLAN,
        savingsPlan__TotalCommitmentToDate="8",
        savingsPlan__UsedCommitment="6",
    ),
    _line("DiscountedUsage", "0", reservation__ReservationARN=RESERVATION, reservation__EffectiveCost="3"),
    _line(
        "RIFee",
        "4",
        reservation__ReservationARN=RESERVATION,
        reservation__UnusedAmortizedUpfrontFeeForBillingPeriod="0.25",
        reservation__UnusedRecurringFee="0.75",
    ),
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
    found = {
        (row["x_ChargeType"], row.get("CommitmentDiscountStatus")): (
            row["ChargeCategory"],
            row["BilledCost"],
            row["EffectiveCost"],
        )
        for row in bill.rows()
    }
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
