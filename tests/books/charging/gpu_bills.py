"""Bills in FOCUS for tests, written as files: lines of GPUs, and rows of a few cells."""

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadfactor.base.units import MS_PER_HOUR, MS_PER_S

START = 1_790_812_800_000
"""2026-10-01."""
NAMES = (
    *("ProviderName", "BillingAccountId", "SubAccountId", "BillingCurrency", "BillingPeriodStart", "BillingPeriodEnd"),
    *(
        "ChargePeriodStart",
        "ChargePeriodEnd",
        "ChargeCategory",
        "BilledCost",
        "EffectiveCost",
        "ListCost",
        "ContractedCost",
    ),
    *(
        "ConsumedQuantity",
        "ConsumedUnit",
        "ServiceName",
        "ServiceCategory",
        "SkuMeter",
        "ChargeDescription",
        "ResourceId",
    ),
    *("ResourceName", "Tags", "SkuPriceDetails", "x_InstanceType", "CommitmentDiscountId", "CommitmentDiscountStatus"),
)
Line = dict[str, object]


def line(resource: str, start_h: float, hours: float, cost: str, kind: str = "p4d.24xlarge", **more: object) -> Line:
    """A line of an instance from so many hours after the start on."""
    return {
        "ProviderName": "AWS",
        "BillingAccountId": "1",
        "SubAccountId": "1",
        "BillingCurrency": "USD",
        "BillingPeriodStart": _write(0),
        "BillingPeriodEnd": "2026-11-01T00:00:00Z",
        "ChargePeriodStart": _write(start_h),
        "ChargePeriodEnd": _write(start_h + hours),
        "ChargeCategory": "Usage",
        "BilledCost": cost,
        "EffectiveCost": cost,
        "ListCost": cost,
        "ContractedCost": cost,
        "ConsumedQuantity": hours,
        "ConsumedUnit": "Hours",
        "ServiceName": "Amazon Elastic Compute Cloud",
        "ServiceCategory": "Compute",
        "ResourceId": resource,
        "x_InstanceType": kind,
        **more,
    }


def write_bill(path: Path, lines: list[Line]) -> Path:
    """Lines as a FOCUS file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, NAMES, restval="")
        writer.writeheader()
        writer.writerows(lines)
    return path


def _write(hours: float) -> str:
    return datetime.fromtimestamp((START + hours * MS_PER_HOUR) / MS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


USUAL = {
    "ProviderName": "Cloud",
    "BillingAccountId": "1",
    "BillingCurrency": "USD",
    "BillingPeriodStart": "2026-10-01T00:00:00Z",
    "BillingPeriodEnd": "2026-11-01T00:00:00Z",
    "ChargePeriodStart": "2026-10-05T00:00:00Z",
    "ChargePeriodEnd": "2026-10-05T01:00:00Z",
    "ChargeCategory": "Usage",
    "BilledCost": "0",
    "EffectiveCost": "0",
    "ListCost": "",
    "ContractedCost": "",
    "ServiceCategory": "Compute",
    "ServiceName": "Machines",
    "ResourceId": "vm-1",
    "CommitmentDiscountStatus": "",
    "x_InstanceType": "",
    "Tags": "",
}


def tag(team: str) -> str:
    """The cell of tags that says a team."""
    return f'{{"team": "{team}"}}'


def write_focus_bill(path: Path, *rows: dict[str, Any]) -> Path:
    """Rows as a file; cells left out are the usual ones, and both costs are the one called `cost`."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, USUAL)
        writer.writeheader()
        for row in rows:
            cells = dict(row)
            both = {"BilledCost": cells["cost"], "EffectiveCost": cells.pop("cost")} if "cost" in cells else {}
            writer.writerow(USUAL | both | cells)
    return path
