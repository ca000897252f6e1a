"""Cost of a spot GPU-hour once interruptions are paid for.

Every instance is interrupted once in `hours_between_interruptions` on average (Poisson); a job on m instances stops when any of
them goes: M = M₁/m. Effective price = spot price / efficiency. Where the provider's notice is long enough to save the state,
an interruption costs the checkpoint and the restart, M/(M + δ + R), and no periodic checkpoints are needed.
"""

from dataclasses import dataclass

from loadfactor.base.errors import PlanError
from loadfactor.base.units import S_PER_HOUR
from loadfactor.planner.hardware.checkpoint import LEAST_EFFICIENCY_SHARE, CheckpointPlan, plan_checkpoints


@dataclass(frozen=True)
class SpotOffer:
    """A spot price and how the job that uses it survives. `instances` is how many machines the job holds at once."""

    price_per_gpu_hour: float
    hours_between_interruptions: float
    checkpoint_s: float = 60.0
    restart_s: float = 600.0
    instances: int = 1
    notice_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.price_per_gpu_hour <= 0:
            raise PlanError(f"a spot GPU-hour must cost something, got {self.price_per_gpu_hour:g}")
        if self.hours_between_interruptions <= 0:
            raise PlanError(f"hours between interruptions must be positive, got {self.hours_between_interruptions:g}")
        if self.instances < 1:
            raise PlanError(f"a job holds at least 1 instance, got {self.instances}")


@dataclass(frozen=True)
class SpotCost:
    """What the offer comes to."""

    cost_per_useful_gpu_hour: float
    efficiency_share: float
    mtbf_s: float
    checkpoints: CheckpointPlan | None
    saved_within_notice: bool


def cost_spot(offer: SpotOffer) -> SpotCost:
    """The price of an hour of kept work.

    >>> cost = cost_spot(SpotOffer(price_per_gpu_hour=1.20, hours_between_interruptions=4))
    >>> round(cost.cost_per_useful_gpu_hour, 4), round(cost.efficiency_share, 4)
    (1.3726, 0.8743)
    """
    mtbf_s = offer.hours_between_interruptions * S_PER_HOUR / offer.instances
    saved = offer.notice_s > 0 and offer.checkpoint_s <= offer.notice_s
    plan = None if saved else plan_checkpoints(offer.checkpoint_s, mtbf_s, offer.restart_s)
    efficiency = mtbf_s / (mtbf_s + offer.checkpoint_s + offer.restart_s) if plan is None else plan.efficiency_share
    if efficiency < LEAST_EFFICIENCY_SHARE:
        raise PlanError(
            f"{offer.instances} spot instances that go every {mtbf_s:g} s finish nothing with a restart of {offer.restart_s:g} s; "
            "take fewer instances or on-demand"
        )
    return SpotCost(offer.price_per_gpu_hour / efficiency, efficiency, mtbf_s, plan, saved)
