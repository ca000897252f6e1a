"""What decoders of bills share whose rows are what one pod, instance or app cost in an interval, in US dollars, and no more.

Nothing was bought in advance there: what was billed is what it cost effectively.
"""

from itertools import pairwise
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.units import MS_PER_DAY
from loadfactor.sources.billing.amounts import begin_months
from loadfactor.sources.billing.bill_batch import BillBatch, make_charges
from loadfactor.sources.billing.bill_file import BillFile
from loadfactor.sources.billing.bill_reader import BillDecoder

_CURRENCY: Final = "USD"
_MONTH_MS: Final = 28 * MS_PER_DAY


class RentedDecoder(BillDecoder):
    """What all of them share: an amount, a start, and how long the intervals of a file are."""

    provider: str
    amount: str
    starts: str
    texts: ClassVar[dict[str, tuple[str, ...]]]

    def __init__(self) -> None:
        self._step_ms = MS_PER_DAY

    def open(self, file: BillFile) -> None:
        """Learn how long the intervals of a file are: as far as its nearest starts are apart, at most a day.

        More than a day only where something ran for longer in one of them; else days between two rows are days without a row.
        """
        file.currency = file.currency or _CURRENCY
        starts: set[int] = set()
        longest_ms = 0.0
        for cells in (other := BillFile(file.path)).read():
            batch = BillBatch(other, cells.cells, cells.first_row)
            starts |= {at for at in self.read_start(batch).to_pylist() if at is not None}
            longest_ms = max(longest_ms, *(float(ran) for ran in self.read_run_ms(batch).to_pylist() if ran), 0.0)
        apart_ms = min((later - at for at, later in pairwise(sorted(starts))), default=MS_PER_DAY)
        self._step_ms = apart_ms if longest_ms > MS_PER_DAY else min(apart_ms, MS_PER_DAY)

    def read_run_ms(self, batch: BillBatch) -> pa.Array:
        """How long what a row bills ran in its interval, ms, where the bill says that."""
        return batch.repeat(None)

    def read_start(self, batch: BillBatch) -> pa.Array:
        """When the interval of each row began, ms UTC."""
        return batch.instant(self.starts)

    def read_end(self, start: pa.Array, _batch: BillBatch) -> pa.Array:
        """When it ended."""
        if self._step_ms >= _MONTH_MS:
            return begin_months(start, later=1)
        return pc.add(start, self._step_ms)

    def read_tags(self, batch: BillBatch) -> pa.Array:
        """What its owner wrote to it."""
        return batch.json("tags")

    def decode(self, batch: BillBatch) -> pa.Table:
        """These rows as charges."""
        start, cost = self.read_start(batch), batch.exact(self.amount)
        columns = {name: batch.text(*names) for name, names in self.texts.items()}
        columns |= {
            **{name: batch.repeat(self.provider) for name in ("ProviderName", "PublisherName", "InvoiceIssuerName")},
            "BillingAccountId": batch.repeat(self.provider),  # none of them names it
            "BillingCurrency": batch.currency((), cost),
            "BillingPeriodStart": begin_months(start),
            "BillingPeriodEnd": begin_months(start, later=1),
            "ChargePeriodStart": start,
            "ChargePeriodEnd": self.read_end(start, batch),
            "ChargeCategory": batch.repeat("Usage"),
            "ServiceCategory": batch.repeat("AI and Machine Learning"),
            "BilledCost": cost,
            "EffectiveCost": cost,
            "Tags": self.read_tags(batch),
        }
        return make_charges(columns, len(batch))
