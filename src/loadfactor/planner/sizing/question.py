"""Question of a size, made from what `plan size` takes and the prices chosen."""

from collections.abc import Sequence
from dataclasses import replace

from loadfactor.base.units import PERCENT
from loadfactor.planner.sizing.cluster.policy import SCHEDULERS
from loadfactor.planner.sizing.request import SizeRequest
from loadfactor.planner.sizing.size_plan import SizeQuestion
from loadfactor.planner.sizing.sizes import SizeCost


def make_question(
    request: SizeRequest,
    price_per_gpu_hour: float,
    rent_price: float,
    have_gpus: int | None = None,
    team_of_job: Sequence[str] | None = None,
) -> SizeQuestion:
    """The question. `have_gpus` holds where the request names none; waiting costs as much as a GPU-hour where nothing is said."""
    delay_cost = price_per_gpu_hour if request.delay_cost is None else request.delay_cost
    policy, _ = SCHEDULERS[request.scheduler]
    return SizeQuestion(
        cost=SizeCost(price_per_gpu_hour, delay_cost),
        policy=replace(policy, interval_s=request.scheduler_interval_s, spread=request.spread),
        gpus_per_node=request.gpus_per_node,
        have_gpus=have_gpus if request.gpus is None else request.gpus,
        sizes=request.sizes,
        teams=request.teams,
        team_correlation=request.team_correlation,
        team_of_job=team_of_job,
        rent_price=rent_price,
        api_price=request.api_price_per_gpu_hour,
        value=request.value_per_gpu_hour,
        yearly_growth_share=request.growth_percent / PERCENT,
        life_years=request.life_years,
    )
