"""When was each row taken? Local times of nvidia-smi, and instants that carry their zone, to milliseconds since 1970 UTC."""

import calendar
import re
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.errors import SourceError
from loadfactor.sources.nvidia_smi.cells import Cells
from loadfactor.sources.parsing.gaps import Gaps
from loadfactor.sources.parsing.localtime import LocalClock
from loadfactor.units import MS_PER_S

MISSING: Final = np.iinfo(np.int64).min
_STAMP: Final = re.compile(
    r"(?P<year>19[7-9]\d|2[01]\d\d)[/-]?(?P<month>\d\d)[/-]?(?P<day>\d\d)[ T]+(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"(?:[.,](?P<fraction>\d{1,9}))?\s*(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?"
)
_USUAL: Final = r"^(19[7-9]|2[01][0-9])[0-9]/[0-9]{2}/[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,3})?$"
_CTIME: Final = re.compile(
    r"(?:\w{3},? )?(?P<month>[A-Z][a-z]{2})\s+(?P<day>\d{1,2})\s+(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)\s+"
    r"(?P<year>19[7-9]\d|2[01]\d\d)"
)
_MONTHS: Final = {name: month for month, name in enumerate(calendar.month_abbr) if name}


def parse(text: str) -> tuple[int, bool] | None:
    """Milliseconds since 1970, and whether they are UTC (else local); None when the text is no time.

    >>> parse("2024/01/31 12:34:56.789")
    (1706704496789, False)
    >>> parse("2024-01-31T12:34:56+01:00"), parse("Wed Jan 31 12:34:56 2024"), parse("[N/A]")
    ((1706700896000, True), (1706704496000, False), None)
    """
    found = _STAMP.fullmatch(text) or _CTIME.fullmatch(" ".join(text.split()))
    if found is None:
        return None
    part = found.groupdict()
    month = _MONTHS.get(part["month"]) or (int(part["month"]) if part["month"].isdigit() else 0)
    try:
        at = datetime(  # local or not, the fields are read as they stand
            int(part["year"]),
            month,
            int(part["day"]),
            int(part["hour"]),
            int(part["minute"]),
            int(part["second"]),
            0,
            UTC,
        )
    except ValueError:
        return None
    ms = int(at.timestamp()) * MS_PER_S + int((part.get("fraction") or "0").ljust(3, "0")[:3])
    zone = part.get("zone")
    if not zone:
        return ms, False
    if zone in ("Z", "UTC"):
        return ms, True
    ahead_ms = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:])) // timedelta(milliseconds=1)
    return (ms + ahead_ms if zone[0] == "-" else ms - ahead_ms), True


def _usual(texts: pa.Array) -> NDArray[np.int64] | None:
    """All texts at once when each is a local time as `--query-gpu` writes it; None when one is not."""
    if len(texts) == 0 or not pc.all(pc.match_substring_regex(texts, _USUAL)).as_py():
        return None
    try:
        at = pc.cast(pc.replace_substring(texts, "/", "-"), pa.timestamp("ms"))
    except pa.ArrowInvalid:  # the 31st of February
        return None
    found: NDArray[np.int64] = pc.cast(at, pa.int64()).to_numpy(zero_copy_only=False)
    return found


class Times:
    """The times of one file: all local, or all with their zone."""

    def __init__(self, path: Path, zone: tzinfo | None, gaps: Gaps) -> None:
        self._path, self._gaps = path, gaps
        self._clock = LocalClock(zone) if zone is not None else None
        self._utc: bool | None = None

    def of(self, cells: Cells, line: int) -> NDArray[np.int64]:
        """The instant of every row, MISSING where it has none."""
        each = _usual(cells.texts)
        if each is not None:
            kinds = {False}
        else:
            read = [parse(t) for t in cells.each()]
            kinds = {r[1] for r in read if r is not None}
            each = np.array([MISSING if r is None else r[0] for r in read], dtype=np.int64)
        if self._utc is not None:
            kinds.add(self._utc)
        if len(kinds) == 2:
            raise SourceError(
                f"{self._path}, near line {line}: times with and without a zone are mixed; split the file or write one kind"
            )
        found: NDArray[np.int64] = each[cells.codes]
        readable = found != MISSING
        self._gaps.add(self._path, f"row without a readable time in {cells.name}", int((~readable).sum()))
        if kinds == {False}:
            self._utc = False
            if self._clock is None:
                raise SourceError(
                    f"{self._path}: its times are local times without a zone; say which with --timezone, "
                    "for example --timezone Europe/Berlin"
                )
            utc, exists = self._clock.instants(found[readable])
            self._gaps.add(
                self._path, "row at a local time that does not exist (clock set forward)", int((~exists).sum())
            )
            self._gaps.add(self._path, "row in a repeated hour, taken for its first pass", self._clock.guessed)
            self._clock.guessed = 0
            found[readable] = np.where(exists, utc, MISSING)
        elif kinds:
            self._utc = True
        return found
