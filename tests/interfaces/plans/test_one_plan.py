"""Plans agree with each other: what so many users cost is the same on every page that says it."""

import os
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.long import rest_long

import loadfactor
from loadfactor.base.units import H_PER_MONTH
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.prices import choose_price
from loadfactor.interfaces.plans.inputs import ask_serving
from loadfactor.planner.hardware.workload import ServiceRequest
from loadfactor.planner.serving.fleet_size import rank_layouts, size_fleet
from loadfactor.planner.serving.layouts import FixedLayout


def draw_service(random: Random) -> dict[str, Any]:
    """A service small enough that its day is simulated within a second or two."""
    return {
        "model": random.choice(("llama-3.1-8b", "llama-3.1-70b")),
        "requests_per_user": random.choice((5.0, 20.0)),
        "input_tokens": float(random.choice((200, 800, 3000))),
        "output_tokens": float(random.choice((50, 200, 600))),
        "tpot": float(random.choice((30, 50, 80))),
        "shape": random.choice(("office", "daily", "flat")),
    }


PLAN_FLEETS = int(os.environ.get("PLAN_FLEETS", "6"))
"""So many are compared; 200 take forty minutes of processor time."""


@pytest.mark.parametrize("seed", [*rest_long(range(PLAN_FLEETS)), pytest.param(157, marks=pytest.mark.long)])
def test_what_users_cost_is_the_same_on_every_page(seed: int) -> None:
    """Serve, break-even, own and size say one fleet, one bill and one cost per token; the floor is where serve says so, too."""
    random = Random(seed)
    service, users = draw_service(random), float(random.randint(200, 8_000))
    price, api_price = round(random.uniform(1, 6), 2), round(10 ** random.uniform(-1.5, 1), 3)
    serve = loadfactor.plan_serving(**service, users=users, price_per_gpu_hour=price).data
    even = loadfactor.plan_breakeven(**service, users=users, price_per_gpu_hour=price, api_price=(api_price,)).data
    own = loadfactor.plan_ownership(**service, users=users, rent_price=price).data
    size = loadfactor.plan_size(**service, users=users, rent_price=price).data
    ways = {way.name: way for way in even.ways}
    assert serve.gpus == ways["rented"].gpus == ways["owned"].gpus == size.peak_gpus
    assert ways["rented"].cost_per_month == pytest.approx(serve.cost_per_hour * H_PER_MONTH)
    today = next(point for point in serve.crowd if point.demand_factor == 1)
    served = pytest.approx(serve.total.cost_per_mtok, rel=1e-2)  # requests too long for a cache are turned away
    assert ways["rented"].cost_per_mtok == served
    assert today.cost_per_mtok == served
    owned_hour = own.cost_per_available_gpu_hour
    assert ways["owned"].cost_per_month == pytest.approx(serve.gpus * owned_hour * H_PER_MONTH)
    assert (size.price_per_gpu_hour, size.keep_gpus) == (pytest.approx(owned_hour), own.owned_gpus)
    assert even.users == pytest.approx(users)
    if even.floor_users is None:
        assert serve.total.cost_per_mtok >= api_price
    elif even.floor_users < 100_000:  # more take long to simulate
        floor = loadfactor.plan_serving(**service, users=even.floor_users, price_per_gpu_hour=price).data
        assert floor.total.cost_per_mtok == pytest.approx(api_price, rel=1e-2)


@pytest.mark.parametrize("seed", rest_long(range(20)))
def test_no_smaller_fleet_keeps_the_objective(seed: int) -> None:
    """The replicas that are recommended keep the objective in the simulation, and one less does not."""
    random = Random(seed)
    asked = ServiceRequest(**draw_service(random))
    question = ask_serving(asked, 10 ** random.uniform(3.5, 5), choose_price("h100-sxm", None), seed=seed)
    morning = replace(question, days=0.5)
    fleet = size_fleet(morning)
    assert fleet.keeps(morning.wanted_share)
    if fleet.replicas > 1:
        assert not size_fleet(replace(morning, replicas=fleet.replicas - 1)).keeps(morning.wanted_share)


@pytest.mark.long
def test_a_layout_that_equations_rank_later_is_taken_where_the_first_needs_more_gpus() -> None:
    """Two ranks that equations choose miss the objective on 4 GPUs of theirs; one replica of four ranks keeps it."""
    service = ServiceRequest(**draw_service(Random(156)))
    question = replace(ask_serving(service, 1_900, choose_price("h100-sxm", None)), days=0.7)
    two, four = (replace(question, fixed=FixedLayout(tp=(ranks,))) for ranks in (2, 4))
    fleets = [size_fleet(q) for q in (question, two, four)]
    assert [fleet.gpus for fleet in fleets] == [4, 6, 4]
    assert rank_layouts(question, fleets[0].considered)[0].replica.layout == fleets[1].chosen.replica.layout


def test_a_plan_for_ten_billion_users_simulates_no_more_than_one_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes closer than half a percent are not told apart by a part of the fleet, so they are not tried; it keeps the objective."""
    monkeypatch.setattr("loadfactor.planner.serving.fleet_size.MOST_SIMULATED_REQUESTS", 20_000)
    question = replace(ask_serving(ServiceRequest(), 1e10, choose_price("h100-sxm", None)), days=0.4)
    tried: list[str] = []
    fleet = size_fleet(question, tried.append)
    assert fleet.replicas > 10_000
    assert fleet.keeps(question.wanted_share)
    assert len(tried) <= 8


@pytest.mark.long
def test_a_fleet_of_which_a_part_is_simulated_is_sized_in_whole_replicas() -> None:
    """A million users of DeepSeek take fewer replicas than multiples of the simulated part, and what is counted is the fleet's."""
    page = loadfactor.plan_serving(model="deepseek-v3", accelerator="b200", users=1e6)
    plan = page.data
    assert plan.simulated_replicas < plan.replicas < 60
    fewer = loadfactor.plan_serving(model="deepseek-v3", accelerator="b200", users=1e6, replicas=plan.replicas - 1).data
    assert (plan.slo.kept, fewer.slo.kept) == (True, False)
    hours = page.document.sections[1].tables[0].text_rows()
    assert {row[2] for row in hours} == {str(plan.replicas)}


def test_plans_of_a_service_take_the_release_of_its_engine() -> None:
    """`--release` reaches the constants that `plan serve` and the plans that ask it use."""
    service = ServiceRequest(accelerator="b200-sxm", release="0.19")
    asked = ask_serving(service, 1_000, choose_price("b200-sxm", None))
    assert asked.engine == read_engine_constants(accelerator("b200-sxm"), "vllm", "0.19")
