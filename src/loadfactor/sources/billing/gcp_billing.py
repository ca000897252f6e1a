"""Decoder of Google Cloud's billing export (standard or detailed): Parquet as BigQuery writes it, or CSV with flat names.

What Google writes and what FOCUS means by it:
- Discounts stand beside usage as credits. Those that are its price (committed and sustained use, negotiated) lower its billed
  and effective cost; promotions and free tiers become lines of their own with their sign.
- The fee of a commitment is a line of its own. Google does not say which usage it pays for, so it keeps its cost as effective cost,
  and usage that a commitment covers is effective net of that discount: nothing is counted twice.
"""

import json
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.sources.billing.amounts import AMOUNT, add_amounts, begin_months, parse_amounts
from loadfactor.sources.billing.bill_batch import (
    NO_AMOUNT,
    NO_TEXT,
    BillBatch,
    find_google_type,
    make_charges,
    pick,
    rename,
)
from loadfactor.sources.billing.bill_file import BillFile
from loadfactor.sources.billing.bill_reader import BillDecoder, make_source
from loadfactor.sources.parsing.cells import CellPosition

_COMMITTED: Final = {"COMMITTED_USAGE_DISCOUNT": "Usage", "COMMITTED_USAGE_DISCOUNT_DOLLAR_BASE": "Spend"}
_DISCOUNTS: Final = (
    *_COMMITTED,
    "FEE_UTILIZATION_OFFSET",
    "SUSTAINED_USAGE_DISCOUNT",
    "DISCOUNT",
    "RESELLER_MARGIN",
    "SUBSCRIPTION_BENEFIT",
)
"""Types of credits that are the price of the usage they stand beside; all others (promotions, free tier) are gifts."""
_FIELDS: Final = ("amount", "type", "id", "full_name", "name")


@dataclass(frozen=True)
class Credits:
    """The credits of a batch, one after the other, with the row of each."""

    rows: pa.Array  # int64, rising
    amounts: pa.Array  # exact, negative where they lower a bill
    kinds: pa.Array
    ids: pa.Array
    names: pa.Array

    @property
    def discounts(self) -> pa.Array:
        """Which of them are discounts."""
        return pc.fill_null(pc.is_in(self.kinds, value_set=pa.array(_DISCOUNTS)), False)

    def sum_discounts(self, count: int) -> pa.Array:
        """The discounts of each of `count` rows together; 0 where there is none."""
        mine = self.discounts
        sums = pa.table({"row": self.rows.filter(mine), "amount": self.amounts.filter(mine)}).group_by(
            "row", use_threads=False
        )
        found = sums.aggregate([("amount", "sum")])
        return _scatter(found["row"], pc.cast(found["amount_sum"], AMOUNT), count).fill_null(pa.scalar(0, AMOUNT))

    def find_commitments(self, count: int) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Id, name and category (Usage or Spend) of the commitment that covers each of `count` rows; the first where several do."""
        mine = pc.fill_null(pc.is_in(self.kinds, value_set=pa.array(list(_COMMITTED))), False)
        rows, kinds = self.rows.filter(mine), self.kinds.filter(mine)
        index = pc.index_in(kinds, value_set=pa.array(list(_COMMITTED)))
        categories = pa.array(list(_COMMITTED.values())).take(index)
        ids, names = self.ids.filter(mine), self.names.filter(mine)
        return tuple(_scatter(rows, values, count) for values in (ids, names, categories))


def _read_credits(batch: BillBatch) -> Credits:
    """Credits as lists of structs (Parquet) or as JSON lists of objects (text).

    Raises SourceError naming file, row, column and value of what is neither, or of an amount that is none.
    """
    position = batch.position("credits")
    cells = batch.lists("credits")
    if cells is None:
        cells = pa.nulls(len(batch), pa.list_(pa.struct([("amount", pa.string())])))
    elif not pa.types.is_nested(cells.type):
        cells = _parse_text(cells, position)
    rows = pc.cast(pc.list_parent_indices(cells), pa.int64())
    parts = pc.list_flatten(cells)
    known = {f.name for f in parts.type} if pa.types.is_struct(parts.type) else set()
    amount, kind, identity, full_name, name = (
        pc.struct_field(parts, f) if f in known else pa.nulls(len(parts), pa.string()) for f in _FIELDS
    )
    amounts = pc.fill_null(parse_amounts(amount, position, batch.file.notes), pa.scalar(0, AMOUNT))
    return Credits(rows, amounts, kind, pc.coalesce(identity, full_name, name), pc.coalesce(full_name, name))


def _parse_text(cells: pa.Array, position: CellPosition) -> pa.Array:
    encoded = cells.dictionary_encode()
    lists: list[list[dict[str, str | None]] | None] = []
    for number, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            lists.append(
                [
                    {name: None if item.get(name) is None else str(item[name]) for name in _FIELDS}
                    for item in json.loads(text, parse_float=str, parse_int=str)
                ]
            )
        except (ValueError, TypeError, AttributeError, RecursionError):
            index = pc.index(encoded.indices, pa.scalar(number, encoded.indices.type)).as_py()
            raise position.refuse(
                index, text, 'is no list of credits; write [{"amount": -1.5, "type": "DISCOUNT"}]'
            ) from None
    entry = pa.struct([(name, pa.string()) for name in _FIELDS])
    return pa.array(lists, pa.list_(entry)).take(encoded.indices)


def _scatter(rows: pa.Array, values: pa.Array, count: int) -> pa.Array:
    """Values by the row each belongs to; the first of a row, null where there is none."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    return (
        values.take(pc.index_in(pa.array(range(count), pa.int64()), value_set=rows))
        if len(rows)
        else pa.nulls(count, values.type)
    )


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


class GoogleDecoder(BillDecoder):
    """Rows of a billing export as charges."""

    what = "a Google Cloud billing export"
    needs: tuple[tuple[str, ...], ...] = (("cost",), ("usage_start_time",))

    def open(self, file: BillFile) -> None:
        """Say when credits, which lower the bill, are not in the file."""
        if not any(name.split(".")[0].lower() == "credits" for name in file.names):
            file.count("no column credits; costs stand before discounts and credits")

    def decode(self, batch: BillBatch) -> pa.Table:
        """These rows as charges, and their credits. SourceError names file, row, column and value of what cannot be read."""
        cost = batch.exact("cost")
        credits_ = _read_credits(batch)
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
    own = {
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
    return make_charges(kept | own, count)


SOURCE = make_source("gcp-billing", GoogleDecoder)
