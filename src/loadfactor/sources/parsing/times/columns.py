"""Columns of written times → instants: ISO 8601 with its offset, epoch milliseconds, or local time in a zone the caller names.

One column is written in one way throughout: a column where some times carry a zone and others do not is refused, because then
one half of it is wrong. Different explicit offsets are fine. What is finer than a millisecond is cut off.
"""

from datetime import tzinfo
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError
from loadfactor.sources.parsing.cells import CellPosition, find_failing
from loadfactor.sources.parsing.messages import quote
from loadfactor.sources.parsing.times.local_clock import LocalClock
from loadfactor.sources.parsing.times.stamps import OFFSET

Form = Literal["zoned", "local", "epoch"]

_ISO: Final = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?"
_PATTERNS: Final[dict[Form, str]] = {
    "zoned": _ISO + OFFSET + "$",
    "local": _ISO + "$",
    "epoch": r"^-?\d+$",
}
_SAID: Final[dict[Form, str]] = {"zoned": "with its zone", "local": "without a zone", "epoch": "in epoch milliseconds"}
_DAY: Final = r"^\d{4}-\d{2}-\d{2}$"
_FINER: Final = r"(\.\d{3})\d+"
_LOCAL_MS: Final = pa.timestamp("ms")
_UTC_MS: Final = pa.timestamp("ms", "UTC")
_SECONDS_FROM, _SECONDS_TO = 10**9, 10**10  # seconds of 2001 to 2286; as milliseconds, days early in 1970
NAME_THE_ZONE: Final = "name it with --timezone Europe/Berlin, or write …Z for UTC"


class InstantColumn:
    """One column of instants, batch by batch, in the order of the rows.

    `days` allows 2026-05-01, which is midnight UTC; `remedy` says what to do about local times without a zone.
    """

    def __init__(
        self, label: str, column: str, zone: tzinfo | None, days: bool = False, remedy: str = NAME_THE_ZONE
    ) -> None:
        self._label, self._column, self._zone, self._days, self._remedy = label, column, zone, days, remedy
        self._form: tuple[Form, int, str] | None = None  # the first cell: how it is written, its row, itself
        self._seen = False

    def from_text(self, cells: pa.Array, first_row: int) -> pa.Array:
        """Cells of text as int64 milliseconds since 1970 UTC; null stays null.

        Raises SourceError naming input, row, column and value: no time at all, no zone and none given, a mixed column, a
        local time that its zone skips or has twice.
        """
        position = CellPosition(self._label, self._column, first_row)
        cells = self._convert_days(cells, position)
        if cells.null_count == len(cells):
            return pa.nulls(len(cells), pa.int64())
        form = self._find_form(cells, position)
        if form == "epoch":
            return self.from_epoch(self._cast(cells, pa.int64(), position), first_row)
        text = pc.replace_substring_regex(cells, _FINER, r"\1")
        if form == "zoned":
            return self._cast(text, _UTC_MS, position).cast(pa.int64())
        return self.from_local(self._cast(text, _LOCAL_MS, position).cast(pa.int64()), first_row)

    def from_epoch(self, epoch_ms: pa.Array, first_row: int) -> pa.Array:
        """Whole numbers that are instants already. A column that starts out as seconds of our days is refused."""
        known = epoch_ms.drop_null()
        if len(known) and not self._seen:
            self._seen = True
            range_ms = pc.min_max(known).as_py()
            if range_ms["min"] >= _SECONDS_FROM and range_ms["max"] < _SECONDS_TO:
                index = pc.index(pc.is_valid(epoch_ms), value=True).as_py()
                position = CellPosition(self._label, self._column, first_row)
                raise position.refuse(
                    index, known[0].as_py(), "is in seconds by its size; write milliseconds or ISO 8601"
                )
        return epoch_ms

    def from_local(self, local_ms: pa.Array, first_row: int) -> pa.Array:
        """Local times, as milliseconds since 1970 by the local clock, in the caller's zone."""
        position = CellPosition(self._label, self._column, first_row)
        known = local_ms.is_valid().to_numpy(zero_copy_only=False)
        if not known.any():
            return local_ms
        plain = local_ms.fill_null(0).to_numpy()

        def written(index: int) -> str:
            return str(np.datetime64(int(plain[index]), "ms"))

        if self._zone is None:
            index = int(known.argmax())
            raise position.refuse(index, written(index), f"has no time zone; {self._remedy}")
        try:
            first, second = LocalClock(self._zone).find_candidates(plain)
        except (OverflowError, ValueError):
            raise SourceError(f"{self._label}: {self._column} holds years that no calendar reaches") from None
        for wrong, why in (
            ((first < second) & known, "comes twice"),
            ((first > second) & known, "does not exist"),
        ):
            if wrong.any():
                index = int(wrong.argmax())
                raise position.refuse(
                    index, written(index), f"{why} in {self._zone}, where the clock was set; write it with its offset"
                )
        return pa.array(first, mask=~known)

    def _convert_days(self, cells: pa.Array, position: CellPosition) -> pa.Array:
        """Days become their midnight UTC where they are allowed, and are refused where not."""
        days = pc.fill_null(pc.match_substring_regex(cells, _DAY), False)
        index = pc.index(days, value=True).as_py()
        if index < 0:
            return cells
        if not self._days:
            raise position.refuse(index, cells[index].as_py(), "is a day, not an instant; write 2026-05-01T00:00:00Z")
        return pc.if_else(days, pc.binary_join_element_wise(cells, "T00:00:00Z", ""), cells)

    def _find_form(self, cells: pa.Array, position: CellPosition) -> Form:
        """How every cell is written, the same as in the batches before."""
        rest = cells.is_null()
        for form, pattern in _PATTERNS.items():
            matches = pc.fill_null(pc.match_substring_regex(cells, pattern), False)
            index = pc.index(matches, value=True).as_py()
            if index < 0:
                continue
            here = (form, position.first_row + index, cells[index].as_py())
            if self._form is None:
                self._form = here
            if self._form[0] != form:
                one, two = sorted((self._form, here), key=lambda f: f[1])
                raise SourceError(
                    f"{self._label}: {self._column} mixes times: row {one[1]} has {quote(one[2])} {_SAID[one[0]]}, "
                    f"row {two[1]} has {quote(two[2])} {_SAID[two[0]]}; write all of them with their zone"
                )
            rest = pc.or_(rest, matches)
        index = pc.index(rest, value=False).as_py()
        if index >= 0:
            raise position.refuse(index, cells[index].as_py(), "is not a time; write 2026-05-01T12:00:00Z")
        assert self._form is not None  # a cell that is not null matched
        return self._form[0]

    def _cast(self, cells: pa.Array, target: pa.DataType, position: CellPosition) -> pa.Array:
        try:
            return pc.cast(cells, target)
        except pa.ArrowInvalid:
            index = find_failing(cells, lambda part: pc.cast(part, target))
            why = "is not a time in any calendar; write 2026-05-01T12:00:00Z"
            raise position.refuse(index, cells[index].as_py(), why) from None
