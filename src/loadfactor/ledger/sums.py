"""Sums of the ledger that are kept beside it: rows in the form of the ledger, many times fewer, for questions that need no more.

Rows that agree in whatever measures choose or multiply by can be added up: every measure of the sum is the sum of the measures,
seconds in which a signal was measured, coverage, cost. So a kept sum is read like the ledger, as far as it tells it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import ibis

from loadfactor.ledger.columns import ACTIVITIES, HISTOGRAM, HOLDER, KEPT_SUMS, LOCATION
from loadfactor.ledger.intervals import Expr
from loadfactor.ledger.prices import PRICE_COLUMNS
from loadfactor.ledger.states import PEAKS, SAMPLE_DIMENSIONS, WEIGHTED
from loadfactor.ledger.steps import ledger_columns

ADDITIVE: Final = ("gpu_s", *WEIGHTED.values(), *HISTOGRAM)
HIGHEST: Final = ("mem_peak_share", "temperature_peak_c")
UNCHANGED: Final = ("state", "holder", "has_source", "by_list", *SAMPLE_DIMENSIONS, *PRICE_COLUMNS, *PEAKS.values())
"""Columns of the ledger that measures choose or multiply by: rows that agree in them can be added up."""
_TOLD: Final = tuple(c for c in UNCHANGED if c != "by_list")


@dataclass(frozen=True)
class KeptSum:
    """What a kept sum is split by besides its period, and what it tells, all of them columns of the ledger.

    `unchanged` are those of `UNCHANGED`, `additive` are added up, and of `highest` is the highest value kept.
    """

    table: str
    by: tuple[str, ...]
    unchanged: tuple[str, ...] = _TOLD
    additive: tuple[str, ...] = ADDITIVE
    highest: tuple[str, ...] = HIGHEST

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns of the ledger that it tells, but for those of time."""
        return frozenset((*self.by, *self.unchanged, *self.additive, *self.highest))


KEPT: Final = (
    KeptSum(
        "ledger_by_team",
        ("team", "pool", "accelerator"),
        additive=tuple(c for c in ADDITIVE if c not in HISTOGRAM),
    ),
    KeptSum(
        "ledger_by_device",
        ("device_id", *LOCATION),
        unchanged=("state", "holder", "has_source", "measured_mask", *PRICE_COLUMNS),
        additive=("gpu_s", *(WEIGHTED[kind.column] for kind in ACTIVITIES), "energy_j"),
        highest=HIGHEST[:1],
    ),
    KeptSum(
        "ledger_by_job",
        (*(c for c in HOLDER if c != "attempt"), *LOCATION),
        highest=(*HIGHEST, "to_utc"),  # units of work ask until when a job held GPUs
    ),
    KeptSum(
        "ledger_by_device_day",
        ("device_id", *LOCATION),
        unchanged=("state", "holder", "has_source", "measured_mask"),
        additive=("gpu_s", *(WEIGHTED[kind.column] for kind in ACTIVITIES), "energy_j", *HISTOGRAM),
        highest=HIGHEST[:1],
    ),
)
"""The sums that are kept; a question is answered by the one with the fewest rows of those that tell what it reads."""


def fold(book: Expr, keys: Sequence[str], used: set[str], peaks: Sequence[str], more: Sequence[str] = ()) -> Expr:
    """A ledger with rows of one group and equal dimensions added up, `folded` rows in one: what is `used` of it, and peaks.

    `more` are columns beside those of the ledger that can be added up.

    Measures multiply by dimensions alone, so their sums are the same.
    """
    groups = [*keys, *(c for c in UNCHANGED if c in used and c not in keys)]
    columns = {
        "folded": book.count(),
        **{c: book[c].sum() for c in (*ADDITIVE, *more) if c in used},
        **{c: book[c].max() for c in peaks},
    }
    # added up in one order, sums keep their digits
    folded = book.group_by(groups).aggregate(**columns).order_by(groups) if groups else book.aggregate(**columns)
    absent = {c: of for c, of in book.schema().items() if c not in folded.columns}
    return folded.mutate(**{c: ibis.null(of) for c, of in absent.items()})


def add_up(kept: KeptSum) -> Expr:
    """A kept sum of the ledger in the table `ledger_rows`, the columns that it tells; `hour_utc` is where a period begins."""
    rows = ibis.table(ledger_columns(), name="ledger_rows")
    rows = rows.mutate(hour_utc=rows.hour_utc - rows.hour_utc % KEPT_SUMS[kept.table])
    summed = rows.group_by(["hour_utc", *kept.by, *kept.unchanged]).aggregate(
        from_utc=rows.from_utc.min(),
        **{c: rows[c].sum() for c in kept.additive},
        **{c: rows[c].max() for c in kept.highest},
    )
    return summed.select(*(c for c in ledger_columns() if c in summed.columns))
