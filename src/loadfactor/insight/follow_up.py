"""Levers that were pulled: the work per unit of money before and after, and what that saved beside what was promised.

Utilization says nothing of it: a larger batch makes a job several times as fast at nearly the same utilization.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final

from loadfactor.base.errors import no_such
from loadfactor.base.units import D_PER_WEEK, H_PER_MONTH, S_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.books.job_account import KEPT
from loadfactor.books.snapshot import Snapshot
from loadfactor.insight.levers import LEVERS
from loadfactor.insight.levers.offers import PRICE_LEVERS
from loadfactor.metrics import Metric
from loadfactor.settings.money import DoneLever

LONGEST: Final = timedelta(days=4 * D_PER_WEEK)
"""At most so long before and after are compared."""
SHORTEST: Final = timedelta(days=1)
LEAST_CHANGE: Final = 0.02
"""Of work per unit of money; less is nothing."""
EFFECTIVE: Final = "effective GPU-hour"


@dataclass(frozen=True)
class WorkPerCost:
    """Units of work for one unit of money, before and after; `change` is a share of the former."""

    unit: str
    before: float
    after: float
    change: float


@dataclass(frozen=True)
class LeverFollowUp:
    """What became of a lever: over `days` on each side of `done`. `judged_by` is the unit of work that the verdict rests on.

    `saved_per_month` is what the work after would have cost as before, less what it cost; None where nothing can be told.
    """

    lever: str
    done: str
    team: str | None
    days: float
    promised_per_month: float | None
    saved_per_month: float | None
    judged_by: str | None
    verdict: str
    work: tuple[WorkPerCost, ...]


def follow_levers(books: Books, done: Sequence[DoneLever]) -> tuple[LeverFollowUp, ...]:
    """Each lever beside what was promised. Raises InputError for a name that no lever has."""
    names = [*(lever.name for lever in LEVERS), *PRICE_LEVERS]
    for of in done:
        if of.lever not in names:
            raise no_such("lever", of.lever, names)
    if not done:
        return ()
    with books.snapshot() as snapshot:
        return tuple(_follow(snapshot, of) for of in done)


def _follow(snapshot: Snapshot, done: DoneLever) -> LeverFollowUp:
    first, last = snapshot.span
    at = datetime.combine(done.done, time(), UTC)
    length = min(LONGEST, at - first, last - at)
    promised = None if done.promised is None else float(done.promised)

    def tell(verdict: str, saved: float | None = None, by: str | None = None, *work: WorkPerCost) -> LeverFollowUp:
        days = max(length / timedelta(days=1), 0.0)
        return LeverFollowUp(done.lever, done.done.isoformat(), done.team, days, promised, saved, by, verdict, work)

    if length < SHORTEST:
        return tell("cannot be told: the books know less than a day before or after it")
    before, after = (_measure(snapshot, done.team, start, start + length) for start in (at - length, at))
    costs = before.pop("cost", 0.0), after.pop("cost", 0.0)
    if min(costs) <= 0:
        return tell("cannot be told: no price is known before or after it")
    work = []
    for unit in before:
        if unit in after:
            rates = before[unit] / costs[0], after[unit] / costs[1]
            work.append(WorkPerCost(unit, *rates, rates[1] / rates[0] - 1))
    if not work:
        return tell("cannot be told: no work is known before or after it")
    judged = work[0]
    months = length.total_seconds() / S_PER_HOUR / H_PER_MONTH
    saved = costs[1] * judged.change / months
    return tell(_judge(judged, saved, promised), saved, judged.unit, *work)


def _measure(snapshot: Snapshot, team: str | None, start: datetime, end: datetime) -> dict[str, float]:
    """What was made and what it cost: units of work first, those that are known and above nothing."""
    asked: tuple[Metric | str, ...] = (*KEPT.values(), "effective_gpu_hours", "cost")
    found = snapshot.show(asked, (), start, end, where={} if team is None else {"team": team})
    names = {metric.name: unit for unit, metric in KEPT.items()} | {"effective_gpu_hours": EFFECTIVE, "cost": "cost"}
    values = {names[reading.metric]: reading.value for reading in found}
    return {unit: float(value) for unit, value in values.items() if isinstance(value, int | float) and value > 0}


def _judge(judged: WorkPerCost, saved: float, promised: float | None) -> str:
    """The verdict in words."""
    if judged.change < -LEAST_CHANGE:
        return f"made it worse: {-judged.change:.1%} less {judged.unit} for the same money"
    if judged.change < LEAST_CHANGE:
        return f"did nothing: {judged.unit} for the same money changed by {judged.change:+.1%}"
    kept = "" if not promised or promised <= 0 else f", {saved / promised:.0%} of what was promised"
    return f"works: {judged.change:.1%} more {judged.unit} for the same money{kept}"
