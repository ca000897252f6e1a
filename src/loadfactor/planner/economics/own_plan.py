"""Own, commit, rent or spot, and how much of each? One answer from a server's cost, the prices of renting, and a demand."""

from dataclasses import dataclass

from loadfactor.planner.economics.base_and_peak import (
    Crossing,
    Mix,
    Tier,
    cheapest_mix,
    own_and_rent_gpus,
    screening_curve,
)
from loadfactor.planner.economics.depreciation import METHODS, yearly_charges
from loadfactor.planner.economics.load_duration import LoadDuration
from loadfactor.planner.economics.marginal import MarginalGpu, marginal_gpu
from loadfactor.planner.economics.ownership import OwnedCost, OwnedServer, own
from loadfactor.planner.economics.price_risk import PriceScenario, break_even_yearly_change, price_scenarios
from loadfactor.planner.economics.spot import SpotCost, SpotOffer, spot_cost

OWNED, COMMITTED, ON_DEMAND, SPOT = "owned", "committed", "on demand", "spot"


@dataclass(frozen=True)
class OwnQuestion:
    """What is asked. Prices are per GPU-hour; an option that does not exist is None. `demand` may be left out.

    `api_price` is what an API charges for the work of a used GPU-hour, `value` what that work is worth.
    """

    server: OwnedServer
    on_demand_cost: float
    committed_price: float | None = None
    spot: SpotOffer | None = None
    demand: LoadDuration | None = None
    yearly_growth_share: float = 0.0
    judged_gpu: int | None = None
    api_price: float | None = None
    value: float | None = None


@dataclass(frozen=True)
class OwnPlan:
    """The answer; everything that needs a demand is None without one."""

    cost: OwnedCost
    spot: SpotCost | None
    tiers: tuple[Tier, ...]
    screening: tuple[Crossing, ...]
    break_even_share: float
    mix: Mix | None
    owned_gpus: int | None
    next_gpu: MarginalGpu | None
    scenarios: tuple[PriceScenario, ...]
    break_even_yearly_change: float | None
    yearly_charges_cost: dict[str, tuple[float, ...]]


def plan_own(question: OwnQuestion) -> OwnPlan:
    """Cost, tiers, the cheapest mix, the next GPU and the price risk.

    >>> from loadfactor.planner.economics.load_duration import load_duration
    >>> day = load_duration([20] * 6 + [40] * 6 + [60] * 4 + [80] * 8)
    >>> plan = plan_own(OwnQuestion(OwnedServer(server_price=300_000), on_demand_cost=2.95, demand=day))
    >>> plan.owned_gpus, round(plan.break_even_share, 3), plan.next_gpu.verdict
    (40, 0.63, 'rent it at peaks')
    """
    cost = own(question.server)
    own_cost = cost.cost_per_available_gpu_hour
    spot = None if question.spot is None else spot_cost(question.spot)
    tiers = [Tier(OWNED, fixed_cost_per_hour=own_cost), Tier(ON_DEMAND, used_cost_per_hour=question.on_demand_cost)]
    if question.committed_price is not None:
        tiers.insert(1, Tier(COMMITTED, fixed_cost_per_hour=question.committed_price))
    if spot is not None:
        tiers.append(Tier(SPOT, used_cost_per_hour=spot.cost_per_useful_gpu_hour))
    rent_price = min(t.used_cost_per_hour for t in tiers if t.used_cost_per_hour > 0)
    demand, server = question.demand, question.server
    owned, following = None, None
    scenarios: tuple[PriceScenario, ...] = ()
    if demand is not None:
        owned = own_and_rent_gpus(demand, own_cost, rent_price)
        following = marginal_gpu(
            demand,
            question.judged_gpu or owned + 1,
            own_cost,
            rent_price_per_used_hour=rent_price,
            api_price_per_used_hour=question.api_price,
            value_per_used_hour=question.value,
            yearly_growth_share=question.yearly_growth_share,
            life_years=max(1, round(server.life_years)),
        )
        scenarios = price_scenarios(demand, owned, own_cost, rent_price)
    judged_share = 1.0 if demand is None or not owned else demand.utilization_share(owned)
    return OwnPlan(
        cost=cost,
        spot=spot,
        tiers=tuple(tiers),
        screening=screening_curve(tiers),
        break_even_share=cost.break_even_share(rent_price),
        mix=None if demand is None else cheapest_mix(demand, tiers),
        owned_gpus=owned,
        next_gpu=following,
        scenarios=scenarios,
        break_even_yearly_change=break_even_yearly_change(
            own_cost, rent_price, judged_share, server.life_years, server.cost_of_capital_share
        ),
        yearly_charges_cost={
            method: yearly_charges(
                server.server_price,
                server.residual_share * server.server_price,
                max(1, round(server.life_years)),
                method,
            )
            for method in METHODS
        },
    )
