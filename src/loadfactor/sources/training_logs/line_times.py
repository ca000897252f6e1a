"""The time that a line of a log says, at its beginning or after `datetime:`."""

import re
from datetime import tzinfo
from typing import Final

import numpy as np

from loadfactor.base.units import NS_PER_MS
from loadfactor.sources.parsing.times import OFFSET, LocalClock, parse_stamp

_WITHIN: Final = 100  # characters: what stands later in a line is data
_ISO: Final = re.compile(
    rf"(?<!\d)\d{{4}}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?(?: ?UTC\b| ?{OFFSET}(?![\d-]))?"
)
_COMPACT: Final = re.compile(r"(?<!\d)(20\d\d)(\d\d)(\d\d)[ T-](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)")
_AMERICAN: Final = re.compile(r"(?<!\d)(\d\d)/(\d\d)/(\d{4})[ ,]+(\d\d:\d\d:\d\d)")
_CTIME: Final = re.compile(
    r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d) (?:([A-Z]{3,4}) )?(\d{4})\b"
)
_UNIVERSAL: Final = ("UTC", "GMT")


class LineTimes:
    """The times of the lines of one log, in their order; local ones are of `zone`."""

    def __init__(self, zone: tzinfo) -> None:
        self._clock = LocalClock(zone)
        self.has_local = False

    def find(self, line: str) -> int | None:
        """The instant a line says, in ms since 1970 UTC.

        >>> from datetime import UTC
        >>> times = LineTimes(UTC)
        >>> times.find("[after megatron is initialized] datetime: 2021-05-23 08:23:57 ")
        1621758237000
        >>> times.find("05/23/2021 08:23:57 - INFO - root") == times.find("Sun May 23 08:23:57 2021")
        True
        >>> times.find("[20251202 06:56:28][rank-7/8][INFO ] iteration 4408/ 5000 |")
        1764658588000
        """
        begin = line[:_WITHIN]
        if begin.count(":") < 2:
            return None
        iso = _ISO.search(begin)
        if iso:
            return self._place(iso[0])
        found = _COMPACT.search(begin)
        if found:
            return self._place(f"{found[1]}-{found[2]}-{found[3]} {found[4]}")
        found = _AMERICAN.search(begin)
        if found:
            month, day = (found[1], found[2]) if int(found[1]) <= 12 else (found[2], found[1])
            return self._place(f"{found[3]}-{month}-{day} {found[4]}")
        found = _CTIME.search(begin)
        if found and found[2] in _UNIVERSAL:
            stamp = parse_stamp(f"{found[1]} {found[3]}")
            return stamp.at_ns // NS_PER_MS if stamp else None
        return self._place(f"{found[1]} {found[3]}") if found else None

    def _place(self, text: str) -> int | None:
        stamp = parse_stamp(text)
        if stamp is None:
            return None
        at_ms = stamp.at_ns // NS_PER_MS
        if stamp.zoned:
            return at_ms
        self.has_local = True
        utc, exists = self._clock.convert(np.array([at_ms], dtype=np.int64))
        return int(utc[0]) if exists[0] else None
