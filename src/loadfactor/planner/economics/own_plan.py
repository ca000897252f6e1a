"""Plan of owning, committing, renting and spot: how much of each, from a server's cost, the prices of renting, and a demand."""

from dataclasses import dataclass

from loadfactor.base.units import PERCENT, W_PER_KW
from loadfactor.planner.economics.load_duration import (
    Crossing,
    LoadDuration,
    MarginalGpu,
    Mix,
    Tier,
    choose_owned_gpus,
    draw_screening_curve,
    find_cheapest_mix,
    judge_gpu,
    own_for_normal_demand,
)
from loadfactor.planner.economics.ownership import (
    METHODS,
    OwnedCost,
    OwnedServer,
    compute_owned_cost,
    depreciate,
    require_server,
)
from loadfactor.planner.economics.renting import (
    Commitment,
    PriceScenario,
    SpotCost,
    SpotOffer,
    cost_spot,
    find_break_even_change,
    vary_rent_price,
)
from loadfactor.planner.economics.request import OwnRequest
from loadfactor.planner.hardware.marginal import Marginal

OWNED, COMMITTED, ON_DEMAND, SPOT = "owned", "committed", "on demand", "spot"


@dataclass(frozen=True)
class OwnQuestion:
    """The question. Prices are per GPU-hour; an option that does not exist is None. `demand` may be left out.

    `api_price` is what an API charges for the work of a used GPU-hour, `value` what that work is worth.
    """

    server: OwnedServer
    on_demand_price: float
    committed_price: float | None = None
    spot: SpotOffer | None = None
    demand: LoadDuration | None = None
    yearly_growth_share: float = 0.0
    judged_gpu: int | None = None
    api_price: float | None = None
    value: float | None = None


def make_server(request: OwnRequest) -> OwnedServer:
    """The server; the catalog's where none is given. Raises InputError where the catalog knows none."""
    price, power_w, gpus = require_server(
        request.accelerator,
        request.server_price,
        None if request.server_kw is None else request.server_kw * W_PER_KW,
        request.gpus_per_server,
    )
    return OwnedServer(
        server_price=price,
        gpus=gpus,
        life_years=request.life_years,
        discount_rate_share=request.discount_rate_percent / PERCENT,
        residual_share=request.residual_percent / PERCENT,
        power_w=power_w,
        load_share=request.load_percent / PERCENT,
        pue=request.pue,
        price_per_kwh=request.price_per_kwh,
        colocation_price_per_kw_month=request.colocation_price_per_kw_month,
        network_share=request.network_percent / PERCENT,
        support_share=request.support_percent / PERCENT,
        staff_cost_per_year=request.staff_cost,
        availability_share=request.availability_percent / PERCENT,
    )


def make_question(request: OwnRequest, on_demand_price: float, demand: LoadDuration | None) -> OwnQuestion:
    spot = None
    if request.spot_price is not None:
        spot = SpotOffer(
            request.spot_price,
            request.spot_hours,
            request.checkpoint_s,
            request.restart_s,
            request.spot_instances,
            request.spot_notice_s,
        )
    return OwnQuestion(
        server=make_server(request),
        on_demand_price=on_demand_price,
        committed_price=request.committed_price,
        spot=spot,
        demand=demand,
        yearly_growth_share=request.growth_percent / PERCENT,
        judged_gpu=request.gpu_number,
        api_price=request.api_price_per_gpu_hour,
        value=request.value_per_gpu_hour,
    )


@dataclass(frozen=True)
class NormalDemand:
    """Result of the newsvendor's rule for a normal demand of the same mean and spread: a check of the number owned."""

    mean_gpus: float
    sd_gpus: float
    owned_gpus: float
    cost_per_hour: float


@dataclass(frozen=True)
class OwnPlan:
    """The answer; everything that needs a demand is None (or empty) without one. Costs are in `currency`."""

    server: OwnedServer
    year_cost: OwnedCost
    break_even_share: float
    tiers: tuple[Tier, ...]
    screening: tuple[Crossing, ...]
    spot: SpotCost | None
    owned_gpus: int | None
    mix: Mix | None
    commitment: Commitment | None
    normal_demand: NormalDemand | None
    next_gpu: MarginalGpu | None
    price_scenarios: tuple[PriceScenario, ...]
    yearly_charges_cost: dict[str, tuple[float, ...]]
    break_even_yearly_change_share: float | None
    currency: str = "USD"
    marginal: tuple[Marginal, ...] = ()
    """What more owned GPUs bring, where requested."""

    @property
    def total_cost_per_year(self) -> float:
        """A year of the server, with the annuity."""
        return self.year_cost.total_cost

    @property
    def straight_line_total_cost_per_year(self) -> float:
        """A year of the server as the accounts show it."""
        return self.year_cost.straight_line_total_cost

    @property
    def price_per_gpu_hour(self) -> float:
        return self.year_cost.price_per_gpu_hour

    @property
    def cost_per_available_gpu_hour(self) -> float:
        return self.year_cost.cost_per_available_gpu_hour

    @property
    def rent_price_per_used_gpu_hour(self) -> float:
        """The cheapest way to rent an hour of use."""
        return min(tier.used_cost_per_hour for tier in self.tiers if tier.used_cost_per_hour > 0)


def plan_own(question: OwnQuestion) -> OwnPlan:
    """Cost, tiers, the cheapest mix, the next GPU and the price risk.

    >>> from loadfactor.planner.economics.load_duration import load_duration
    >>> day = load_duration([20] * 6 + [40] * 6 + [60] * 4 + [80] * 8)
    >>> plan = plan_own(OwnQuestion(OwnedServer(server_price=300_000), on_demand_price=2.95, demand=day))
    >>> plan.owned_gpus, round(plan.break_even_share, 3), plan.next_gpu.verdict
    (40, 0.63, 'rent it at peaks')
    """
    server, demand = question.server, question.demand
    cost = compute_owned_cost(server)
    own_cost = cost.cost_per_available_gpu_hour
    spot = None if question.spot is None else cost_spot(question.spot)
    tiers = [Tier(OWNED, fixed_cost_per_hour=own_cost), Tier(ON_DEMAND, used_cost_per_hour=question.on_demand_price)]
    if question.committed_price is not None:
        tiers.insert(1, Tier(COMMITTED, fixed_cost_per_hour=question.committed_price))
    if spot is not None:
        tiers.append(Tier(SPOT, used_cost_per_hour=spot.cost_per_useful_gpu_hour))
    rent_price = min(t.used_cost_per_hour for t in tiers if t.used_cost_per_hour > 0)
    life_years = max(1, round(server.life_years))
    owned, following, mix = None, None, None
    scenarios: tuple[PriceScenario, ...] = ()
    if demand is not None:
        owned = choose_owned_gpus(demand, own_cost, rent_price)
        mix = find_cheapest_mix(demand, tiers)
        following = judge_gpu(
            demand,
            question.judged_gpu or owned + 1,
            own_cost,
            rent_price_per_used_hour=rent_price,
            api_price_per_used_hour=question.api_price,
            value_per_used_hour=question.value,
            yearly_growth_share=question.yearly_growth_share,
            life_years=life_years,
        )
        scenarios = vary_rent_price(demand, owned, own_cost, rent_price)
    judged_share = 1.0 if demand is None or not owned else demand.utilization_share(owned)
    residual_cost = server.residual_share * server.server_price
    return OwnPlan(
        server=server,
        year_cost=cost,
        break_even_share=cost.break_even_share(rent_price),
        tiers=tuple(tiers),
        screening=draw_screening_curve(tiers),
        spot=spot,
        owned_gpus=owned,
        mix=mix,
        commitment=None if mix is None else _judge_commitment(mix, question),
        normal_demand=None if demand is None else _compare_normal(demand, own_cost, rent_price),
        next_gpu=following,
        price_scenarios=scenarios,
        yearly_charges_cost={
            method: depreciate(server.server_price, residual_cost, life_years, method) for method in METHODS
        },
        break_even_yearly_change_share=find_break_even_change(
            own_cost, rent_price, judged_share, server.life_years, server.discount_rate_share
        ),
    )


def _judge_commitment(mix: Mix, question: OwnQuestion) -> Commitment | None:
    for use in mix.uses:
        if use.tier.name == COMMITTED and question.committed_price is not None:
            return Commitment(use.gpus, question.committed_price, question.on_demand_price, use.used_gpu_hours_per_hour)
    return None


def _compare_normal(demand: LoadDuration, own_cost: float, rent_price: float) -> NormalDemand | None:
    """None for a steady demand, which has no spread."""
    if demand.sd_gpus == 0:
        return None
    owned, cost = own_for_normal_demand(demand.mean_gpus, demand.sd_gpus, own_cost, rent_price)
    return NormalDemand(demand.mean_gpus, demand.sd_gpus, owned, cost)
