"""How many GPUs to commit to (or to own) for a demand that was measured, and what having chosen wrong would have cost.

The choice is the newsvendor's on the load-duration curve (`load_duration`): commit to GPU k while it is needed at least so much of
the time as a committed hour costs of a rented one. Regret is what a choice cost more than the best one that anybody could have
made of the same hours, known afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from loadfactor.planner.economics.load_duration import (
    LoadDuration,
    choose_owned_gpus,
    cost_own_and_rent,
    load_duration,
)

Hours = Sequence[tuple[float, float]]
"""GPUs that were held, and for how many hours."""
OTHERS: Final = (0.5, 0.75, 1.25, 1.5)
"""Shares of the best choice that stand beside it."""


@dataclass(frozen=True)
class CommitmentOption:
    """A number of committed GPUs over all hours: its cost, its regret, and the most regret of a month.

    `is_best`: it costs least; `is_safest`: its worst month is the least bad (minimax regret).
    """

    gpus: int
    cost: float
    regret: float
    worst_month_regret: float
    worst_month: str
    is_best: bool
    is_safest: bool


@dataclass(frozen=True)
class CommitmentMonth:
    """A month: its own best number of GPUs, that of all months before it (None of the first), and the regret of that one."""

    month: str
    mean_gpus: float
    best_gpus: int
    chosen_gpus: int | None
    regret: float | None


@dataclass(frozen=True)
class CommitmentChoice:
    """The choice for all hours together. `covered_share`: of the held GPU-hours; `used_share`: of the committed ones.

    `saved` is what it would have cost less than renting everything; prices are of a GPU-hour.
    """

    commit_price: float
    rent_price: float
    currency: str
    hours: float
    mean_gpus: float
    peak_gpus: float
    gpus: int
    covered_share: float
    used_share: float | None
    saved: float
    options: tuple[CommitmentOption, ...]
    months: tuple[CommitmentMonth, ...]


def choose_commitment(
    months: Mapping[str, Hours], commit_price: float, rent_price: float, currency: str
) -> CommitmentChoice:
    """The choice for the hours of these months, in order. Raises PlanError where nothing was held, or a price is not above 0.

    >>> day = [(20, 6), (40, 6), (60, 4), (80, 8)]
    >>> found = choose_commitment({"2026-09": day, "2026-10": [(gpus / 2, hours) for gpus, hours in day]}, 1.2, 3.0, "USD")
    >>> found.gpus, [(of.best_gpus, of.chosen_gpus) for of in found.months], round(found.months[1].regret, 2)
    (40, [(60, None), (30, 60)], 624.0)
    """
    curves = {month: _draw(hours) for month, hours in months.items() if any(gpus for gpus, _ in hours)}
    lengths = {month: sum(of for _, of in hours) for month, hours in months.items()}
    whole = _draw([of for hours in months.values() for of in hours])
    all_h = sum(lengths.values())
    best = choose_owned_gpus(whole, commit_price, rent_price)

    def cost(curve: LoadDuration, gpus: int, hours: float) -> float:
        return cost_own_and_rent(curve, gpus, commit_price, rent_price) * hours

    own_best = {month: choose_owned_gpus(curve, commit_price, rent_price) for month, curve in curves.items()}

    def regret(month: str, gpus: int) -> float:
        if month not in curves:  # nothing was held: every committed hour is lost
            return commit_price * gpus * lengths[month]
        return cost(curves[month], gpus, lengths[month]) - cost(curves[month], own_best[month], lengths[month])

    sizes = range(int(np.ceil(whole.peak_gpus)) + 1)
    tried = {*(round(share * best) for share in OTHERS), 0, best, sizes[-1]}
    step = max(1, len(sizes) // 200)
    worst_of = {
        gpus: max(regret(month, gpus) for month in months) for gpus in {*tried, *sizes[::step]} if gpus in sizes
    }
    safest = min(worst_of, key=lambda gpus: (worst_of[gpus], gpus))
    options = []
    for gpus in sorted({of for of in tried if of in sizes} | {safest}):
        worst = max(months, key=lambda month: regret(month, gpus))
        paid = cost(whole, gpus, all_h)
        lost = paid - cost(whole, best, all_h)
        options.append(CommitmentOption(gpus, paid, lost, regret(worst, gpus), worst, gpus == best, gpus == safest))
    listed, before = [], list[tuple[float, float]]()
    for month, hours in months.items():
        chosen = None
        if any(gpus for gpus, _ in before):
            chosen = choose_owned_gpus(_draw(before), commit_price, rent_price)
        mean = sum(gpus * of for gpus, of in hours) / lengths[month]
        lost_by = None if chosen is None else regret(month, chosen)
        listed.append(CommitmentMonth(month, mean, own_best.get(month, 0), chosen, lost_by))
        before += hours
    covered = float(whole.marginal_share[:best].sum())
    return CommitmentChoice(
        commit_price,
        rent_price,
        currency,
        all_h,
        whole.mean_gpus,
        whole.peak_gpus,
        best,
        covered / whole.mean_gpus,
        covered / best if best else None,
        cost(whole, 0, all_h) - cost(whole, best, all_h),
        tuple(options),
        tuple(listed),
    )


def _draw(hours: Hours) -> LoadDuration:
    return load_duration([gpus for gpus, _ in hours], [of for _, of in hours])
