"""Levers on the size of the cluster, by replay of the window's jobs: fewer nodes, jobs packed onto them, pools put together.

Each goes on from the nodes that the one before found. What a smaller cluster would not have left free is saved, as far as the
levers before left it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loadfactor.base.errors import PlanError
from loadfactor.base.units import S_PER_MIN
from loadfactor.books.losses.pool_jobs import PoolHistory, PoolJob
from loadfactor.insight.levers.lever import LOW, MEDIUM, LeverResult, LossLever, Situation, say_duration, say_hours
from loadfactor.insight.levers.remainder import TakenLoss
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
    """The waits that jobs would have had. Raises PlanError where one does not fit."""
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


WAIT_MIN: Final = LONGER_WAIT_S // S_PER_MIN


def _find_smaller(situation: Situation) -> LeverResult:
    return _resize(
        situation, SPREAD, "Fewer nodes would have done", "Give back {less} GPUs in whole nodes, or do not renew them."
    )


def _find_packed(situation: Situation) -> LeverResult:
    return _resize(
        situation,
        PACKED,
        "Packed onto the fullest node that has room",
        "Pack jobs (Slurm: without CR_LLN and LLN=YES; Kubernetes: scoringStrategy MostAllocated) and give back {less} GPUs.",
    )


def _resize(situation: Situation, policy: SchedulingPolicy, change: str, action: str) -> LeverResult:
    """The fewest nodes of each pool under a policy, with the waits of today's replay and some minutes."""
    taken: list[TakenLoss] = []
    sentences = []
    less = jobs_seen = 0
    for pool in situation.facts.pools:
        now = situation.sizes.get(pool.key, pool.node_gpus)
        jobs = list_jobs(pool.jobs, pool.node_gpus)
        if jobs is None:
            continue
        today = replay(jobs, pool.node_gpus, SPREAD)
        found = find_fewest(jobs, now, policy, today.wait_s + LONGER_WAIT_S)
        if found is None or found.gpus >= sum(now):
            continue
        situation.sizes[pool.key] = found.node_gpus
        parts = _take(situation, [pool], pool.gpus - found.gpus)
        taken += parts
        less += sum(now) - found.gpus
        jobs_seen += len(jobs)
        sentences.append(f"{change}: {_compare(pool.name, len(jobs), today, found)}, {_say(parts)}.")
    return LeverResult(
        tuple(taken), tuple(sentences), action.format(less=less), MEDIUM if jobs_seen >= MANY_JOBS else LOW
    )


def _find_pooled(situation: Situation) -> LeverResult:
    """Pools of one accelerator as one cluster, with the mean of their waits and some minutes."""
    alike: dict[str | None, list[PoolHistory]] = {}
    for pool in situation.facts.pools:
        alike.setdefault(pool.accelerator, []).append(pool)
    taken: list[TakenLoss] = []
    sentences = []
    jobs_seen = 0
    for accelerator, pools in alike.items():
        nodes = sorted((g for pool in pools for g in situation.sizes.get(pool.key, pool.node_gpus)), reverse=True)
        history = [job for pool in pools for job in pool.jobs]
        jobs = list_jobs(history, nodes) if len(pools) > 1 else None
        if jobs is None:
            continue
        waited = gpus = 0.0
        for pool in pools:
            own = list_jobs(pool.jobs, pool.node_gpus)
            if own is not None:
                waited += replay(own, pool.node_gpus, SPREAD).wait_s * own.gpus.sum()
                gpus += own.gpus.sum()
        apart = Replay(tuple(g for pool in pools for g in pool.node_gpus), waited / gpus if gpus else 0.0)
        found = find_fewest(jobs, nodes, PACKED, apart.wait_s + LONGER_WAIT_S)
        if found is None or found.gpus >= sum(nodes):
            continue
        parts = _take(situation, pools, apart.gpus - found.gpus)
        taken += parts
        jobs_seen += len(jobs)
        names = f"{len(pools)} pools of {accelerator or 'one kind of GPU'} as one"
        sentences.append(f"{_compare(names, len(jobs), apart, found)}, {_say(parts)}.")
    return LeverResult(
        tuple(taken),
        tuple(sentences),
        "Put the pools behind one scheduler with a fair share for each team (Slurm: one partition with QOS; Kueue: one cohort),"
        " and give back what is left over.",
        MEDIUM if jobs_seen >= MANY_JOBS else LOW,
    )


def _take(situation: Situation, pools: list[PoolHistory], fewer_gpus: int) -> list[TakenLoss]:
    """The part of the unallocated time of these pools lies above what fewer GPUs would have left, as far as it is left."""
    nodes = {node for pool in pools for node in pool.nodes}
    left = situation.left.left_of_nodes("unallocated", nodes)
    still_free = max(0.0, situation.free_hours(nodes) - fewer_gpus * situation.facts.hours)
    return situation.left.take_of_nodes("unallocated", left - still_free, nodes)


def _compare(name: str, jobs: int, before: Replay, after: Replay) -> str:
    waits = " instead of ".join(f"{say_duration(r.wait_s)} on {r.gpus:,} GPUs" for r in (after, before))
    return f"{name}: in a replay {jobs:,} jobs wait {waits} (mean by GPU)"


def _say(parts: list[TakenLoss]) -> str:
    return f"{say_hours(sum(part.gpu_hours for part in parts))} that no lever before saved"


_RISK: Final = f"jobs wait up to {WAIT_MIN} min longer on average, and growth finds no room"
FREE: Final = ("unallocated",)
SMALLER_CLUSTER = LossLever("smaller_cluster", "Run fewer nodes", "medium", "medium", _RISK, _find_smaller, FREE)
PACK_NODES = LossLever("pack_nodes", "Pack jobs onto fewer nodes", "medium", "low", _RISK, _find_packed, FREE)
POOL_CLUSTERS = LossLever("pool_clusters", "Put pools together", "high", "medium", _RISK, _find_pooled, FREE)
