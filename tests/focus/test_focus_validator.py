"""Tests of `chargeback --format focus` by focus-validator 1.0.0, which knows FOCUS 1.0, in the environment of `make focus`."""

import csv
import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.books.charging.gpu_bills import tag, write_focus_bill

from loadfactor.books.books import Books
from loadfactor.interfaces.pages.chargeback import build_chargeback, write_focus

ENVIRONMENT = Path(__file__).parents[2] / ".focus-env"
VALIDATOR = ENVIRONMENT / "bin" / "focus-validator"
CALLED = {
    "InvoiceIssuer": "InvoiceIssuerName",
    "Provider": "ProviderName",
    "Publisher": "PublisherName",
    "ResourceID": "ResourceId",
}
"""Columns that this validator asks for by names of FOCUS 0.5, and what FOCUS 1.0 calls them."""
WRONG_RULE = "SkuPriceId_Nullable"
"""A rule of this validator that cannot hold: it looks at ChargeType, a column of FOCUS 0.5. FOCUS's own sample fails it, too."""

pytestmark = pytest.mark.skipif(
    not VALIDATOR.is_file() and os.environ.get("LOADFACTOR_REQUIRE_REAL") != "1", reason="no .focus-env: run make focus"
)


def list_failures(path: Path) -> set[str]:
    """The rules that the statements of a bill fail, written as FOCUS."""
    books = Books(path.parent / "books")
    books.add("focus", [path])
    text = write_focus(build_chargeback(books.chargeback(by=("team", "project")), ""))
    rows = [row | {name: row[ours] for name, ours in CALLED.items()} for row in csv.DictReader(text.splitlines())]
    assert rows
    written = path.parent / "focus.csv"
    with written.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    asked = [VALIDATOR, "--data-file", written, "--validate-version", "1.0"]
    (packages,) = ENVIRONMENT.glob("lib/python*/site-packages")  # it looks for its list of currencies from there
    found = subprocess.run(asked, cwd=packages, capture_output=True, text=True, check=False)
    failed = set(re.findall(r"^(\w+) failed:", found.stdout, re.MULTILINE))
    assert failed, found.stderr
    return failed


def test_statements_pass_the_validator(tmp_path: Path) -> None:
    """Owners, pools, a tax, a discount and what nobody used: no rule fails but the one that cannot hold."""
    costs = {"ListCost": "4", "ContractedCost": "4"}
    rows = [
        {"cost": "10.333", "Tags": tag("a"), **costs},
        {"cost": "-2", "Tags": tag("ü, b"), "ServiceCategory": "Storage", **costs},
        {"cost": "3", "ChargeCategory": "Tax", **costs},
        {"cost": "2", "CommitmentDiscountStatus": "Unused", **costs},
        {"cost": "1", **costs},
    ]
    assert list_failures(write_focus_bill(tmp_path / "bill.csv", *rows)) == {WRONG_RULE}


def test_a_cost_that_the_bill_does_not_say_stays_empty(tmp_path: Path) -> None:
    """FOCUS wants an amount in all four columns; what is not known is no 0, and the validator says which are empty."""
    bill = write_focus_bill(tmp_path / "bill.csv", {"cost": "10", "Tags": tag("a")})
    assert list_failures(bill) == {WRONG_RULE, "ListCost_NotNull", "ContractedCost_NotNull"}
