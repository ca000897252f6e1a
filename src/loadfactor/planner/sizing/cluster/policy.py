"""Policies of a cluster's queue: its order, who may pass whom, who may be stopped; and those that have a name."""

from dataclasses import dataclass
from typing import Literal

from loadfactor.base.units import S_PER_HOUR

Order = Literal["fifo", "shortest", "priority"]
Backfill = Literal["none", "easy", "any"]
Preempt = Literal["none", "shortest remaining", "shortest remaining gpu time", "least attained", "priority"]


@dataclass(frozen=True)
class SchedulingPolicy:
    """How the queue is worked off.

    `order`: first come, shortest first, or by priority (then first come). `backfill`: "none" lets nobody pass the first in
    line, "easy" lets those pass who do not delay it, "any" starts whoever fits and may starve large gangs. `preempt` assigns all
    GPUs again at every event (or every `interval_s`), stopping jobs that keep their progress and pay `restart_s` when they
    start again; "least attained" puts jobs into queues by the GPU-time they had, with edges at `queue_edges_gpu_s`. `spread`
    puts gangs on the emptiest node instead of the fullest. `turn_away` loses what cannot start at once.
    """

    order: Order = "fifo"
    backfill: Backfill = "easy"
    preempt: Preempt = "none"
    spread: bool = False
    turn_away: bool = False
    interval_s: float = 0.0
    restart_s: float = 0.0
    queue_edges_gpu_s: tuple[float, ...] = (float(S_PER_HOUR),)
    backfill_depth: int = 100


SCHEDULERS: dict[str, tuple[SchedulingPolicy, str]] = {
    "slurm": (SchedulingPolicy(), "first come, backfill that does not delay the first in line"),
    "fifo": (SchedulingPolicy(backfill="none"), "strictly first come, nobody passes"),
    "any": (
        SchedulingPolicy(backfill="any"),
        "whoever fits starts, as most Kubernetes queues do; large gangs may starve",
    ),
    "shortest": (SchedulingPolicy(order="shortest"), "shortest time limit first, with backfill"),
    "priority": (SchedulingPolicy(order="priority"), "highest priority first, with backfill, nobody is stopped"),
    "preempt": (
        SchedulingPolicy(preempt="priority", restart_s=300.0),
        "higher priority stops lower, which restarts after 5 min of extra work",
    ),
    "srtf": (
        SchedulingPolicy(preempt="shortest remaining", restart_s=60.0),
        "shortest remaining time first, stopping others",
    ),
    "srsf": (
        SchedulingPolicy(preempt="shortest remaining gpu time", restart_s=60.0),
        "shortest remaining GPU-time first, stopping others",
    ),
    "fair": (
        SchedulingPolicy(preempt="least attained", restart_s=60.0),
        "least GPU-time so far first, stopping others (Tiresias)",
    ),
}
