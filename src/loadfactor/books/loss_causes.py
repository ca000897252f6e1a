"""What one holder did in a group, and what of it went by which cause: lost work, time without math, FLOPs that cannot be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

from loadfactor.books.waterfall_groups import LossCause
from loadfactor.metrics.waterfall import LOST_WORK, WITHOUT_MATH, Spent, Waterfall, count_observed, divide
from loadfactor.metrics.work import IN_SECTION, LOST_TO

Key = tuple[str | None, ...]
"""The values of the dimensions that a group has."""
MOST_NAMED: Final = 10
ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class HolderWork:
    """What one holder did in one group, or all of the group whose FLOPs nobody knows together; then `job` is None."""

    key: Key
    job: str | None
    hours: Spent
    cost: Spent
    priced_hours: float
    made_hours: float | None
    kept_hours: float
    lost_to: Mapping[str, float]
    in_section: Mapping[str, float]


Poured = tuple[HolderWork, Waterfall, Waterfall]
"""The work of a holder, and where its hours and its money went."""


def divide_lost(each: Sequence[Poured], hours: Waterfall, money: Waterfall | None) -> list[LossCause]:
    """Lost work by cause: in proportion to the FLOPs lost to each."""
    parts = []
    for cell, of_hours, of_money in each:
        whole = (cell.made_hours or 0.0) - cell.kept_hours
        parts += [divide(fall.lost_work, cell.lost_to, whole) for fall in (of_hours, of_money)]
    return _list_causes(LOST_WORK, LOST_TO, parts, hours, money)


def divide_without_math(each: Sequence[Poured], hours: Waterfall, money: Waterfall | None) -> list[LossCause]:
    """Held and observed time that was not math, by the sections that it was spent in; of unobserved time in proportion."""
    parts = []
    for cell, of_hours, of_money in each:
        observed = {kind: count_observed(cell.hours, spent) for kind, spent in cell.in_section.items()}
        whole = of_hours.without_math
        parts += [divide(fall.without_math, observed, whole) for fall in (of_hours, of_money)]
    return _list_causes(WITHOUT_MATH, tuple(IN_SECTION), parts, hours, money)


def _list_causes(
    of: str, causes: Sequence[str], parts: Sequence[Mapping[str, float]], hours: Waterfall, money: Waterfall | None
) -> list[LossCause]:
    """The sum of `parts` by cause, of hours and of money in turn, and what of the whole has no known cause."""
    sums = [{cause: fsum(part.get(cause, 0.0) for part in parts[n::2]) for cause in causes} for n in range(2)]
    if not any(sums[0].values()):
        return []
    known = [(cause, sums[0][cause], sums[1][cause]) for cause in causes if sums[0][cause]]
    rest = [getattr(fall, of) - fsum(added.values()) for fall, added in ((hours, sums[0]), (money, sums[1])) if fall]
    rest = [max(0.0, left) for left in rest]
    return [
        LossCause(of, cause, spent, None if money is None else cost, spent / hours.paid)
        for cause, spent, cost in (*known, (None, rest[0], rest[-1]))
    ]


def find_surplus(cells: Sequence[HolderWork]) -> tuple[str, ...]:
    """Some of the jobs that made more FLOPs than they were active for, in all, those with most first."""
    surplus: dict[str, float] = {}
    active: dict[str, float] = {}
    for cell in cells:
        if cell.job is not None and cell.made_hours is not None:
            counted = count_observed(cell.hours, cell.made_hours)
            surplus[cell.job] = surplus.get(cell.job, 0.0) + counted - cell.hours.active
            active[cell.job] = active.get(cell.job, 0.0) + cell.hours.active
    over = [job for job, hours in surplus.items() if hours > ROUNDING * active[job]]
    return tuple(sorted(over, key=lambda job: (-surplus[job], job))[:MOST_NAMED])
