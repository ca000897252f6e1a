"""Where targets stand: a metric in the last week of the books, how it moves a week, and the pace that would meet it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Final

from loadfactor.metrics.query.reading import Reading, Readings
from loadfactor.settings.targets import Target

WEEK: Final = timedelta(days=7)
WEEKS_BACK: Final = 3
"""The last week is compared with that so many weeks before it."""


@dataclass(frozen=True)
class TargetStatus:
    """A target: the value of the last week, its change a week, and the change a week that would meet it in time.

    None where it is not known; `needed_per_week` of a target that is met, or whose day is past, is None. `on_pace`: it is met, or
    moves at least as it needs to.
    """

    metric: str
    unit: str
    currency: str | None
    where: Mapping[str, str]
    goal: float
    is_least: bool
    due: date
    value: float | None
    per_week: float | None
    needed_per_week: float | None
    is_met: bool | None
    on_pace: bool | None


def review_targets(
    ask: Callable[..., Readings], targets: Sequence[Target], span: tuple[datetime, datetime], zone: tzinfo
) -> tuple[TargetStatus, ...]:
    """Where every target stands at the end of the books. Raises InputError for a metric, team or project that is none."""
    first, last = span
    found = []
    for target in targets:

        def read(start: datetime, end: datetime, of: Target = target) -> Reading:
            return ask(of.metric, (), start, end, zone, None, of.where)[0]

        reading, then = read(max(first, last - WEEK), last), last - WEEKS_BACK * WEEK
        value = reading.value if isinstance(reading.value, float) else None
        before = read(then - WEEK, then).value if then - WEEK >= first else None
        per_week = None if value is None or not isinstance(before, float) else (value - before) / WEEKS_BACK
        sign = 1 if target.at_least is not None else -1
        is_met = None if value is None else sign * (value - target.goal) >= 0
        left = (datetime.combine(target.due, time(), zone) - last) / WEEK
        needed = None if value is None or is_met or left <= 0 else (target.goal - value) / left
        on_pace = is_met
        if needed is not None:
            on_pace = None if per_week is None else sign * (per_week - needed) >= 0
        found.append(
            TargetStatus(
                target.metric,
                reading.unit,
                reading.currency,
                target.where,
                target.goal,
                target.at_least is not None,
                target.due,
                value,
                per_week,
                needed,
                is_met,
                on_pace,
            )
        )
    return tuple(found)
