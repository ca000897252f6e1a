"""A period that was delivered again counts once: the last delivery, as each cloud lays its folders out."""

import json
import os
from decimal import Decimal
from pathlib import Path

import pytest
from tests.sources.billing.bills import read_bill, write_csv

from loadfactor.base.errors import SourceError
from loadfactor.sources.billing.focus import SOURCE

ROW = {"BilledCost": "1", "EffectiveCost": "1", "BillingCurrency": "USD", "ChargePeriodStart": "2024-09-01T00:00:00Z"}
GUID = "11111111-2222-3333-4444-{:012}"


def _deliver(path: Path, cost: int, second: int = 1) -> None:
    write_csv(path, [ROW | {"BilledCost": str(cost)}])
    os.utime(path, (second, second))


def test_the_manifest_names_the_assembly(tmp_path: Path) -> None:
    """AWS keeps earlier assemblies; the period's manifest says which is current, whenever files were copied."""
    period = tmp_path / "report" / "20240901-20241001"
    _deliver(period / "aaaa" / "report-1.csv.gz", 8, second=99)
    _deliver(period / "bbbb" / "report-1.csv.gz", 1)
    _deliver(period / "bbbb" / "report-2.csv.gz", 2)
    (period / "report-Manifest.json").write_text(json.dumps({"assemblyId": "bbbb", "reportKeys": []}))
    bill = read_bill(SOURCE, tmp_path)
    assert bill.total("BilledCost") == Decimal(3)
    said = [gap.what for gap in bill.gaps if "earlier delivery" in gap.what]
    assert said == [f"an earlier delivery of its period; {period / 'bbbb'} replaces it"]


def test_runs_are_ordered_by_the_time_in_their_names(tmp_path: Path) -> None:
    """Azure and AWS Data Exports name a run by its time; the last of each period counts."""
    for period, runs in (
        ("20240901-20240930", {"202409021200": 1, "202409031200": 2}),
        ("BILLING_PERIOD=2024-10", {"2024-10-02T00:00:00.000Z-x": 4, "2024-10-03T00:00:00.000Z-a": 8}),
    ):
        for run, cost in runs.items():
            _deliver(tmp_path / period / run / "guid" / "part_0_0001.csv", cost, second=9 - cost)
    assert read_bill(SOURCE, tmp_path).total("BilledCost") == Decimal(2 + 8)


def test_single_files_of_runs(tmp_path: Path) -> None:
    """Earlier exports of Azure write one file a run beside the others; the last one written counts."""
    period = tmp_path / "20240901-20240930"
    for number in range(3):
        _deliver(period / f"daily_{GUID.format(number)}.csv", 1 + number, second=1 + number)
    assert read_bill(SOURCE, tmp_path).total("BilledCost") == Decimal(3)


def test_parts_and_periods_are_no_redeliveries(tmp_path: Path) -> None:
    """Parts of one delivery and deliveries of other periods all count."""
    _deliver(tmp_path / "20240901-20241001" / "report-00001.csv", 1)
    _deliver(tmp_path / "20240901-20241001" / "report-00002.csv", 2)
    _deliver(tmp_path / "20241001-20241101" / "report-00001.csv", 4)
    assert read_bill(SOURCE, tmp_path).total("BilledCost") == Decimal(7)


def test_deliveries_that_nothing_orders_are_refused(tmp_path: Path) -> None:
    """Adding both would double the bill; guessing would be wrong half of the time."""
    for name in ("aaaa", "bbbb"):
        _deliver(tmp_path / "20240901-20241001" / name / "report-1.csv", len(name))
        _deliver(tmp_path / "20240901-20241001" / name / "report-2.csv", ord(name[0]))
    with pytest.raises(SourceError, match="deliver the same period, and nothing tells which is later"):
        read_bill(SOURCE, tmp_path)
