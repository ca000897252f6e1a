"""Decoder of Modal's report on a workspace, `modal billing report --json` or `--csv`: modal.com/docs/reference/cli/billing."""

from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.sources.billing.bill_batch import BillBatch
from loadfactor.sources.billing.bill_file import fold_name
from loadfactor.sources.billing.bill_reader import make_source
from loadfactor.sources.billing.rented import RentedDecoder
from loadfactor.sources.billing.tags import join_objects

_OWN: Final = ("objectid", "description", "environment", "environmentname", "intervalstart", "cost", "tags")
"""Columns of the report itself; others are tags that were asked for."""
_PARTS: Final = ("tags.", "cost_by", "resource")


class ModalDecoder(RentedDecoder):
    """A report of a workspace, an app and day (or hour) each; a tag that was asked for is a column, or inside `tags`."""

    what = "a billing report of Modal (`modal billing report --for 'last month' --json`)"
    provider, amount, starts = "Modal", "Cost", "Interval Start"
    needs: tuple[tuple[str, ...], ...] = (("Cost",), ("Interval Start",), ("Object ID",))
    texts: ClassVar = {
        "ResourceId": ("Object ID",),
        "ResourceName": ("Description",),
        "SubAccountId": ("Environment Name", "Environment"),
        "SubAccountName": ("Environment Name", "Environment"),
    }

    def read_tags(self, batch: BillBatch) -> pa.Array:
        """As `RentedDecoder`."""
        inside = batch.json("tags")
        names = [name for name in batch.cells.schema.names if not name.lower().startswith(_PARTS)]
        columns = {name: batch.text(name) for name in names if fold_name(name) not in _OWN}
        return pc.coalesce(inside, join_objects(columns)) if columns else inside


SOURCE = make_source("modal", ModalDecoder)
