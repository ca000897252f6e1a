"""Decoder of Vast.ai's charges, `GET /api/v0/charges`: docs.vast.ai/api-reference/billing/show-charges documents them."""

from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.limits import EARLIEST_MS, LATEST_MS
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.billing.bill_batch import BillBatch
from loadfactor.sources.billing.bill_reader import make_source
from loadfactor.sources.billing.rented import RentedDecoder


class VastDecoder(RentedDecoder):
    """Charges, an instance, volume or endpoint and span each: seconds since 1970."""

    what = "a list of Vast.ai's charges (what /api/v0/charges answers)"
    provider, amount, starts = "Vast.ai", "amount", "start"
    needs: tuple[tuple[str, ...], ...] = (("amount",), ("start",), ("end",), ("source",))
    texts: ClassVar = {
        "ResourceId": ("source",),
        "ResourceName": ("metadata.label",),
        "ResourceType": ("type",),
        "ChargeDescription": ("description",),
    }

    def read_start(self, batch: BillBatch) -> pa.Array:
        """As `RentedDecoder`."""
        return _read_seconds(batch, "start")

    def read_end(self, start: pa.Array, _batch: BillBatch) -> pa.Array:
        """As `RentedDecoder`."""
        return pc.coalesce(_read_seconds(_batch, "end"), start)

    def read_tags(self, batch: BillBatch) -> pa.Array:
        """As `RentedDecoder`."""
        return batch.tagged("metadata.")


def _read_seconds(batch: BillBatch, name: str) -> pa.Array:
    """Seconds since 1970 as ms. Raises SourceError where a text is none of the years that books know."""
    texts = batch.text(name)
    are_numbers = pc.fill_null(pc.match_substring_regex(texts, r"^[0-9]{9,11}(\.[0-9]+)?$"), False)
    at_ms = pc.cast(
        pc.round(pc.multiply(pc.cast(pc.if_else(are_numbers, texts, None), pa.float64()), MS_PER_S)), pa.int64()
    )
    is_right = pc.and_(pc.greater_equal(at_ms, EARLIEST_MS), pc.less_equal(at_ms, LATEST_MS))
    wrong = pc.index(pc.and_(pc.is_valid(texts), pc.invert(pc.fill_null(is_right, False))), value=True).as_py()
    if wrong >= 0:
        raise batch.position(name).refuse(wrong, texts[wrong].as_py(), "is no time in seconds since 1970")
    return at_ms


SOURCE = make_source("vast", VastDecoder)
