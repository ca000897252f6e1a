"""Months of chargeback: those of UTC, as clouds bill them."""

import re
from datetime import UTC, datetime

from loadfactor.base.errors import InputError
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.tables.schema import Span


def read_month(month: str) -> Span:
    """The first instant of a month and the first after it. Raises InputError where it is none.

    >>> [datetime.fromtimestamp(ms / 1000, UTC).date().isoformat() for ms in read_month("2026-12")]
    ['2026-12-01', '2027-01-01']
    """
    found = re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", month)
    if found is None or found[1] < "1970":
        raise InputError(f"--month {month!r} is no month; write --month 2026-10")
    year, number = int(found[1]), int(found[2])
    start = datetime(year, number, 1, tzinfo=UTC)
    end = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)
    return milliseconds(start), milliseconds(end)
