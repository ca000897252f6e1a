"""Lever: give free nodes back while nobody waits, and get them again when somebody does."""

from typing import Final

from loadfactor.base.units import S_PER_MIN
from loadfactor.insight.levers.lever import MEDIUM, LeverResult, LossLever
from loadfactor.insight.levers.remainder import TakenLoss
from loadfactor.insight.levers.situation import Situation
from loadfactor.insight.levers.wording import say_hours, say_largest, say_times

LAG_MIN: Final = 30
"""Minutes of every free stretch that are paid all the same: until the node is given back, and until it is there again."""


def find(situation: Situation) -> LeverResult:
    """Free time of whole nodes beyond the lag, while nobody waited for their pool."""
    taken: list[TakenLoss] = []
    hours: dict[str, float] = {}
    count = 0
    for free in situation.facts.free:
        parts = situation.left.take_of_nodes(
            "unallocated", free.interval.gpu_hours_after(LAG_MIN * S_PER_MIN), (free.node,)
        )
        if parts:
            count += 1
            pool = "the pool without a name" if free.pool is None else f"pool {free.pool}"
            hours[pool] = hours.get(pool, 0.0) + sum(part.gpu_hours for part in parts)
            taken += parts
    if not count:
        return LeverResult()
    return LeverResult(
        tuple(taken),
        (
            f"Whole nodes stood free {say_times(count)} for longer than {LAG_MIN} min while nobody waited,"
            f" {say_hours(sum(hours.values()))} beyond that: {say_largest(hours)}.",
        ),
        f"Scale down what is rented after a node was free for some minutes (Slurm: SuspendTime=600; Cluster Autoscaler:"
        f" --scale-down-unneeded-time=10m); {LAG_MIN} min of every stretch are counted as paid. What is owned or committed cannot"
        " be given back: lend it, or see smaller_cluster.",
        MEDIUM,
    )


LEVER = LossLever(
    "autoscale_down", "Scale down while nobody waits", "medium", "low", "jobs wait until nodes start", find
)
