"""Forecasts of weeks from a history of days, with ranges that the history's own errors give.

The value is the last week again (seasonal naive): on public traces of clusters it was nearer than smoothed levels and trends,
damped or not. Its range is split conformal: the history is forecast from each of its own days, and the range is as wide as four
in five of the errors (as ratios) of the last four weeks of such forecasts. So it widens where demand jumps, and nothing is
supposed of how errors are spread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log
from statistics import fmean, median
from typing import Final

from loadfactor.base.errors import PlanError

WEEK: Final = 7
COVERED_SHARE: Final = 0.8
"""Share of weeks that ranges are to hold."""
ERRORS: Final = 28
LEAST_DAYS: Final = 21
"""Days of history without which nothing is forecast: two weeks, and a week of forecasts to compare with."""
GROWTH_WEEKS: Final = 8
"""Weeks of which growth is the median."""
_LEAST_SHARE: Final = 0.01
"""Of the mean week: less counts as this, so that a week of nothing is an error of a known size."""


@dataclass(frozen=True)
class Weekly:
    """A week's value, and the range that four in five such weeks lie in."""

    low: float
    value: float
    high: float


@dataclass(frozen=True)
class HeldBack:
    """Weeks of a history that were forecast from the days before them, and how many of these their ranges held."""

    weeks: int
    held: int

    @property
    def held_share(self) -> float | None:
        """None where no week could be held back.

        >>> HeldBack(40, 32).held_share, HeldBack(0, 0).held_share
        (0.8, None)
        """
        return self.held / self.weeks if self.weeks else None


def forecast_weeks(days: Sequence[float], weeks: int) -> tuple[Weekly, ...]:
    """The next weeks of a series of whole days, amounts of 0 or more. Raises PlanError where its history is too short.

    >>> [round(of.value) for of in forecast_weeks([10.0] * 28, 2)]
    [70, 70]
    """
    if len(days) < LEAST_DAYS:
        raise PlanError(
            f"{len(days)} days of history; a forecast needs {LEAST_DAYS} whole days to learn its ranges from"
        )
    value = sum(days[-WEEK:])
    return tuple(_surround(value, _find_error(days, ahead)) for ahead in range(1, weeks + 1))


def hold_back(days: Sequence[float], ahead: int = 1) -> HeldBack:
    """How many of the history's own weeks the ranges of forecasts so many weeks ahead would have held, from each day on."""
    weeks = held = 0
    for at in range(LEAST_DAYS, len(days) - WEEK * ahead + 1):
        weekly = _surround(sum(days[at - WEEK : at]), _find_error(days[:at], ahead))
        held += weekly.low <= _sum_week(days, at, ahead) <= weekly.high
        weeks += 1
    return HeldBack(weeks, held)


def find_growth(days: Sequence[float]) -> float | None:
    """By which share a week is more than the one before it, as the median over pairs of the last weeks (Theil and Sen).

    None of less than three weeks, or where one is nothing.

    >>> round(find_growth([1.0] * 7 + [1.1] * 7 + [1.21] * 7), 9)
    0.1
    """
    sums = _list_weeks(days)[-GROWTH_WEEKS:]
    if len(sums) < 3 or min(sums) <= 0:
        return None
    logs = [log(of) for of in sums]
    slopes = [(logs[b] - logs[a]) / (b - a) for a in range(len(logs)) for b in range(a + 1, len(logs))]
    return exp(median(slopes)) - 1


def find_weeks_left(level: float, growth_share: float | None, capacity: float) -> float | None:
    """Weeks until a level that grows like this reaches a capacity; 0 where it has, None where it does not grow.

    >>> round(find_weeks_left(100, 0.1, 121), 9), find_weeks_left(100, 0.0, 121), find_weeks_left(130, 0.0, 121)
    (2.0, None, 0.0)
    """
    if level >= capacity:
        return 0.0
    if growth_share is None or growth_share <= 0 or level <= 0:
        return None
    return log(capacity / level) / log(1 + growth_share)


def _list_weeks(days: Sequence[float]) -> list[float]:
    """Sums of whole weeks that end with the last day."""
    return [sum(days[at : at + WEEK]) for at in range(len(days) % WEEK, len(days), WEEK)]


def _sum_week(days: Sequence[float], at: int, ahead: int) -> float:
    return sum(days[at + WEEK * (ahead - 1) : at + WEEK * ahead])


def _find_error(days: Sequence[float], ahead: int) -> float:
    """The error of a week so far ahead, as a logarithm of a ratio, that four in five of the history's own were below.

    Where the history has no weeks so far ahead, it is that of the next week, growing as the root of the weeks.
    """
    known = max(of for of in range(1, ahead + 1) if of == 1 or len(days) - WEEK * of >= 2 * WEEK)
    least = _LEAST_SHARE * WEEK * fmean(days)
    if not least:
        return 0.0
    errors = [
        abs(log(max(_sum_week(days, at, known), least) / max(sum(days[at - WEEK : at]), least)))
        for at in range(WEEK, len(days) - WEEK * known + 1)
    ][-ERRORS:]
    place = min(len(errors), ceil((len(errors) + 1) * COVERED_SHARE)) - 1
    return float(sorted(errors)[place] * (ahead / known) ** 0.5)


def _surround(value: float, error: float) -> Weekly:
    return Weekly(value * exp(-error), value, value * exp(error))
