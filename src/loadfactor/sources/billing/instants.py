"""Times of bills → instants: ISO 8601, days with slashes, 20230901. Bills count in UTC, so what carries no zone is UTC.

FOCUS, AWS, Azure and Google all state their times in UTC; a zone that is written is obeyed.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_DAY
from loadfactor.sources.parsing.cells import CellPosition
from loadfactor.sources.parsing.messages import quote

_UTC_MS: Final = pa.timestamp("ms", "UTC")
_LOCAL_MS: Final = pa.timestamp("ms")
SLASHED: Final = r"^\s*[0-9]{1,2}/[0-9]{1,2}/[0-9]"
_SLASHED: Final = re.compile(
    r"([0-9]{1,2})/([0-9]{1,2})/([0-9]{4}|[0-9]{2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]+)?)?(?: ?([AaPp])[Mm])?)?Z?"
)
_COMPACT: Final = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})?")
_ZONE_WORD: Final = re.compile(r" ?(?:UTC|GMT)$")
_LAST_MONTH: Final = 12
_HALF_DAY: Final = 12
_CENTURY: Final = 2000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class DayOrder:
    """Whether 5/1/25 is a day in May (month first) or in January, in one file; None: not known yet."""

    month_first: bool | None = None
    evidence: str = ""

    def learn(self, label: str, days: Iterable[str], begins_month: bool = False) -> None:
        """Learn from days as written; `begins_month`: they are starts of billing periods, which begin with a month.

        Raises SourceError when one day has its month first and another one its day.
        """
        for day in days:
            found = _SLASHED.fullmatch(day.strip())
            if not found:
                continue
            one, two = int(found[1]), int(found[2])
            order = None
            if max(one, two) > _LAST_MONTH:
                order = two > _LAST_MONTH
            elif begins_month and one != two and 1 in (one, two):
                order = two == 1
            if order is None:
                continue
            if self.month_first is None:
                self.month_first, self.evidence = order, day
            elif self.month_first != order and max(one, two) > _LAST_MONTH:
                raise SourceError(
                    f"{label} mixes days: {quote(self.evidence)} has its {'month' if self.month_first else 'day'} first, "
                    f"{quote(day)} its {'month' if order else 'day'}; write 2025-05-01"
                )


def is_ambiguous(day: str) -> bool:
    """True for a day with slashes that is another day when day and month change places."""
    found = _SLASHED.fullmatch(day.strip())
    return found is not None and int(found[1]) != int(found[2]) and max(int(found[1]), int(found[2])) <= _LAST_MONTH


def parse_instants(cells: pa.Array, position: CellPosition, order: DayOrder) -> pa.Array:
    """Cells as int64 milliseconds since 1970 UTC; null stays null. Finer than a millisecond is cut off.

    Raises SourceError naming file, row, column and value of what is no time.
    """
    kind = cells.type
    if pa.types.is_timestamp(kind):
        return pc.cast(pc.cast(cells, pa.timestamp("ms", kind.tz), safe=False), pa.int64())
    if pa.types.is_date(kind):
        return pc.cast(pc.cast(cells, _LOCAL_MS), pa.int64())
    text = pc.cast(cells, pa.string())
    for form in (_UTC_MS, _LOCAL_MS):
        try:
            return pc.cast(pc.cast(text, form), pa.int64())
        except pa.ArrowInvalid:
            continue
    encoded = text.dictionary_encode()
    instants: list[int | None] = []
    for number, value in enumerate(encoded.dictionary.to_pylist()):
        try:
            instants.append(_read(value.strip(), order) if value.strip() else None)
        except ValueError:
            index = pc.index(encoded.indices, pa.scalar(number, encoded.indices.type)).as_py()
            raise position.refuse(index, value, "is not a time; write 2026-05-01T12:00:00Z") from None
    return pa.array(instants, pa.int64()).take(encoded.indices)


def begin_months(instants: pa.Array, later: int = 0) -> pa.Array:
    """The start of each instant's month in UTC, or of a month so many later; int64 milliseconds."""
    known = instants.is_valid().to_numpy(zero_copy_only=False)
    ms = instants.fill_null(0).to_numpy().astype("datetime64[ms]")
    months = ms.astype("datetime64[M]") + np.timedelta64(later, "M")
    return pa.array(months.astype("datetime64[ms]").astype(np.int64), mask=~known)


def end_days(instants: pa.Array) -> pa.Array:
    """The midnight after the day of each instant; int64 milliseconds."""
    return pc.multiply(pc.add(pc.divide(instants, MS_PER_DAY), 1), MS_PER_DAY)  # whole days, as bills are of after 1970


def list_slashed(cells: pa.Array) -> Sequence[str]:
    """The distinct days with slashes among these cells of text."""
    distinct = pc.unique(cells)
    found: list[str] = distinct.filter(pc.fill_null(pc.match_substring_regex(distinct, SLASHED), False)).to_pylist()
    return found


def _read(text: str, order: DayOrder) -> int:
    if found := _SLASHED.fullmatch(text):
        one, two, year = int(found[1]), int(found[2]), int(found[3])
        month, day = (one, two) if order.month_first is not False else (two, one)
        hour = int(found[4] or 0)
        if found[7]:
            if not 1 <= hour <= _HALF_DAY:
                raise ValueError
            hour = hour % _HALF_DAY + (_HALF_DAY if found[7] in "Pp" else 0)
        year += _CENTURY if len(found[3]) == len("25") else 0
        when = datetime(year, month, day, hour, int(found[5] or 0), int(found[6] or 0), tzinfo=UTC)
    elif found := _COMPACT.fullmatch(text):
        when = datetime(int(found[1]), int(found[2]), int(found[3] or 1), tzinfo=UTC)
    else:
        when = datetime.fromisoformat(_ZONE_WORD.sub("", text))
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
