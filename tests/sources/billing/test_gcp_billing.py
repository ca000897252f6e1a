"""Google's billing export: nested Parquet and flat CSV, discounts, credits, commitments.

Columns as Google documents its detailed usage cost export (cloud.google.com/billing/docs); amounts are made up.
"""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sources.billing.bills import Bill, read_bill, write_csv

from loadfactor.base.errors import SourceError
from loadfactor.sources.billing.gcp_billing import SOURCE

CUD = {"name": "n", "full_name": "cud", "id": "c-1", "type": "COMMITTED_USAGE_DISCOUNT", "amount": -1.1}
GIFT = {"name": "p", "full_name": "promo", "id": "p-1", "type": "PROMOTION", "amount": -0.5}


def _line(sku: str, cost: float, *credits_: dict, **more: object) -> dict:
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


LINES = [
    _line("Nvidia Tesla A100 GPU running in Americas", 2.933908, CUD, GIFT),
    _line("Commitment v1: A100 GPU in Americas for 1 year", 0.7),
    _line("Spot Preemptible A100 GPU", 0.1),
    _line("Taxes", 0.25, cost_type="tax"),
    _line("Rounding error", -0.01, cost_type="rounding_error"),
    _line("Correction", -0.5, cost_type="adjustment", adjustment_info={"id": "a", "type": "GENERAL_ADJUSTMENT"}),
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
    pq.write_table(pa.Table.from_pylist(LINES), tmp_path / "part-000.parquet")
    return read_bill(SOURCE, tmp_path)


def test_the_invoice_is_kept_whole(bill: Bill) -> None:
    """Billed is every cost and every credit, each once; stored doubles are read by their shortest text, and said."""
    expected = sum((Decimal(repr(line["cost"])) for line in LINES), Decimal(0)) + Decimal("-1.6")
    assert bill.total("BilledCost") == bill.total("EffectiveCost") == expected
    assert [gap.what for gap in bill.gaps] == [
        "amounts stored as binary floating point; read as the shortest decimals that are them"
    ]


def test_discounts_lower_a_line_and_gifts_are_lines(bill: Bill) -> None:
    """A commitment's discount is the price of its line; a promotion is a credit of the same holder."""
    rows = bill.rows()
    first, gift = rows[0], rows[-1]
    assert (first["BilledCost"], first["ContractedCost"], first["ListCost"]) == (
        Decimal("1.833908"),
        Decimal("2.933908"),
        3,
    )
    assert (first["CommitmentDiscountId"], first["CommitmentDiscountStatus"], first["PricingCategory"]) == (
        "c-1",
        "Used",
        "Committed",
    )
    assert (gift["ChargeCategory"], gift["BilledCost"], gift["ChargeDescription"]) == (
        "Credit",
        Decimal("-0.5"),
        "promo",
    )
    assert (gift["ResourceId"], gift["SubAccountId"]) == (first["ResourceId"], "p1")
    assert "CommitmentDiscountId" not in gift
    assert len(rows) == len(LINES) + 1


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
    flat = read_bill(SOURCE, write_csv(tmp_path / "flat.csv.gz", [_flatten(line) for line in LINES]))
    assert flat.charges == bill.charges
    assert not flat.gaps


def test_lines_of_json_say_the_same(bill: Bill, tmp_path: Path) -> None:
    """As BigQuery exports a table: nested objects, lists, numbers exact as they are written."""
    path = tmp_path / "part.jsonl"
    path.write_text("".join(json.dumps(line, default=str) + "\n" for line in LINES))
    found = read_bill(SOURCE, tmp_path / "part.jsonl")
    assert found.charges == bill.charges
    assert not found.gaps


BROKEN = ('{"cost": 1', "[1]", '{"cost": "\\ud800"}', "{}x", '{"cost": NaN, "usage_start_time": "2024-09-01"}')


@pytest.mark.parametrize("line", BROKEN)
def test_broken_json_is_refused_in_one_line(line: str, tmp_path: Path) -> None:
    """A line that is no object, or holds what is no amount and no text."""
    path = tmp_path / "part.jsonl"
    path.write_text(json.dumps(LINES[0], default=str) + "\n" + line + "\n")
    with pytest.raises(SourceError, match=r"part\.jsonl, (line|lines|row) ") as error:
        read_bill(SOURCE, path)
    assert "\n" not in str(error.value)


def test_broken_credits_are_refused(tmp_path: Path) -> None:
    """One line names file, row, column and value."""
    rows = [_flatten(line) | {"credits": "-1.5"} for line in LINES[:1]]
    with pytest.raises(SourceError, match=r"flat\.csv, row 1: credits '-1\.5' is no list of credits"):
        read_bill(SOURCE, write_csv(tmp_path / "flat.csv", rows))


def test_a_file_without_credits_says_so(tmp_path: Path) -> None:
    """Costs before credits are not what is invoiced."""
    rows = [{k: v for k, v in _flatten(line).items() if k != "credits"} for line in LINES]
    assert [gap.what for gap in read_bill(SOURCE, write_csv(tmp_path / "flat.csv", rows)).gaps] == [
        "no column credits; costs stand before discounts and credits"
    ]
