"""Small bills in FOCUS for tests, written as files."""

import csv
from datetime import UTC, datetime
from pathlib import Path

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
    *("ResourceName", "Tags", "SkuPriceDetails", "x_InstanceType", "CommitmentDiscountStatus"),
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
