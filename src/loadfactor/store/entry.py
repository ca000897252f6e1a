"""What becomes of rows as they enter the books: names are masked, and rules say of what experiment and team they are.

The store knows neither keys nor rules: it is given functions.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # Arrow and the sources take longer to import than most answers
    import pyarrow as pa

    from loadfactor.sources.base import Gap, Rows

ChangeBytes = Callable[[bytes], bytes]
ChangeRows = Callable[[str, "pa.Table"], "pa.Table"]
"""Rows of a table, by its name, made otherwise: as many, in their order, with their columns."""
TAGGED: Final = ("allocations", "queue_events", "charges")
"""Tables whose rows have a holder."""


@dataclass(frozen=True)
class Entry:
    """What is done to rows that enter, and to bytes that wait to become rows; None: nothing."""

    mask: ChangeRows | None = None
    tag: ChangeRows | None = None
    seal: ChangeBytes | None = None
    open: ChangeBytes | None = None
    """Undoes `seal`; what was never sealed comes back as it is."""

    def mask_item(self, item: "Rows | Gap") -> "Rows | Gap":
        """What a source yields, with names masked."""
        from loadfactor.sources.base import Gap

        if self.mask is None or isinstance(item, Gap):
            return item
        return replace(item, data=self.mask(item.table, item.data))
