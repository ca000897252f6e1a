"""Decoder of FOCUS bills, versions 1.0 to 1.4, whoever exports them; read tolerantly: names in any case, columns left out.

A FOCUS bill says the four costs itself; they are taken as they stand. Times without a zone are UTC, as FOCUS says.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.sources.billing.amounts import begin_months
from loadfactor.sources.billing.bill_batch import (
    BillBatch,
    find_aws_type,
    find_azure_type,
    find_focus_type,
    make_charges,
    rename,
)
from loadfactor.sources.billing.bill_file import BillFile, fold_name
from loadfactor.sources.billing.bill_reader import BillDecoder, make_source
from loadfactor.tables.charges import CATEGORIES, CHARGES, COSTS

_JSON: Final = ("Tags", "AllocatedTags", "SkuPriceDetails", "AllocatedMethodDetails")
_OTHER_NAMES: Final = {
    "ProviderName": (
        "ServiceProviderName",
        "Provider",
    ),  # 1.3 renames it, 1.4 removes the old name; Oracle has its first one
    "PublisherName": ("Publisher",),
    "InvoiceIssuerName": ("InvoiceIssuer",),
    "RegionId": ("Region",),
    "RegionName": ("Region",),
    "ConsumedQuantity": ("UsageQuantity",),
    "ConsumedUnit": ("UsageUnit",),
    "x_ChargeType": ("x_ChargeType", "x_LineItemType", "ChargeSubcategory"),
    "x_InstanceType": ("x_InstanceType", "x_SkuInstanceType"),
}
_ONE_OF: Final = {
    "ChargeCategory": CATEGORIES,
    "ChargeClass": ("Correction",),
    "ChargeFrequency": ("One-Time", "Recurring", "Usage-Based"),
    "PricingCategory": ("Standard", "Dynamic", "Committed", "Other"),
    "CommitmentDiscountStatus": ("Used", "Unused"),
    "CapacityReservationStatus": ("Used", "Unused"),
    "CommitmentDiscountCategory": ("Usage", "Spend"),
}


class FocusDecoder(BillDecoder):
    """Rows of FOCUS as charges: the same columns, their values in FOCUS's own spelling."""

    what = "a FOCUS bill"
    needs: tuple[tuple[str, ...], ...] = (
        ("BilledCost",),
        ("EffectiveCost",),
        ("ChargePeriodStart", "BillingPeriodStart"),
    )

    def open(self, file: BillFile) -> None:
        """Say which of the costs the file lacks, and what stands in place of days."""
        known = set(map(fold_name, file.names))
        if fold_name("ChargePeriodStart") not in known:
            file.count("no column ChargePeriodStart; every charge counts at the start of its billing period")
        for cost in COSTS:
            if fold_name(cost) not in known:
                file.count(f"no column {cost}; it stays unknown")

    def decode(self, batch: BillBatch) -> pa.Table:
        """These rows as charges."""
        columns: dict[str, pa.Array] = {}
        for column in CHARGES.columns:
            names = (column.name, *_OTHER_NAMES.get(column.name, ()))
            if column.name in _JSON:
                columns[column.name] = batch.json(*names)
            elif column.kind == "exact":
                columns[column.name] = batch.exact(*names)
            elif column.kind == "instant":
                columns[column.name] = batch.instant(*names)
            else:
                columns[column.name] = batch.text(*names)
        for name, values in _ONE_OF.items():
            columns[name] = rename(columns[name], {value: value for value in values}, columns[name])
        charged = pc.coalesce(columns["ChargePeriodStart"], columns["BillingPeriodStart"])
        columns["ChargePeriodStart"] = charged
        columns["BillingPeriodStart"] = pc.coalesce(columns["BillingPeriodStart"], begin_months(charged))
        columns["BillingPeriodEnd"] = pc.coalesce(
            columns["BillingPeriodEnd"], begin_months(columns["BillingPeriodStart"], later=1)
        )
        columns["BillingCurrency"] = batch.currency(("BillingCurrency",), columns["BilledCost"])
        columns["x_InstanceType"] = pc.coalesce(
            columns["x_InstanceType"],
            find_focus_type(columns["SkuPriceDetails"]),
            find_azure_type(batch.text("x_SkuDetails")),
            find_aws_type(batch.text("x_UsageType"), columns["ChargeDescription"]),
        )
        return make_charges(columns, len(batch))


SOURCE = make_source("focus", FocusDecoder)
