"""Local times without a zone → instants: in the caller's zone, and in the hour that comes twice by the order of the rows."""

import calendar
import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_HOUR, MS_PER_S, NS_PER_S
from loadfactor.sources.parsing.cells import CellPosition, find_failing, quote

Instants = NDArray[np.int64]
_QUANTUM_MS: Final = MS_PER_HOUR // 4  # zones change their offset at quarters of an hour
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local on purpose
_CACHE_MAX: Final = 100_000


class _Above(NamedTuple):
    local_ms: int
    second: bool  # of the second pass of a repeated hour
    repeated: bool  # of either pass


class LocalClock:
    """Turns the local times of one log into instants, block by block, in the order of the rows.

    Where the clock is set back an hour comes twice: a row belongs to the pass of the row above it, until the clock jumps back.
    Where the clock is set forward the skipped times do not exist.
    """

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self.guessed = 0  # rows in a repeated hour that nothing places; taken for the first pass
        self._last: _Above | None = None
        self._offsets: dict[int, tuple[int, int]] = {}

    def convert(self, local_ms: Instants) -> tuple[Instants, NDArray[np.bool_]]:
        """Instants (ms since 1970 UTC) of local times (ms since 1970 local), and whether each of them exists."""
        if not len(local_ms):
            return local_ms, np.ones(0, dtype=bool)
        first, second = self.find_candidates(local_ms)
        utc = first.copy()
        twice = np.flatnonzero(second > first)
        if len(twice):
            self._place(local_ms, utc, first, second, twice)
        self._last = _Above(int(local_ms[-1]), bool(utc[-1] != first[-1]), bool(second[-1] > first[-1]))
        return utc, second >= first

    def find_candidates(self, local_ms: Instants) -> tuple[Instants, Instants]:
        """Both instants (ms since 1970 UTC) that each local time can mean: equal for almost all, the earlier one first where
        the clock is set back, and the later one first where it is set forward and the local time does not exist."""
        each = local_ms // _QUANTUM_MS
        begins = np.append(True, each[1:] != each[:-1])[: len(each)]  # rows in the order of time come in few runs
        quanta, inverse = np.unique(each[begins], return_inverse=True)
        offsets = np.array([self._offset(int(q)) for q in quanta], dtype=np.int64).reshape(-1, 2)
        pairs = offsets[inverse][np.cumsum(begins) - 1]
        return local_ms - pairs[:, 0], local_ms - pairs[:, 1]

    def _offset(self, quantum: int) -> tuple[int, int]:
        """UTC offsets in ms of the two instants a local time can mean; equal but where the clock is set."""
        found = self._offsets.get(quantum)
        if found is None:
            if len(self._offsets) >= _CACHE_MAX:
                self._offsets.clear()
            at = (_EPOCH + timedelta(milliseconds=quantum * _QUANTUM_MS)).replace(tzinfo=self.zone)
            before, after = at.replace(fold=0).utcoffset(), at.replace(fold=1).utcoffset()
            ms = timedelta(milliseconds=1)
            found = self._offsets[quantum] = ((before or timedelta()) // ms, (after or timedelta()) // ms)
        return found

    def _place(
        self, local: Instants, utc: Instants, first: Instants, second: Instants, twice: NDArray[np.intp]
    ) -> None:
        """Decides the rows of a repeated hour, writing into `utc`."""
        start = 0
        if self._last is None and twice[0] == 0:
            run = int(np.argmax(np.append(np.diff(twice) > 1, True))) + 1  # the log begins inside the repeated hour
            back = np.diff(first[:run]) < -(second[0] - first[0]) // 2
            if not back.any():
                if run == len(first):
                    self.guessed += run
                    return
                if first[run] - second[run - 1] < second[0] - first[0]:  # what follows joins on to the second pass
                    utc[:run] = second[:run]
                start = run
            else:
                start = 1
        inside = np.zeros(len(local), dtype=bool)
        inside[twice] = True
        for i in twice[start:]:
            above = (
                _Above(int(local[i - 1]), bool(utc[i - 1] != first[i - 1]), bool(inside[i - 1])) if i else self._last
            )
            if above is None:
                continue
            margin = (second[i] - first[i]) // 2 if above.repeated else 0
            if above.second or local[i] < above.local_ms - margin:
                utc[i] = second[i]


OFFSET: Final = r"(?:Z|[+-]\d{2}(?::?\d{2})?)"
EPOCH_MS_DIGITS: Final = 13  # of the milliseconds since 1970 in our days
_STAMP: Final = re.compile(
    r"(?P<year>19[7-9]\d|2[01]\d\d)[/-]?(?P<month>\d\d)[/-]?(?P<day>\d\d)[ T]+(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    rf"(?:[.,](?P<fraction>\d{{1,9}}))?\s*(?P<zone>UTC|{OFFSET})?"
)
_CTIME: Final = re.compile(
    r"(?:\w{3},? )?(?P<month>[A-Z][a-z]{2})\s+(?P<day>\d{1,2})\s+(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)\s+"
    r"(?P<year>19[7-9]\d|2[01]\d\d)"
)
_SLASHED: Final = r"^(19[7-9]|2[01][0-9])[0-9]/[0-9]{2}/[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,3})?$"
_MONTHS: Final = {name: month for month, name in enumerate(calendar.month_abbr) if name}
SECONDS_BELOW: Final = 10 ** (EPOCH_MS_DIGITS - 2)  # an epoch time smaller than this is in seconds
EPOCH_MS_BELOW: Final = 10**EPOCH_MS_DIGITS


class Stamp(NamedTuple):
    """A time as written: nanoseconds since 1970, of UTC where the zone is known, else of the local clock."""

    at_ns: int
    zoned: bool


def parse_stamp(text: str) -> Stamp | None:
    """The time in a text with seconds: ISO 8601, `2024/01/31 12:34:56.789`, `20240131 12:34:56`, ctime; None when it is none.

    >>> parse_stamp("2024/01/31 12:34:56.789")
    Stamp(at_ns=1706704496789000000, zoned=False)
    >>> parse_stamp("2024-01-31T12:34:56+01:00"), parse_stamp("[N/A]")
    (Stamp(at_ns=1706700896000000000, zoned=True), None)
    >>> parse_stamp("Wed Jan 31 12:34:56 2024") == parse_stamp("20240131 12:34:56")
    True
    """
    found = _STAMP.fullmatch(text) or _CTIME.fullmatch(" ".join(text.split()))
    if found is None:
        return None
    part = found.groupdict()
    month = _MONTHS.get(part["month"]) or (int(part["month"]) if part["month"].isdigit() else 0)
    day, hour, minute, second = (int(part[name]) for name in ("day", "hour", "minute", "second"))
    try:
        at = datetime(int(part["year"]), month, day, hour, minute, second, 0, UTC)  # local or not, as it stands
    except ValueError:
        return None
    at_ns = int(at.timestamp()) * NS_PER_S + int((part.get("fraction") or "0").ljust(9, "0"))
    zone = part.get("zone")
    if not zone or zone in ("Z", "UTC"):
        return Stamp(at_ns, bool(zone))
    ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:].removeprefix(":") or 0))
    ahead_ns = ahead // timedelta(seconds=1) * NS_PER_S
    return Stamp(at_ns + ahead_ns if zone[0] == "-" else at_ns - ahead_ns, True)


def parse_slashed_ms(texts: pa.Array) -> pa.Array | None:
    """Many local times at once, in ms since 1970, when each is written `2024/01/31 12:34:56.789`; None when one is not."""
    if len(texts) == 0 or not pc.all(pc.match_substring_regex(texts, _SLASHED)).as_py():
        return None
    try:
        return pc.cast(pc.cast(pc.replace_substring(texts, "/", "-"), pa.timestamp("ms")), pa.int64())
    except pa.ArrowInvalid:  # the 31st of February
        return None


def parse_epoch_ms(text: str) -> int | None:
    """Milliseconds since 1970 of a number of seconds (OpenMetrics) or of milliseconds (Prometheus); its size says which.

    >>> parse_epoch_ms("1700000000123"), parse_epoch_ms("1700000000.5"), parse_epoch_ms("soon")
    (1700000000123, 1700000000500, None)
    """
    try:
        at = int(text) if text.isdigit() else float(text)
    except ValueError:
        return None
    if not 0 <= at < EPOCH_MS_BELOW:  # also when it is NaN
        return None
    return int(at) if at >= SECONDS_BELOW else round(at * MS_PER_S)


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
