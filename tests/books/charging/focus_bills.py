"""Bills in FOCUS for tests: rows of a few cells, written as a file."""

import csv
from pathlib import Path
from typing import Any

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


def write_bill(path: Path, *rows: dict[str, Any]) -> Path:
    """Rows as a file; cells left out are the usual ones, and both costs are the one called `cost`."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, USUAL)
        writer.writeheader()
        for row in rows:
            cells = dict(row)
            both = {"BilledCost": cells["cost"], "EffectiveCost": cells.pop("cost")} if "cost" in cells else {}
            writer.writerow(USUAL | both | cells)
    return path
