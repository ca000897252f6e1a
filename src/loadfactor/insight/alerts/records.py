"""What happened, waited and was to be paid: read when a rule asks for it, and kept for as long as it stays true."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.books.kept_holdings import KeptHoldings
from loadfactor.books.watched import EndedPrice, Watched, WatchedEvent, WatchedOutage
from loadfactor.books.watched_waits import QueuedJobs, UsualWait, WatchedWaits
from loadfactor.tables.schema import Span

if TYPE_CHECKING:
    from loadfactor.books.budgets import BudgetReview


@dataclass
class KeptRecords:
    """What stays true from call to call, until data comes late."""

    waits: WatchedWaits = field(default_factory=WatchedWaits)
    budgets: dict[int, "BudgetReview | None"] = field(default_factory=dict)
    holdings: KeptHoldings = field(default_factory=KeptHoldings)


class Records:
    """The records of a span of steps, and of the time before it. Read them while the session of `watched` is open."""

    def __init__(self, watched: Watched, span: Span, kept: KeptRecords) -> None:
        self._watched, self._span, self._kept = watched, span, kept

    @cached_property
    def events(self) -> Sequence[WatchedEvent]:
        """What happened to GPUs, in order."""
        return self._watched.list_events(self._span)

    @cached_property
    def outages(self) -> Sequence[WatchedOutage]:
        """The outages of nodes."""
        return self._watched.list_outages(self._span)

    @cached_property
    def waits(self) -> QueuedJobs:
        """The waits that last in the span, or ended not long before it."""
        return self._watched.list_waits(self._span, self._kept.waits)

    @cached_property
    def ended_prices(self) -> Sequence[EndedPrice]:
        """Prices that ended before the end of the span, with none after them."""
        return self._watched.list_ended_prices(self._span[1])

    def usual_waits(self, at_ms: int) -> Mapping[str, UsualWait]:
        """How long jobs usually wait, by queue, as it follows from the UTC days before that of an instant."""
        return self._watched.list_usual_waits(at_ms - at_ms % MS_PER_DAY, self._kept.waits)

    def budgets(self, at_ms: int) -> "BudgetReview | None":
        """Where budgets stood when the UTC day before that of an instant was complete; None where there are none."""
        day_ms, kept = at_ms - at_ms % MS_PER_DAY, self._kept.budgets
        if day_ms not in kept:
            before = datetime.fromtimestamp(day_ms / MS_PER_S, UTC).date() - timedelta(1)
            self._kept.budgets = {day_ms: self._watched.review_budgets(before)}
        return self._kept.budgets[day_ms]
