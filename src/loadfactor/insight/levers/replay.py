"""The history of a pool replayed by the planner's scheduler: how few nodes would have done, with nearly the same waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loadfactor.base.errors import PlanError
from loadfactor.base.units import S_PER_MIN
from loadfactor.books.losses.pool_jobs import PoolJob
from loadfactor.planner.sizing.cluster import Cluster, SchedulingPolicy, simulate
from loadfactor.planner.sizing.cluster.jobs import Jobs, make_jobs

SPREAD: Final = SchedulingPolicy(spread=True)
"""First come with backfill; a job goes to the emptiest node, as where nothing packs."""
PACKED: Final = SchedulingPolicy()
"""The same; a job goes to the fullest node that has room."""
LONGER_WAIT_S: Final = 5 * S_PER_MIN
"""A smaller cluster may have jobs wait so much longer, on average by GPU."""
LEAST_JOBS: Final = 10
"""Fewer are no history."""
MANY_JOBS: Final = 200


@dataclass(frozen=True)
class Replay:
    """Nodes by their GPUs, and the mean wait of a replay there, each job counted by its GPUs."""

    node_gpus: tuple[int, ...]
    wait_s: float

    @property
    def gpus(self) -> int:
        """All of it."""
        return sum(self.node_gpus)


def list_jobs(history: Sequence[PoolJob], node_gpus: Sequence[int]) -> Jobs | None:
    """The jobs as a simulation takes them, without those that the nodes could not hold; None where there are too few."""
    most = Cluster(tuple(node_gpus)).largest_job_gpus
    kept = [job for job in history if job.gpus <= most]
    if len(kept) < LEAST_JOBS:
        return None
    columns = [[getattr(job, name) for job in kept] for name in ("submit_s", "gpus", "duration_s")]
    return make_jobs(*columns)


def replay(jobs: Jobs, node_gpus: Sequence[int], policy: SchedulingPolicy) -> Replay:
    """What jobs would have waited. Raises PlanError where one does not fit."""
    return Replay(tuple(node_gpus), simulate(jobs, Cluster(tuple(node_gpus)), policy).gpu_weighted_wait_s)


def find_fewest(jobs: Jobs, node_gpus: Sequence[int], policy: SchedulingPolicy, longest_wait_s: float) -> Replay | None:
    """The fewest of these nodes, the first ones, at which jobs wait no longer than that; None where all of them do not do.

    >>> jobs = make_jobs([0, 7200], [8, 8], [3600, 3600])
    >>> find_fewest(jobs, (8, 8, 8), PACKED, 0.0)
    Replay(node_gpus=(8,), wait_s=0.0)
    """
    low, high = 1, len(node_gpus)
    best: Replay | None = None
    while low <= high:
        middle = (low + high) // 2
        try:
            found = replay(jobs, node_gpus[:middle], policy)
        except PlanError:  # a job that is larger
            low = middle + 1
            continue
        if found.wait_s <= longest_wait_s:
            best, high = found, middle - 1
        else:
            low = middle + 1
    return best
