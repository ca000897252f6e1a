"""Statements as a bill in FOCUS: the columns of 1.2 with the allocation columns of 1.3, a row a part of a statement."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from loadfactor.base.errors import InputError
from loadfactor.interfaces.document import Document

if TYPE_CHECKING:
    from loadfactor.books.charging.fleet_chargeback import FleetChargeback
    from loadfactor.money.statements import Statement, StatementPart

COLUMNS: Final = (
    *(
        "AvailabilityZone",
        "BilledCost",
        "BillingAccountId",
        "BillingAccountName",
        "BillingAccountType",
        "BillingCurrency",
    ),
    *("BillingPeriodEnd", "BillingPeriodStart", "CapacityReservationId", "CapacityReservationStatus", "ChargeCategory"),
    *("ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart"),
    *("CommitmentDiscountCategory", "CommitmentDiscountId", "CommitmentDiscountName", "CommitmentDiscountQuantity"),
    *(
        "CommitmentDiscountStatus",
        "CommitmentDiscountType",
        "CommitmentDiscountUnit",
        "ConsumedQuantity",
        "ConsumedUnit",
    ),
    *(
        "ContractedCost",
        "ContractedUnitPrice",
        "EffectiveCost",
        "InvoiceId",
        "InvoiceIssuerName",
        "ListCost",
        "ListUnitPrice",
    ),
    *(
        "PricingCategory",
        "PricingCurrency",
        "PricingQuantity",
        "PricingUnit",
        "ProviderName",
        "PublisherName",
        "RegionId",
    ),
    *(
        "RegionName",
        "ResourceId",
        "ResourceName",
        "ResourceType",
        "ServiceCategory",
        "ServiceName",
        "ServiceSubcategory",
    ),
    *("SkuId", "SkuMeter", "SkuPriceDetails", "SkuPriceId", "SubAccountId", "SubAccountName", "SubAccountType", "Tags"),
    *("AllocatedMethodId", "AllocatedMethodDetails", "AllocatedResourceId", "AllocatedResourceName", "AllocatedTags"),
    *("HostProviderName", "ServiceProviderName", "x_ChargeType"),
)
"""Columns of Cost and Usage: those of FOCUS 1.2, those that 1.3 adds, and what tells pools."""
_ISSUER: Final = "loadfactor"
_SERVICES: Final = {
    "storage": ("Storage", "Other (Storage)", "Storage"),
    "network": ("Networking", "Other (Networking)", "Network"),
    "egress": ("Networking", "Other (Networking)", "Egress"),
    "other": ("Other", "Other (Other)", "Other"),
}
_COMPUTE: Final = ("Compute", "Other (Compute)", "GPU-hours")
_SHARE: Final = "share of "


def write_focus(document: Document) -> str:
    """The statements of a page as CSV. Raises InputError where the page has none."""
    found: Any = document.data
    if not hasattr(found, "cost_source"):
        raise InputError("--format focus writes statements; leave --diff out")
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_list_rows(found))
    return out.getvalue()


def _list_rows(found: "FleetChargeback") -> Iterator[Mapping[str, str]]:
    for statement in found.statements:
        for part in statement.parts:
            yield _write_row(found, statement, part)


def _write_row(found: "FleetChargeback", statement: "Statement", part: "StatementPart") -> Mapping[str, str]:
    start, end = (at.isoformat().replace("+00:00", "Z") for at in (found.start, found.end))
    kind = statement.pool if statement.pool in _SERVICES else part.name.removeprefix(_SHARE)
    category, subcategory, service = _SERVICES.get(str(kind), _COMPUTE)
    owner = " / ".join(str(name) for name in statement.by.values() if name)
    tags = json.dumps(
        {name: value for name, value in statement.by.items() if value}, ensure_ascii=False, sort_keys=True
    )
    described = f"{statement.pool or owner}: {part.name}, {part.method}"
    return {
        "BillingAccountId": "chargeback",
        "BillingAccountName": "Chargeback",
        "BillingAccountType": "Internal",
        "BillingCurrency": found.currency,
        "BillingPeriodStart": start,
        "BillingPeriodEnd": end,
        "ChargePeriodStart": start,
        "ChargePeriodEnd": end,
        "ChargeCategory": "Usage",
        "ChargeDescription": described,
        "ChargeFrequency": "Usage-Based",
        **{column: f"{amount:f}" for column, amount in part.amounts.items()},
        "InvoiceId": found.closing or "",
        **dict.fromkeys(
            ("InvoiceIssuerName", "ProviderName", "PublisherName", "HostProviderName", "ServiceProviderName"), _ISSUER
        ),
        "PricingCategory": "Other",
        "PricingCurrency": found.currency,
        "ServiceCategory": category,
        "ServiceSubcategory": subcategory,
        "ServiceName": service,
        "SubAccountId": owner,
        "SubAccountName": owner,
        "SubAccountType": "/".join(found.by) if owner else "",
        "Tags": tags if owner else "",
        "AllocatedMethodId": part.method,
        "AllocatedMethodDetails": _describe_method(found, statement, part),
        "AllocatedTags": tags if owner else "",
        "x_ChargeType": f"pool: {statement.pool}" if statement.pool else part.name,
    }


def _describe_method(found: "FleetChargeback", statement: "Statement", part: "StatementPart") -> str:
    """How a part came to its owner, in the form of FOCUS 1.3: its share of the column's total, and the hours behind it."""
    column = next(iter(found.totals))
    whole = found.totals[column].charged
    element: dict[str, Any] = {"AllocatedRatio": float(part.amounts[column] / whole) if whole else 0.0}
    hours = {"idle": statement.hours.idle, "unobserved": statement.hours.unobserved, "gpu": statement.hours.total}
    hours["busy"] = statement.hours.total - statement.hours.idle - statement.hours.unobserved
    if hours.get(part.name):
        element |= {"UsageUnit": "GPU-hours", "UsageQuantity": float(hours[part.name])}
    return json.dumps({"Elements": [element]})
