"""Judgement on one GPU, to be added or given back: its utilization over its life, what it earns and costs, one sentence.

The k-th GPU works only when at least k are wanted, so its own utilization counts: not the fleet's mean, not the peak hour. Its
work can be done four ways: own it (c for every hour), rent it at peaks (p per used hour), send it to an API (a per used hour),
or not at all. Where the work has a value per used hour below the cheapest way to do it, more demand (or better work) comes first.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from loadfactor.base.errors import PlanError
from loadfactor.planner.economics.load_duration import LoadDuration, load_duration

Verdict = Literal["add it", "rent it at peaks", "use the API", "bring demand first"]


@dataclass(frozen=True)
class MarginalGpu:
    """One GPU, the `gpu`-th: costs are per hour of its life, used or not. An option that does not exist is None."""

    gpu: int
    utilization_share: float
    first_year_utilization_share: float
    own_cost_per_hour: float
    rent_price_per_hour: float | None
    api_price_per_hour: float | None
    value_per_hour: float | None
    break_even_share: float | None
    verdict: Verdict

    @property
    def earned_per_hour(self) -> float | None:
        """What owning it saves against the cheapest other way to do its work (or the work's value, where there is no other way)."""
        others = [cost for cost in (self.rent_price_per_hour, self.api_price_per_hour) if cost is not None]
        return min(others) if others else self.value_per_hour

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        used = f"GPU {self.gpu} would work {self.utilization_share:.0%} of its life"
        if self.utilization_share == 0:
            return f"{used}: bring demand first."
        earned = "" if self.earned_per_hour is None else f", earns ${self.earned_per_hour:.2f} an hour"
        reason = {
            "add it": "add it",
            "rent it at peaks": f"renting it when needed costs ${self.rent_price_per_hour or 0:.2f}: rent it at peaks",
            "use the API": f"the same work at the API costs ${self.api_price_per_hour or 0:.2f}: use the API",
            "bring demand first": "its work is not worth that: bring demand first",
        }[self.verdict]
        return f"{used}{earned} and costs ${self.own_cost_per_hour:.2f}: {reason}."


def judge_gpu(
    curve: LoadDuration,
    gpu: int,
    own_cost_per_hour: float,
    rent_price_per_used_hour: float | None = None,
    api_price_per_used_hour: float | None = None,
    value_per_used_hour: float | None = None,
    yearly_growth_share: float = 0.0,
    life_years: int = 4,
) -> MarginalGpu:
    """Judge the `gpu`-th GPU of a demand whose size grows by `yearly_growth_share` a year over its life.

    >>> day = load_duration([20] * 6 + [40] * 6 + [60] * 4 + [80] * 8)
    >>> judge_gpu(day, 60, 1.2, rent_price_per_used_hour=3.0).sentence
    'GPU 60 would work 50% of its life, earns $1.50 an hour and costs $1.20: add it.'
    >>> judge_gpu(day, 80, 1.2, rent_price_per_used_hour=3.0).verdict
    'rent it at peaks'
    >>> judge_gpu(day, 80, 1.2, rent_price_per_used_hour=3.0, value_per_used_hour=2.0).verdict
    'bring demand first'
    """
    if own_cost_per_hour <= 0:
        raise PlanError(f"an owned GPU-hour must cost something, got {own_cost_per_hour:g}")
    for name, cost in (
        ("rent", rent_price_per_used_hour),
        ("api", api_price_per_used_hour),
        ("value", value_per_used_hour),
    ):
        if cost is not None and cost <= 0:
            raise PlanError(
                f"{name}_cost_per_used_hour must be positive, got {cost:g}; leave it out where there is none"
            )
    if life_years < 1:
        raise PlanError(f"life_years must be 1 or more, got {life_years}")
    if yearly_growth_share <= -1:
        raise PlanError(f"demand cannot shrink by all of itself a year, got {yearly_growth_share:g}")
    years = [curve.utilization_share(gpu)]
    for year in range(1, life_years):
        # what is wanted beyond this GPU does not change its own utilization, and growth may make it very large
        grown = np.minimum(curve.demand_gpus * (1 + yearly_growth_share) ** year, gpu)
        years.append(load_duration(grown, curve.time_share).utilization_share(gpu) if yearly_growth_share else years[0])
    share = sum(years) / life_years

    def used(cost: float | None) -> float | None:
        return None if cost is None else cost * share

    ways: list[tuple[float, Verdict]] = [(own_cost_per_hour, "add it")]
    if rent_price_per_used_hour is not None:
        ways.append((rent_price_per_used_hour * share, "rent it at peaks"))
    if api_price_per_used_hour is not None:
        ways.append((api_price_per_used_hour * share, "use the API"))
    cheapest, verdict = min(ways, key=lambda way: way[0])
    if share == 0 or (value_per_used_hour is not None and value_per_used_hour * share < cheapest):
        verdict = "bring demand first"
    others = [cost for cost in (rent_price_per_used_hour, api_price_per_used_hour) if cost is not None]
    against = min(others) if others else value_per_used_hour
    return MarginalGpu(
        gpu=gpu,
        utilization_share=share,
        first_year_utilization_share=years[0],
        own_cost_per_hour=own_cost_per_hour,
        rent_price_per_hour=used(rent_price_per_used_hour),
        api_price_per_hour=used(api_price_per_used_hour),
        value_per_hour=used(value_per_used_hour),
        break_even_share=None if against is None else own_cost_per_hour / against,
        verdict=verdict,
    )
