"""Owning, renting and the mix of both: the parts add up, the mix is never beaten, impossible inputs name themselves."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadfactor.base.errors import PlanError
from loadfactor.planner.economics.breakeven import (
    ApiPrice,
    MeanRequest,
    ReplicaCost,
    compare_at_demand,
    find_break_even,
    lower_floor_needs_price_ratio,
    vary_inputs,
)
from loadfactor.planner.economics.load_duration import (
    Tier,
    choose_owned_gpus,
    cost_own_and_rent,
    draw_screening_curve,
    find_cheapest_mix,
    judge_gpu,
    load_duration,
    own_for_normal_demand,
)
from loadfactor.planner.economics.ownership import OwnedServer, compute_owned_cost, depreciate
from loadfactor.planner.economics.renting import (
    Commitment,
    SpotOffer,
    average_price_share,
    cost_spot,
    find_break_even_change,
    vary_rent_price,
)

DAY = [20] * 6 + [40] * 6 + [60] * 4 + [80] * 8
CHEAP, DEAR = ApiPrice(0.5, 1.5), ApiPrice(10, 30)


def test_the_parts_of_a_year_add_up() -> None:
    """Capital, energy, network, support and staff are the total; colocation replaces energy at $1.98 per hour."""
    cost = compute_owned_cost(OwnedServer(server_price=300_000))
    assert cost.total_cost == pytest.approx(81_712.99 + 7_434.09 + 14_196.19 + 15_000 + 8_000, abs=0.05)
    housed = compute_owned_cost(OwnedServer(server_price=300_000, colocation_price_per_kw_month=130))
    assert housed.energy_cost == 0
    assert housed.colocation_cost == pytest.approx(15_912)
    assert housed.cost_per_available_gpu_hour == pytest.approx(1.9833, abs=5e-5)
    used = [round(cost.cost_per_available_gpu_hour / use, 3) for use in (0.8, 0.6, 0.4, 0.2)]
    assert used == [2.323, 3.098, 4.647, 9.293]


def test_free_money_makes_annuity_and_straight_line_equal() -> None:
    """Where capital costs nothing both ways of writing it off are the same number."""
    cost = compute_owned_cost(OwnedServer(server_price=300_000, discount_rate_share=0.0))
    assert cost.capital_cost == pytest.approx(cost.straight_line_capital_cost)
    assert cost.total_cost == pytest.approx(cost.straight_line_total_cost)


@pytest.mark.parametrize("method", ["straight line", "declining balance", "sum of years"])
def test_depreciation_writes_off_the_loss_and_no_more(method: str) -> None:
    """Over the life every schedule charges at most price minus residual, and never a negative amount."""
    charges = depreciate(300_000, 60_000, 4, method)  # type: ignore[arg-type]
    assert sum(charges) <= 240_000 + 1e-6
    assert min(charges) >= 0


def test_commitment_that_is_empty_loses_its_whole_price() -> None:
    """At low use the effective savings rate is negative, and with no use at all it is unknown rather than zero."""
    assert (Commitment(100, 1.8, 3.0, 50).effective_savings_share or 0) == pytest.approx(-0.2)
    unused = Commitment(100, 1.8, 3.0, 0)
    assert unused.effective_savings_share is None
    assert unused.coverage_share is None
    assert unused.unused_cost_per_hour == pytest.approx(180)
    assert (Commitment(100, 1.8, 3.0, 150).coverage_share or 0) == pytest.approx(2 / 3)


def test_spot_gangs_and_notice() -> None:
    """More instances in a gang cost more per useful hour; a notice longer than the checkpoint spares the periodic ones."""
    alone = cost_spot(SpotOffer(1.2, 24))
    gang = cost_spot(SpotOffer(1.2, 24, instances=16))
    warned = cost_spot(SpotOffer(1.2, 24, instances=16, notice_s=120))
    assert alone.cost_per_useful_gpu_hour < warned.cost_per_useful_gpu_hour < gang.cost_per_useful_gpu_hour
    assert warned.saved_within_notice
    assert warned.checkpoints is None


@given(
    st.lists(st.floats(0, 60), min_size=1, max_size=40).filter(lambda d: max(d) > 0),
    st.floats(0.05, 5),
    st.floats(0.05, 5),
)
def test_no_other_number_of_owned_gpus_is_cheaper(demand: list[float], own_cost: float, rent_price: float) -> None:
    """The number found by marginal utilization costs no more than any other, and the tier mix finds the same cost."""
    curve = load_duration(demand)
    best = choose_owned_gpus(curve, own_cost, rent_price)
    cost = cost_own_and_rent(curve, best, own_cost, rent_price)
    for other in range(math.ceil(max(demand)) + 1):
        assert cost <= cost_own_and_rent(curve, other, own_cost, rent_price) + 1e-9
    mix = find_cheapest_mix(curve, (Tier("own", own_cost), Tier("rent", 0, rent_price)))
    assert mix.cost_per_hour == pytest.approx(cost, abs=1e-9)


@given(st.lists(st.floats(0, 200), min_size=1, max_size=50).filter(lambda d: max(d) > 0))
def test_marginal_utilizations_sum_to_the_mean_demand(demand: list[float]) -> None:
    """Σ of the marginal utilizations is the mean demand, they fall with k, and lie between 0 and 1."""
    curve = load_duration(demand)
    assert curve.marginal_share.sum() == pytest.approx(np.mean(demand), rel=1e-9, abs=1e-9)
    assert (np.diff(curve.marginal_share) <= 1e-9).all()
    assert curve.utilization_share(len(curve.marginal_share) + 1) == 0


def test_newsvendor_agrees_with_a_sampled_normal() -> None:
    """The closed form for normal demand and the load-duration curve of its quantiles give the same fleet and cost."""
    from statistics import NormalDist

    quantiles = [max(0.0, NormalDist(100, 30).inv_cdf((i + 0.5) / 20_000)) for i in range(20_000)]
    curve = load_duration(quantiles)
    gpus, cost = own_for_normal_demand(100, 30, 1.2, 3.0)
    owned = choose_owned_gpus(curve, 1.2, 3.0)
    assert owned == pytest.approx(gpus, abs=1)
    assert cost_own_and_rent(curve, owned, 1.2, 3.0) == pytest.approx(cost, rel=1e-3)
    assert own_for_normal_demand(100, 30, 3.0, 2.0) == (0.0, 200.0)


def test_screening_curve_names_the_cheapest_tier_everywhere() -> None:
    """Between its crossings the screening curve is the minimum over all tiers."""
    tiers = (
        Tier("own", 1.86),
        Tier("1-year", 2.35),
        Tier("on demand", 0, 2.95),
        Tier("spot", 0, 2.1),
        Tier("half", 1.0, 0.9),
    )
    crossings = draw_screening_curve(tiers)
    for share in np.linspace(0, 1, 101):
        current = [c for c in crossings if c.from_share <= share][-1].tier
        assert current.cost_per_hour(share) == pytest.approx(min(t.cost_per_hour(share) for t in tiers), abs=1e-9)


def test_regret_is_zero_where_nothing_changed_and_positive_elsewhere() -> None:
    """The plan has no regret at the planned price and never a negative one."""
    curve = load_duration(DAY)
    scenarios = vary_rent_price(curve, choose_owned_gpus(curve, 1.2, 3.0), 1.2, 3.0)
    assert all(s.regret_per_hour >= -1e-9 for s in scenarios)
    assert next(s for s in scenarios if s.change_share == 0).regret_per_hour == pytest.approx(0)


def test_break_even_fall_of_prices_evens_out() -> None:
    """At the fall found, the mean rent over the life equals the owned hour; where no fall could, the answer is None."""
    fall = find_break_even_change(1.86, 2.95, 0.9, 4, 0.10)
    assert fall is not None
    assert 0.9 * 2.95 * average_price_share(fall, 4, 0.10) == pytest.approx(1.86)
    assert find_break_even_change(0.001, 5, 1.0, 4, 0.1) is None


def test_the_larger_network_has_the_lower_floor_only_against_a_dearer_api() -> None:
    """7B ≈ 50 % and 13B ≈ 10 % hold with APIs 20 × apart in price; against the same API the 13B floor is four times the 7B's."""
    seven, thirteen, even = ReplicaCost(1.006, 559), ReplicaCost(3.67, 510), MeanRequest(500, 500)
    assert find_break_even(seven, CHEAP, even).floor_share == pytest.approx(0.50, abs=0.002)
    assert find_break_even(thirteen, DEAR, even).floor_share == pytest.approx(0.10, abs=0.002)
    same = find_break_even(thirteen, CHEAP, even)
    assert same.floor_share == pytest.approx(2.0, abs=0.01)
    assert not same.pays
    needed = lower_floor_needs_price_ratio(seven, thirteen)
    for ratio, lower in ((needed * 1.01, True), (needed * 0.99, False)):
        dearer = ApiPrice(0.5 * ratio, 1.5 * ratio)
        assert (
            find_break_even(thirteen, dearer, even).floor_share < find_break_even(seven, CHEAP, even).floor_share
        ) is lower


def test_floor_in_requests_and_users() -> None:
    """At the floor the requests per second cost the same at the API as the replica does."""
    request = MeanRequest(800, 200)
    found = find_break_even(ReplicaCost(2.0, 2_000), CHEAP, request)
    assert found.floor_requests_per_s * 3600 * request.cost(CHEAP) == pytest.approx(2.0)
    assert found.count_users(2.0) == pytest.approx(found.floor_requests_per_s * 1800)
    demand = compare_at_demand(ReplicaCost(2.0, 2_000), CHEAP, request, found.floor_requests_per_s)
    assert demand.utilization_share * demand.replicas == pytest.approx(found.floor_share)
    assert vary_inputs(ReplicaCost(2.0, 2_000), CHEAP, request)[0].floor_share == found.floor_share


def test_marginal_gpu_grows_into_its_work() -> None:
    """A GPU nobody needs today is judged by its whole life when demand grows, and by its value when nothing can be rented."""
    curve = load_duration(DAY)
    assert judge_gpu(curve, 90, 1.2, 3.0).verdict == "bring demand first"
    grown = judge_gpu(curve, 90, 1.2, 3.0, yearly_growth_share=0.5)
    assert grown.first_year_utilization_share == 0
    assert grown.utilization_share > 0.3
    assert judge_gpu(curve, 20, 1.2, 3.0, api_price_per_used_hour=0.8).verdict == "use the API"
    assert judge_gpu(curve, 70, 1.2, value_per_used_hour=5.0).verdict == "add it"
    assert "bring demand first" in judge_gpu(curve, 500, 1.2, 3.0).sentence


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: OwnedServer(server_price=300_000, life_years=-3),
            "life_years must be at least 0.1 and at most 50, got -3",
        ),
        (lambda: OwnedServer(server_price=0), "server_price"),
        (lambda: OwnedServer(server_price=1, residual_share=1.2), "residual_share"),
        (lambda: OwnedServer(server_price=1, pue=0.9), "pue"),
        (lambda: OwnedServer(server_price=1, availability_share=0), "availability_share"),
        (lambda: OwnedServer(server_price=1, colocation_price_per_kw_month=-1), "leave it out"),
        (lambda: compute_owned_cost(OwnedServer(server_price=1)).break_even_share(0), "rented GPU-hour"),
        (lambda: Tier("free"), "one must be above 0"),
        (lambda: find_cheapest_mix(load_duration(DAY), ()), "at least one tier"),
        (lambda: load_duration([]), "empty"),
        (lambda: load_duration([0, 0]), "0 GPUs in every interval"),
        (lambda: load_duration([1, -1]), "not negative"),
        (lambda: load_duration([1, 2], [1]), "weights"),
        (lambda: choose_owned_gpus(load_duration(DAY), 1.0, 0), "cost something"),
        (lambda: own_for_normal_demand(1, 0, 1, 2), "standard deviation"),
        (lambda: ApiPrice(0, 0), "price is zero"),
        (lambda: MeanRequest(0, 0), "try 500"),
        (lambda: ReplicaCost(1, 0), "throughput"),
        (lambda: compare_at_demand(ReplicaCost(1, 1), CHEAP, MeanRequest(1, 1), 1, 0.5), "at least the mean"),
        (lambda: SpotOffer(1, 0), "hours between interruptions"),
        (lambda: cost_spot(SpotOffer(1, 0.0001)), "finish nothing"),
        (lambda: Commitment(0, 1, 2, 1), "committed GPUs"),
        (lambda: depreciate(1, 2, 3), "residual"),
        (lambda: average_price_share(-1, 4, 0.1), "above zero"),
        (lambda: judge_gpu(load_duration(DAY), 1, 0), "owned GPU-hour"),
        (lambda: judge_gpu(load_duration(DAY), 1, 1, rent_price_per_used_hour=0), "leave it out"),
    ],
)
def test_impossible_inputs_name_themselves(call: object, says: str) -> None:
    """An input that cannot be is refused in one line that names it."""
    with pytest.raises(PlanError, match=says) as refused:
        call()  # type: ignore[operator]
    assert "\n" not in str(refused.value)
