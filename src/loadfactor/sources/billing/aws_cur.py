"""Decoder of AWS Cost and Usage Reports, legacy (lineItem/UnblendedCost) and CUR 2.0 (line_item_unblended_cost), as charges.

What AWS writes and what FOCUS means by it:
- Usage under a savings plan stands at its on-demand price and is taken back by a negation line. Here it is billed 0, its effective
  cost is what AWS amortizes to it, and negations are left out. What a plan's lines do not take back is kept as one adjustment.
- Fees of savings plans and reservations, upfront or recurring, are purchases: billed, effective cost 0. What of a commitment was
  not used becomes a line of its own: billed 0, its effective cost what AWS says of the unused part, status Unused.
- CUR 2.0 keeps attributes of a product that have no column of their own in one column of keys and values, `product`.
- Discounts, credits, refunds and taxes are lines of their own and keep their sign.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.sources.billing.amounts import AMOUNT, add_amounts, begin_months, subtract_amounts
from loadfactor.sources.billing.bill_batch import (
    NO_AMOUNT,
    NO_TEXT,
    ZERO,
    BillBatch,
    find_aws_type,
    make_charges,
    pick,
    rename,
)
from loadfactor.sources.billing.bill_reader import BillDecoder, make_source

_SPLIT: Final = (
    "costs of pods that AWS split (split_line_item_split_cost): the instance counts once, and not by its pods"
)
_COVERED, _NEGATION, _RESERVED = "savingsplancoveredusage", "savingsplannegation", "discountedusage"
_PLAN_FEES: Final = ("savingsplanrecurringfee", "savingsplanupfrontfee")
_CATEGORIES: Final = {
    **dict.fromkeys(("usage", _COVERED, _RESERVED), "Usage"),
    **dict.fromkeys(("fee", "rifee", *_PLAN_FEES), "Purchase"),
    "tax": "Tax",
    "credit": "Credit",
}
_FREQUENCIES: Final = {
    **dict.fromkeys(("usage", _COVERED, _RESERVED), "Usage-Based"),
    **dict.fromkeys(("rifee", "savingsplanrecurringfee"), "Recurring"),
    **dict.fromkeys(("fee", "savingsplanupfrontfee"), "One-Time"),
}
_TEXTS: Final = {
    "InvoiceId": ("bill/InvoiceId",),
    "InvoiceIssuerName": ("bill/InvoicingEntity",),
    "PublisherName": ("lineItem/LegalEntity",),
    "BillingAccountId": ("bill/PayerAccountId",),
    "BillingAccountName": ("bill/PayerAccountName",),
    "SubAccountId": ("lineItem/UsageAccountId",),
    "SubAccountName": ("lineItem/UsageAccountName",),
    "ChargeDescription": ("lineItem/LineItemDescription",),
    "PricingUnit": ("pricing/unit",),
    "ServiceName": ("product/servicename", "lineItem/ProductCode"),
    "ServiceSubcategory": ("product/productFamily",),
    "SkuId": ("product/sku",),
    "SkuMeter": ("lineItem/UsageType",),
    "SkuPriceId": ("pricing/RateCode",),
    "ResourceId": ("lineItem/ResourceId",),
    "RegionId": ("product/regionCode", "product/region"),
    "RegionName": ("product/location",),
    "AvailabilityZone": ("lineItem/AvailabilityZone",),
    "x_ChargeType": ("lineItem/LineItemType",),
}
_GROUP: Final = ("BillingAccountId", "BillingPeriodStart", "BillingCurrency", "CommitmentDiscountId")


class CurDecoder(BillDecoder):
    """Rows of a report as charges; holds, by savings plan, what its lines have not taken back yet."""

    what = "an AWS Cost and Usage Report"
    needs: tuple[tuple[str, ...], ...] = (
        ("lineItem/UnblendedCost",),
        ("lineItem/LineItemType",),
        ("lineItem/UsageStartDate", "bill/BillingPeriodStartDate"),
    )

    def __init__(self) -> None:
        self._open: dict[tuple[object, ...], Decimal] = {}

    def decode(self, batch: BillBatch) -> pa.Table:
        """These rows as charges, and the unused parts of commitments among them."""
        kind = pc.utf8_lower(batch.text("lineItem/LineItemType"))
        cost = batch.exact("lineItem/UnblendedCost")
        columns = {name: batch.text(*names) for name, names in _TEXTS.items()}
        columns["ServiceName"] = pc.coalesce(
            batch.text("product/ProductName"), batch.key("product", "product_name"), columns["ServiceName"]
        )
        columns["ProviderName"] = batch.repeat("AWS")
        columns["BillingCurrency"] = batch.currency(("lineItem/CurrencyCode",), cost)
        self._add_periods(batch, columns)
        self._add_kinds(batch, kind, columns)
        self._add_costs(batch, kind, cost, columns)
        columns["Tags"] = pc.coalesce(
            batch.json("resource_tags"), batch.tagged("resourcetags/"), batch.tagged("resource_tags_")
        )
        split = batch.exact("splitLineItem/SplitCost")
        batch.file.count(_SPLIT, len(split) - split.null_count)
        charges = make_charges(columns, len(batch))
        self._follow_plans(charges, kind, cost)
        unused = self._list_unused(batch, kind, charges)
        return pa.concat_tables([charges.filter(pc.fill_null(pc.not_equal(kind, _NEGATION), True)), unused])

    def finish(self) -> Iterator[pa.Table]:
        """An adjustment for every savings plan whose negations do not take back exactly what stood at on-demand prices."""
        for group, amount in self._open.items():
            if amount:
                columns = {name: pa.array([value]) for name, value in zip(_GROUP, group, strict=True)}
                columns |= {name: pa.array([amount], AMOUNT) for name in ("BilledCost", "EffectiveCost")}
                columns |= {
                    "ProviderName": pa.array(["AWS"]),
                    "ChargeCategory": pa.array(["Adjustment"]),
                    "ChargeDescription": pa.array(["Covered usage less its savings plan negation"]),
                    "ChargePeriodStart": columns["BillingPeriodStart"],
                }
                yield make_charges(
                    {k: pc.cast(v, pa.string()) if pa.types.is_null(v.type) else v for k, v in columns.items()}, 1
                )

    def _add_periods(self, batch: BillBatch, columns: dict[str, pa.Array]) -> None:
        billed_from = batch.instant("bill/BillingPeriodStartDate")
        charged_from = pc.coalesce(batch.instant("lineItem/UsageStartDate"), billed_from)
        columns["BillingPeriodStart"] = pc.coalesce(billed_from, begin_months(charged_from))
        columns["BillingPeriodEnd"] = pc.coalesce(
            batch.instant("bill/BillingPeriodEndDate"), begin_months(columns["BillingPeriodStart"], later=1)
        )
        columns["ChargePeriodStart"] = charged_from
        columns["ChargePeriodEnd"] = batch.instant("lineItem/UsageEndDate")

    def _add_kinds(self, batch: BillBatch, kind: pa.Array, columns: dict[str, pa.Array]) -> None:
        plan, reservation = batch.text("savingsPlan/SavingsPlanARN"), batch.text("reservation/ReservationARN")
        usage_type = columns["SkuMeter"]
        columns["ChargeCategory"] = rename(kind, _CATEGORIES, batch.repeat("Adjustment"))
        columns["ChargeFrequency"] = rename(kind, _FREQUENCIES, batch.repeat(None))
        earlier = pc.less_equal(columns["ChargePeriodEnd"], columns["BillingPeriodStart"])
        columns["ChargeClass"] = pick(pc.and_(pc.equal(kind, "refund"), earlier), batch.repeat("Correction"), NO_TEXT)
        covered = pc.is_in(kind, value_set=pa.array([_COVERED, _RESERVED]))
        spot = pc.match_substring(usage_type, "SpotUsage")
        of_price = pc.is_in(columns["ChargeCategory"], value_set=pa.array(["Usage", "Purchase"]))
        category = pick(
            covered, batch.repeat("Committed"), pick(spot, batch.repeat("Dynamic"), batch.repeat("Standard"))
        )
        columns["PricingCategory"] = pick(of_price, category, NO_TEXT)
        columns["CommitmentDiscountId"] = pc.coalesce(plan, reservation)
        for name, of_plan, of_reservation in (
            ("CommitmentDiscountCategory", "Spend", "Usage"),
            ("CommitmentDiscountType", "Savings Plan", "Reserved Instance"),
        ):
            of_kind = pick(pc.is_valid(reservation), batch.repeat(of_reservation), NO_TEXT)
            columns[name] = pick(pc.is_valid(plan), batch.repeat(of_plan), of_kind)
        columns["CommitmentDiscountStatus"] = pick(covered, batch.repeat("Used"), NO_TEXT)
        columns["x_InstanceType"] = pc.coalesce(
            batch.text("product/instanceType"), find_aws_type(usage_type, columns["ChargeDescription"])
        )
        status = pc.coalesce(batch.text("product/capacitystatus"), batch.key("product", "capacitystatus"))
        idle = pc.or_(
            pc.fill_null(pc.equal(status, "UnusedCapacityReservation"), False),
            pc.fill_null(pc.match_substring_regex(usage_type, "Unused(Box|Ded)"), False),
        )
        capacity = batch.text("capacity_reservation_capacity_reservation_arn")
        columns["CapacityReservationId"] = pc.coalesce(capacity, pick(idle, columns["ResourceId"], NO_TEXT))
        used = pick(pc.is_valid(capacity), batch.repeat("Used"), NO_TEXT)
        columns["CapacityReservationStatus"] = pick(idle, batch.repeat("Unused"), used)

    def _add_costs(self, batch: BillBatch, kind: pa.Array, cost: pa.Array, columns: dict[str, pa.Array]) -> None:
        usage = pc.equal(columns["ChargeCategory"], "Usage")
        covered, reserved = pc.equal(kind, _COVERED), pc.equal(kind, _RESERVED)
        offset = pc.or_(covered, pc.equal(kind, _NEGATION))
        fee = pc.and_(pc.equal(columns["ChargeCategory"], "Purchase"), pc.is_valid(columns["CommitmentDiscountId"]))
        fee = pc.or_(fee, pc.is_in(kind, value_set=pa.array(["rifee", *_PLAN_FEES])))
        billed = pick(offset, ZERO, cost)
        public = batch.exact("pricing/publicOnDemandCost")
        effective = pick(covered, batch.exact("savingsPlan/SavingsPlanEffectiveCost"), pick(fee, ZERO, billed))
        amount = batch.exact("lineItem/UsageAmount")
        columns["BilledCost"] = billed
        columns["EffectiveCost"] = pick(reserved, batch.exact("reservation/EffectiveCost"), effective)
        columns["ListCost"] = pick(usage, public, billed)
        columns["ContractedCost"] = pick(reserved, public, pick(covered, cost, billed))
        columns["ListUnitPrice"] = batch.exact("pricing/publicOnDemandRate")
        columns["ContractedUnitPrice"] = pick(reserved, NO_AMOUNT, batch.exact("lineItem/UnblendedRate"))
        columns["PricingQuantity"] = amount
        columns["ConsumedQuantity"] = pick(usage, amount, NO_AMOUNT)
        columns["ConsumedUnit"] = pick(usage, columns["PricingUnit"], NO_TEXT)

    def _follow_plans(self, charges: pa.Table, kind: pa.Array, cost: pa.Array) -> None:
        lines = pc.is_in(kind, value_set=pa.array([_COVERED, _NEGATION]))
        if not lines.true_count:
            return
        table = charges.select(_GROUP).append_column("cost", cost).filter(lines)
        for row in table.group_by(list(_GROUP), use_threads=False).aggregate([("cost", "sum")]).to_pylist():
            group = tuple(row[name] for name in _GROUP)
            self._open[group] = self._open.get(group, Decimal(0)) + (row["cost_sum"] or Decimal(0))

    def _list_unused(self, batch: BillBatch, kind: pa.Array, charges: pa.Table) -> pa.Table:
        """The unused part of commitments, of fee lines: a reservation's unused fees, a plan's commitment less what it covered."""
        fees = add_amounts(
            pc.fill_null(batch.exact("reservation/UnusedAmortizedUpfrontFeeForBillingPeriod"), ZERO),
            pc.fill_null(batch.exact("reservation/UnusedRecurringFee"), ZERO),
        )
        total = pc.fill_null(batch.exact("savingsPlan/TotalCommitmentToDate"), ZERO)
        rest = subtract_amounts(total, pc.fill_null(batch.exact("savingsPlan/UsedCommitment"), ZERO))
        of_plan, of_reservation = pc.equal(kind, "savingsplanrecurringfee"), pc.equal(kind, "rifee")
        amount = pick(of_plan, rest, pick(of_reservation, fees, ZERO))
        unused = pc.greater(amount, ZERO)
        rows = charges.filter(unused)
        unused = {
            "BilledCost": pa.repeat(ZERO, rows.num_rows),
            "EffectiveCost": amount.filter(unused),
            "ChargeCategory": pa.repeat("Usage", rows.num_rows),
            "ChargeFrequency": pa.repeat("Usage-Based", rows.num_rows),
            "PricingCategory": pa.repeat("Committed", rows.num_rows),
            "CommitmentDiscountStatus": pa.repeat("Unused", rows.num_rows),
        }
        emptied = ("ListCost", "ContractedCost", "PricingQuantity", "PricingUnit", "ConsumedQuantity", "ConsumedUnit")
        kept = {name: rows[name] for name in rows.column_names if name not in emptied}
        return make_charges(kept | unused, rows.num_rows)


SOURCE = make_source("aws-cur", CurDecoder)
