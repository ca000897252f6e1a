"""What conditions share: a metric of each group where enough of it is known, and the events of the last while."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

import numpy as np

from loadfactor.base.units import MS_PER_S
from loadfactor.books.watched import WatchedEvent
from loadfactor.insight.alerts.evidence import Evidence, Floats, Need

LEAST_COVERAGE: Final = 0.5
"""Where less of what a value speaks of was known, nothing can be told."""


def read_known(evidence: Evidence, need: Need) -> Floats:
    """The metric of each group that is there and has been for the whole window; NaN where too little is known."""
    found = evidence.read(need)
    since = evidence.at_ms - (need.window_s + need.ago_s) * MS_PER_S
    is_known = found.is_there & (evidence.starts(need.by) <= since) & (found.coverage >= LEAST_COVERAGE)
    return np.where(is_known, found.value, np.nan)


def list_recent(events: Sequence[WatchedEvent], until_ms: int, for_s: float) -> Iterator[WatchedEvent]:
    """The events, which are in order, of so many seconds before an instant; the latest first."""
    last = bisect_right(events, until_ms, key=attrgetter("at_ms"))
    for place in range(last - 1, -1, -1):
        if events[place].at_ms <= until_ms - for_s * MS_PER_S:
            return
        yield events[place]
