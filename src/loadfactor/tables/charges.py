"""The table of charges: what a bill says, under the column names of FOCUS, amounts exact.

FOCUS: the FinOps Open Cost and Usage Specification, focus.finops.org; the columns of 1.2 and the allocation columns of 1.3.
The four costs are never added to one another. A sum of one of them is taken over rows of one currency.
"""

from typing import Final

from loadfactor.tables.columns import Column, Table

COSTS: Final = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")
"""The four columns of money: on the invoice; with purchases spread over what they cover; at public prices; at negotiated prices."""

DELIVERY: Final = ("ProviderName", "BillingAccountId", "BillingPeriodStart", "x_Dataset")
"""Identity of a delivery: a later one with the same four cells (empty ones too) replaces every row of the earlier one."""

CATEGORIES: Final = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
"""Kinds of charges, as FOCUS names them."""

ACTUAL, AMORTIZED = "actual", "amortized"
"""The two exports that Azure makes of one period: purchases as invoiced; purchases spread over what they cover.

Where a period of an account has both, BilledCost is read from the rows of the first and EffectiveCost from those of the second.
"""


def _text(name: str, meaning: str, empty: str = "not said") -> Column:
    return Column(name, "text", meaning, empty)


def _exact(name: str, meaning: str, empty: str = "not said") -> Column:
    return Column(name, "exact", meaning, empty)


_WHO_BILLS = (
    _text("ProviderName", "who provides it (ServiceProviderName since FOCUS 1.3)"),
    _text("HostProviderName", "whose infrastructure it runs on"),
    _text("PublisherName", "who made it"),
    _text("InvoiceIssuerName", "who sends the invoice"),
    _text("InvoiceId", "the invoice", "not invoiced yet"),
    _text("BillingAccountId", "the account the invoice goes to"),
    _text("BillingAccountName", "its name"),
    _text("SubAccountId", "AWS account, Azure subscription or Google project"),
    _text("SubAccountName", "its name"),
    _text("BillingCurrency", "currency of the costs", "no cost in the row"),
    Column("BillingPeriodStart", "instant", "start of the period it is invoiced in", "not said"),
    Column("BillingPeriodEnd", "instant", "end of that period, not part of it", "not said"),
    Column("ChargePeriodStart", "instant", "start of what is charged"),
    Column("ChargePeriodEnd", "instant", "end of what is charged, not part of it", "not said"),
)
_WHAT_KIND = (
    Column("ChargeCategory", "text", "kind of charge", "not said", CATEGORIES),
    _text("ChargeClass", "Correction: restates a period that was invoiced before", "a charge of its period"),
    _text("ChargeFrequency", "One-Time, Recurring or Usage-Based"),
    _text("ChargeDescription", "the provider's words"),
)
_MONEY = (
    _exact("BilledCost", "what is invoiced"),
    _exact("EffectiveCost", "with purchases spread over what they cover; 0 on a purchase that covers later usage"),
    _exact("ListCost", "at public prices"),
    _exact("ContractedCost", "at negotiated prices, before commitments"),
    _exact("ListUnitPrice", "public price of a pricing unit"),
    _exact("ContractedUnitPrice", "negotiated price of a pricing unit"),
    _text("PricingCategory", "Standard, Dynamic (spot), Committed or Other"),
    _exact("PricingQuantity", "amount that is priced"),
    _text("PricingUnit", "its unit"),
    _exact("ConsumedQuantity", "amount that was used", "nothing was used"),
    _text("ConsumedUnit", "its unit"),
)
_OF_WHAT = (
    _text("ServiceCategory", "Compute, Storage, …"),
    _text("ServiceSubcategory", "finer than that"),
    _text("ServiceName", "the service"),
    _text("SkuId", "what is sold"),
    _text("SkuMeter", "what of it is metered"),
    _text("SkuPriceId", "its price"),
    _text("SkuPriceDetails", "properties of it, as a JSON object"),
    _text("ResourceId", "the provider's id of what was used", "of no resource"),
    _text("ResourceName", "its name"),
    _text("ResourceType", "its type"),
    _text("RegionId", "where"),
    _text("RegionName", "its name"),
    _text("AvailabilityZone", "where in the region"),
    _text("Tags", "as a JSON object, keys sorted", "none"),
    _text("CommitmentDiscountId", "the reservation or savings plan", "of no commitment"),
    _text("CommitmentDiscountName", "its name"),
    _text("CommitmentDiscountCategory", "Usage or Spend"),
    _text("CommitmentDiscountType", "the provider's word for it"),
    _text("CommitmentDiscountStatus", "Used, or Unused: paid for and not used", "a purchase, or of no commitment"),
    _exact("CommitmentDiscountQuantity", "amount of it that was bought or used"),
    _text("CommitmentDiscountUnit", "its unit"),
    _text("CapacityReservationId", "the capacity reservation", "of none"),
    _text("CapacityReservationStatus", "Used, or Unused: reserved and not used", "of none"),
    _text("AllocatedMethodId", "how a shared charge was split", "not split"),
    _text("AllocatedMethodDetails", "the split, as a JSON object", "not split"),
    _text("AllocatedResourceId", "the share's resource", "not split"),
    _text("AllocatedResourceName", "its name", "not split"),
    _text("AllocatedTags", "its tags, as a JSON object", "not split"),
    _text("x_InstanceType", "the instance type, where the bill tells it"),
    _text("x_ChargeType", "the provider's own word for the kind of charge"),
    Column("x_Dataset", "text", "which of two exports of the same charges", "the only one", (ACTUAL, AMORTIZED)),
)

_WHO_PAYS = (
    _text("team", "the team that pays, as the row's tags or rules of tagging say"),
    _text("project", "the project it belongs to"),
    _text("experiment_id", "the experiment it is for", "not tagged"),
    _text("purpose", "training, serving, notebook, …"),
    _text("user", "who asked for it"),
    _text(
        "original_holder",
        "what of these the tags said, as a JSON object, where rules say otherwise",
        "as the tags said",
    ),
)

CHARGES: Final = Table("charges", "the bill says", DELIVERY, _WHO_BILLS + _WHAT_KIND + _MONEY + _OF_WHAT + _WHO_PAYS)
