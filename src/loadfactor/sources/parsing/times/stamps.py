"""One written time: the syntaxes that are understood, to nanoseconds since 1970 and whether its zone is known."""

import calendar
import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.units import MS_PER_S, NS_PER_S

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
