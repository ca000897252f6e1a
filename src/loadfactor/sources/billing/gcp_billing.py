"""Decoder of Google Cloud's billing export (standard or detailed): Parquet as BigQuery writes it, or CSV with flat names.

What Google writes and what FOCUS means by it:
- Discounts stand beside usage as credits. Those that are its price (committed and sustained use, negotiated) lower its billed
  and effective cost; promotions and free tiers become lines of their own with their sign.
- The fee of a commitment is a line of its own. Google does not say which usage it pays for, so it keeps its cost as effective cost,
  and usage that a commitment covers is effective net of that discount: nothing is counted twice.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.sources.billing.amounts import add_amounts
from loadfactor.sources.billing.bill_batch import NO_AMOUNT, NO_TEXT, BillBatch, make_charges, pick, rename
from loadfactor.sources.billing.bill_file import BillFile
from loadfactor.sources.billing.bill_reader import make_source
from loadfactor.sources.billing.google_credits import Credits
from loadfactor.sources.billing.instance_types import find_google_type
from loadfactor.sources.billing.instants import begin_months

_CATEGORIES: Final = {"regular": "Usage", "tax": "Tax", "adjustment": "Adjustment", "rounding_error": "Adjustment"}
_TEXTS: Final = {
    "PublisherName": ("seller_name",),
    "BillingAccountId": ("billing_account_id",),
    "SubAccountId": ("project.id",),
    "SubAccountName": ("project.name",),
    "ChargeDescription": ("sku.description",),
    "PricingUnit": ("usage.pricing_unit", "price.unit"),
    "ServiceName": ("service.description",),
    "SkuId": ("sku.id",),
    "SkuMeter": ("sku.description",),
    "ResourceId": ("resource.global_name", "resource.name"),
    "ResourceName": ("resource.name",),
    "RegionId": ("location.region", "location.location"),
    "AvailabilityZone": ("location.zone",),
    "x_ChargeType": ("cost_type",),
}
_CORRECTED: Final = (
    "adjustment_info.id",
    "adjustment_info.type",
    "adjustment_info.mode",
    "adjustment_info.description",
)


class GoogleDecoder:
    """Rows of a billing export as charges."""

    what = "a Google Cloud billing export"
    needs: tuple[tuple[str, ...], ...] = (("cost",), ("usage_start_time",))
    month_first: bool | None = None

    def open(self, file: BillFile) -> None:
        """Say when credits, which lower the bill, are not in the file."""
        if not any(name.split(".")[0].lower() == "credits" for name in file.names):
            file.count("no column credits; costs stand before discounts and credits")

    def decode(self, batch: BillBatch) -> pa.Table:
        """These rows as charges, and their credits. SourceError names file, row, column and value of what cannot be read."""
        cost = batch.exact("cost")
        credits_ = batch.credits()
        columns = {name: batch.text(*names) for name, names in _TEXTS.items()}
        columns["ProviderName"] = columns["InvoiceIssuerName"] = batch.repeat("Google Cloud")
        columns["BillingCurrency"] = batch.currency(("currency",), cost)
        columns["Tags"] = batch.json("labels")
        columns["x_InstanceType"] = find_google_type(batch.json("system_labels"))
        self._add_periods(batch, columns)
        self._add_kinds(batch, credits_, columns)
        self._add_costs(batch, cost, credits_, columns)
        charges = make_charges(columns, len(batch))
        return pa.concat_tables([charges, _list_gifts(charges, credits_)])

    def finish(self) -> Iterator[pa.Table]:
        """Nothing: every row speaks for itself."""
        yield from ()

    def _add_periods(self, batch: BillBatch, columns: dict[str, pa.Array]) -> None:
        charged_from = batch.instant("usage_start_time")
        columns["ChargePeriodStart"], columns["ChargePeriodEnd"] = charged_from, batch.instant("usage_end_time")
        columns["BillingPeriodStart"] = pc.coalesce(batch.instant("invoice.month"), begin_months(charged_from))
        columns["BillingPeriodEnd"] = begin_months(columns["BillingPeriodStart"], later=1)

    def _add_kinds(self, batch: BillBatch, credits_: Credits, columns: dict[str, pa.Array]) -> None:
        category = rename(pc.fill_null(batch.text("cost_type"), "regular"), _CATEGORIES, batch.repeat("Adjustment"))
        usage = pc.equal(category, "Usage")
        fee = pc.and_(usage, pc.fill_null(pc.match_substring_regex(columns["SkuMeter"], "(?i)^commitment"), False))
        columns["ChargeCategory"] = pick(fee, batch.repeat("Purchase"), category)
        frequency = pick(fee, batch.repeat("Recurring"), batch.repeat("Usage-Based"))
        columns["ChargeFrequency"] = pick(usage, frequency, NO_TEXT)
        columns["ChargeClass"] = pick(pc.is_valid(batch.text(*_CORRECTED)), batch.repeat("Correction"), NO_TEXT)
        found, name, kind = credits_.find_commitments(len(batch))
        covered = pc.is_valid(kind)
        spot = pc.match_substring_regex(columns["SkuMeter"], "(?i)preemptible|^spot ")
        price = pick(covered, batch.repeat("Committed"), pick(spot, batch.repeat("Dynamic"), batch.repeat("Standard")))
        columns["PricingCategory"] = pick(usage, price, NO_TEXT)
        columns["CommitmentDiscountId"] = pick(fee, columns["ResourceId"], found)
        columns["CommitmentDiscountName"], columns["CommitmentDiscountCategory"] = name, kind
        columns["CommitmentDiscountStatus"] = pick(covered, batch.repeat("Used"), NO_TEXT)
        idle = pc.match_substring(columns["ResourceId"], "/reservations/")
        columns["CapacityReservationId"] = pick(idle, columns["ResourceId"], NO_TEXT)
        columns["CapacityReservationStatus"] = pick(idle, batch.repeat("Unused"), NO_TEXT)

    def _add_costs(self, batch: BillBatch, cost: pa.Array, credits_: Credits, columns: dict[str, pa.Array]) -> None:
        usage = pc.equal(columns["ChargeCategory"], "Usage")
        billed = add_amounts(cost, credits_.sum_discounts(len(batch)))
        columns["BilledCost"] = columns["EffectiveCost"] = billed
        columns["ContractedCost"] = cost
        columns["ListCost"] = batch.exact("cost_at_list")
        columns["ContractedUnitPrice"] = batch.exact("price.effective_price")
        columns["PricingQuantity"] = batch.exact("usage.amount_in_pricing_units")
        columns["ConsumedQuantity"] = pick(usage, batch.exact("usage.amount"), NO_AMOUNT)
        columns["ConsumedUnit"] = pick(usage, batch.text("usage.unit"), NO_TEXT)


def _list_gifts(charges: pa.Table, credits_: Credits) -> pa.Table:
    """Credits that are no discounts, each a line like the one it stands beside."""
    mine = pc.invert(credits_.discounts)
    rows = charges.take(credits_.rows.filter(mine))
    amounts, count = credits_.amounts.filter(mine), rows.num_rows
    said = {
        **dict.fromkeys(("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"), amounts),
        "ChargeCategory": pa.repeat("Credit", count),
        "ChargeDescription": credits_.names.filter(mine),
        "x_ChargeType": credits_.kinds.filter(mine),
    }
    emptied = (
        "PricingCategory",
        "PricingQuantity",
        "PricingUnit",
        "ConsumedQuantity",
        "ConsumedUnit",
        "ContractedUnitPrice",
    )
    of_commitment = [n for n in rows.column_names if n.startswith(("CommitmentDiscount", "CapacityReservation"))]
    kept = {n: rows[n] for n in rows.column_names if n not in (*emptied, *of_commitment, "ChargeFrequency")}
    return make_charges(kept | said, count)


SOURCE = make_source("gcp-billing", GoogleDecoder)
