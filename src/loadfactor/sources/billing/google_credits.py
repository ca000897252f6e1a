"""Credits of a Google billing export: discounts on a usage line, which lower its cost, and credits that are lines of their own."""

import json
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.sources.billing.amounts import AMOUNT, AmountNotes, parse_amounts
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


def parse_credits(cells: pa.Array, position: CellPosition, notes: AmountNotes) -> Credits:
    """Credits as lists of structs (Parquet) or as JSON lists of objects (text).

    Raises SourceError naming file, row, column and value of what is neither, or of an amount that is none.
    """
    if not pa.types.is_nested(cells.type):
        cells = _parse_text(cells, position)
    rows = pc.cast(pc.list_parent_indices(cells), pa.int64())
    parts = pc.list_flatten(cells)
    known = {f.name for f in parts.type} if pa.types.is_struct(parts.type) else set()
    amount, kind, identity, full_name, name = (
        pc.struct_field(parts, f) if f in known else pa.nulls(len(parts), pa.string()) for f in _FIELDS
    )
    amounts = pc.fill_null(parse_amounts(amount, position, notes), pa.scalar(0, AMOUNT))
    return Credits(rows, amounts, kind, pc.coalesce(identity, full_name, name), pc.coalesce(full_name, name))


def _parse_text(cells: pa.Array, position: CellPosition) -> pa.Array:
    encoded = cells.dictionary_encode()
    lists: list[list[dict[str, str | None]] | None] = []
    for number, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            lists.append([_read_credit(item) for item in json.loads(text, parse_float=str, parse_int=str)])
        except (ValueError, TypeError, AttributeError, RecursionError):
            index = pc.index(encoded.indices, pa.scalar(number, encoded.indices.type)).as_py()
            raise position.refuse(
                index, text, 'is no list of credits; write [{"amount": -1.5, "type": "DISCOUNT"}]'
            ) from None
    entry = pa.struct([(name, pa.string()) for name in _FIELDS])
    return pa.array(lists, pa.list_(entry)).take(encoded.indices)


def _read_credit(item: dict[str, Any]) -> dict[str, str | None]:
    return {name: None if item.get(name) is None else str(item[name]) for name in _FIELDS}


def _scatter(rows: pa.Array, values: pa.Array, count: int) -> pa.Array:
    """Values by the row each belongs to; the first of a row, null where there is none."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    return (
        values.take(pc.index_in(pa.array(range(count), pa.int64()), value_set=rows))
        if len(rows)
        else pa.nulls(count, values.type)
    )
