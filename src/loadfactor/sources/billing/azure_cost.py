"""Decoder of Azure cost exports: Enterprise, Microsoft Customer Agreement and pay-as-you-go; actual and amortized; any header.

Azure exports a period in two ways. The actual one says what is invoiced: commitments are purchases, usage they cover costs 0, and
its effective cost is not stated. The amortized one says what usage cost effectively and what of commitments was unused, and not
what was paid for them. A row says which of the two it is from, where the path or the rows tell; where a file holds nothing
of a commitment, both say the same. `charges.py` says which column counts where a period has both.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.sources.billing.amounts import begin_months, end_days, multiply_amounts
from loadfactor.sources.billing.bill_batch import (
    NO_AMOUNT,
    NO_TEXT,
    ZERO,
    BillBatch,
    find_azure_type,
    make_charges,
    pick,
    rename,
)
from loadfactor.sources.billing.bill_file import BillFile
from loadfactor.sources.billing.bill_reader import BillDecoder, make_source
from loadfactor.tables.charges import ACTUAL, AMORTIZED

_COST: Final = ("CostInBillingCurrency", "PreTaxCost", "ExtendedCost", "Cost")
_CURRENCY: Final = ("BillingCurrencyCode", "BillingCurrency", "Currency")
_QUANTITY: Final = ("Quantity", "UsageQuantity", "ConsumedQuantity")
_DATE: Final = ("Date", "UsageDateTime", "UsageDate")
_RESERVATION: Final = ("benefitId", "ReservationId")
_TEXTS: Final = {
    "PublisherName": ("PublisherName",),
    "InvoiceId": ("InvoiceId", "InvoiceNumber"),
    "BillingAccountId": ("BillingAccountId", "EnrollmentNumber", "SubscriptionId", "SubscriptionGuid"),
    "BillingAccountName": ("BillingAccountName",),
    "SubAccountId": ("SubscriptionId", "SubscriptionGuid"),
    "SubAccountName": ("SubscriptionName",),
    "ChargeDescription": ("ProductName", "Product", "MeterName"),
    "PricingUnit": ("UnitOfMeasure",),
    "ServiceCategory": ("ServiceFamily",),
    "ServiceName": ("MeterCategory", "ServiceName"),
    "ServiceSubcategory": ("MeterSubCategory",),
    "SkuId": ("MeterId",),
    "SkuMeter": ("MeterName",),
    "SkuPriceId": ("PartNumber", "ProductId"),
    "ResourceId": ("ResourceId", "InstanceId", "InstanceName"),
    "ResourceName": ("ResourceName",),
    "ResourceType": ("ResourceType", "ConsumedService"),
    "RegionId": ("ResourceLocation", "ResourceLocationNormalized", "MeterRegion"),
    "AvailabilityZone": ("AvailabilityZone",),
    "CommitmentDiscountName": ("benefitName", "ReservationName"),
}
_CATEGORIES: Final = {
    **dict.fromkeys(("usage", "unusedreservation", "unusedsavingsplan"), "Usage"),
    **dict.fromkeys(("purchase", "refund"), "Purchase"),
    "tax": "Tax",
    "credit": "Credit",
}
_FREQUENCIES: Final = {"usagebased": "Usage-Based", "onetime": "One-Time", "recurring": "Recurring"}
_MODELS: Final = {"ondemand": "Standard", "spot": "Dynamic", "reservation": "Committed", "savingsplan": "Committed"}


class AzureDecoder(BillDecoder):
    """Rows of a cost export as charges."""

    what = "an Azure cost export"
    needs: tuple[tuple[str, ...], ...] = (_COST, _DATE)
    month_first: bool | None = True  # as Microsoft documents its dates

    def __init__(self) -> None:
        self._dataset: str | None = None

    def open(self, file: BillFile) -> None:
        """Learn which of the two exports a file is: by its path, else by the first row that tells."""
        path = file.label.lower()
        named = [dataset for word, dataset in (("amorti", AMORTIZED), ("actual", ACTUAL)) if word in path]
        self._dataset = named[0] if len(named) == 1 else self._survey(file)
        if self._dataset == AMORTIZED:
            file.count(
                "an amortized export: BilledCost lacks what was paid for commitments; import the actual one, too"
            )

    def decode(self, batch: BillBatch) -> pa.Table:
        """These rows as charges."""
        cost, kind = batch.exact(*_COST), self._read_kind(batch)
        columns = {name: batch.text(*names) for name, names in _TEXTS.items()}
        columns["ProviderName"] = columns["InvoiceIssuerName"] = batch.repeat("Microsoft")
        columns["BillingCurrency"] = batch.currency(_CURRENCY, cost)
        columns["x_Dataset"] = batch.repeat(self._dataset)
        columns["x_ChargeType"] = batch.text("ChargeType")
        columns["x_InstanceType"] = find_azure_type(batch.text("AdditionalInfo"))
        columns["Tags"] = batch.json("Tags")
        self._add_periods(batch, columns)
        self._add_kinds(batch, kind, columns)
        self._add_costs(batch, kind, cost, columns)
        return make_charges(columns, len(batch))

    def _survey(self, file: BillFile) -> str | None:
        """The export whose rows these must be; None where none of them tells."""
        for cells in (other := BillFile(file.path)).read():
            batch = BillBatch(other, cells.cells, cells.first_row)
            if not any(batch.has(name) for name in ("PricingModel", "ChargeType", *_RESERVATION)):
                return None
            kind, cost, committed = self._read_kind(batch), batch.exact(*_COST), _find_committed(batch)
            covered = pc.and_(pc.equal(kind, "usage"), committed)
            free = pc.and_(covered, pc.equal(cost, ZERO))
            paid = pc.and_(covered, pc.not_equal(cost, ZERO))
            bought = pc.and_(pc.is_in(kind, value_set=pa.array(["purchase", "refund"])), committed)
            unused = pc.starts_with(kind, "unused")
            if pc.any(pc.or_kleene(unused, paid)).as_py():
                return AMORTIZED
            if pc.any(pc.or_kleene(bought, pc.and_kleene(free, pc.greater(batch.exact(*_QUANTITY), ZERO)))).as_py():
                return ACTUAL
        return None

    def _read_kind(self, batch: BillBatch) -> pa.Array:
        return pc.fill_null(pc.utf8_lower(batch.text("ChargeType")), "usage")

    def _add_periods(self, batch: BillBatch, columns: dict[str, pa.Array]) -> None:
        billed_from = batch.instant("BillingPeriodStartDate", "BillingPeriodStart")
        day = batch.instant(*_DATE)
        billed_from = pc.coalesce(billed_from, begin_months(day))
        columns["BillingPeriodStart"] = billed_from
        columns["BillingPeriodEnd"] = begin_months(billed_from, later=1)  # Azure writes the last day, or nothing
        columns["ChargePeriodStart"] = day
        columns["ChargePeriodEnd"] = end_days(day)

    def _add_kinds(self, batch: BillBatch, kind: pa.Array, columns: dict[str, pa.Array]) -> None:
        model = pc.utf8_lower(batch.text("PricingModel"))
        committed, unused = _find_committed(batch), pc.starts_with(kind, "unused")
        held = pc.or_(committed, unused)
        columns["ChargeCategory"] = rename(kind, _CATEGORIES, batch.repeat("Adjustment"))
        earlier = pc.less_equal(columns["ChargePeriodEnd"], columns["BillingPeriodStart"])
        columns["ChargeClass"] = pick(pc.and_(pc.equal(kind, "refund"), earlier), batch.repeat("Correction"), NO_TEXT)
        columns["ChargeFrequency"] = rename(batch.text("Frequency"), _FREQUENCIES, batch.text("Frequency"))
        committed_or_none = pick(held, batch.repeat("Committed"), NO_TEXT)
        columns["PricingCategory"] = rename(model, _MODELS, committed_or_none)
        columns["CommitmentDiscountId"] = pick(
            held, pc.coalesce(batch.text(*_RESERVATION), batch.text("ProductOrderId")), NO_TEXT
        )
        plan = pc.or_(pc.fill_null(pc.equal(model, "savingsplan"), False), pc.equal(kind, "unusedsavingsplan"))
        for name, of_plan, of_reservation in (
            ("CommitmentDiscountCategory", "Spend", "Usage"),
            ("CommitmentDiscountType", "Savings Plan", "Reservation"),
        ):
            columns[name] = pick(held, pick(plan, batch.repeat(of_plan), batch.repeat(of_reservation)), NO_TEXT)
        used = pick(pc.and_(committed, pc.equal(kind, "usage")), batch.repeat("Used"), NO_TEXT)
        columns["CommitmentDiscountStatus"] = pick(unused, batch.repeat("Unused"), used)
        idle = pc.match_substring(columns["ResourceId"], "/capacityReservationGroups/", ignore_case=True)
        columns["CapacityReservationId"] = pick(idle, columns["ResourceId"], NO_TEXT)
        columns["CapacityReservationStatus"] = pick(idle, batch.repeat("Unused"), NO_TEXT)

    def _add_costs(self, batch: BillBatch, kind: pa.Array, cost: pa.Array, columns: dict[str, pa.Array]) -> None:
        committed, unused = _find_committed(batch), pc.starts_with(kind, "unused")
        covered = pc.and_(pc.equal(kind, "usage"), committed)
        bought = pc.and_(pc.equal(columns["ChargeCategory"], "Purchase"), committed)
        spread = pc.or_(covered, unused) if self._dataset != ACTUAL else unused
        unsaid = covered if self._dataset == ACTUAL else pc.and_(covered, pc.equal(cost, ZERO))
        columns["BilledCost"] = pick(spread, ZERO, cost)
        columns["EffectiveCost"] = pick(bought, ZERO, pick(unsaid, NO_AMOUNT, cost))
        quantity = batch.exact(*_QUANTITY)
        usage = pc.and_(pc.equal(columns["ChargeCategory"], "Usage"), pc.invert(unused))
        columns["ListUnitPrice"], columns["ContractedUnitPrice"] = batch.exact("PayGPrice"), batch.exact("UnitPrice")
        # Unit prices are in the currency of the price list, where an export names one.
        listed = pc.fill_null(pc.equal(batch.text("PricingCurrency"), columns["BillingCurrency"]), True)
        by_price = pick(listed, multiply_amounts(columns["ListUnitPrice"], quantity), NO_AMOUNT)
        columns["ListCost"] = (
            batch.exact("PayGCostInBillingCurrency") if batch.has("PayGCostInBillingCurrency") else by_price
        )
        columns["ContractedCost"] = pick(listed, multiply_amounts(columns["ContractedUnitPrice"], quantity), NO_AMOUNT)
        columns["PricingQuantity"] = quantity
        columns["ConsumedQuantity"] = pick(usage, quantity, NO_AMOUNT)
        columns["ConsumedUnit"] = pick(usage, columns["PricingUnit"], NO_TEXT)


def _find_committed(batch: BillBatch) -> pa.Array:
    """Rows of a reservation or savings plan: the pricing model says so, or names none while the row names a commitment."""
    model = pc.utf8_lower(batch.text("PricingModel"))
    named = pc.is_in(model, value_set=pa.array(["reservation", "savingsplan"]))
    return pc.or_(named, pc.and_(pc.is_null(model), pc.is_valid(batch.text(*_RESERVATION))))


SOURCE = make_source("azure-cost", AzureDecoder)
