"""Levers on the size of the cluster, by replay of the window's jobs: fewer nodes, jobs packed onto them, pools put together.

Each goes on from the nodes that the one before found. What a smaller cluster would not have left free is saved, as far as the
levers before left it.
"""

from typing import Final

from loadfactor.base.units import S_PER_MIN
from loadfactor.books.losses.pool_jobs import PoolHistory
from loadfactor.insight.levers.lever import LOW, MEDIUM, LeverResult, LossLever
from loadfactor.insight.levers.remainder import TakenLoss
from loadfactor.insight.levers.replay import (
    LONGER_WAIT_S,
    MANY_JOBS,
    PACKED,
    SPREAD,
    Replay,
    find_fewest,
    list_jobs,
    replay,
)
from loadfactor.insight.levers.situation import Situation
from loadfactor.insight.levers.wording import say_duration, say_hours
from loadfactor.planner.sizing.cluster import SchedulingPolicy

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


def _resize(situation: Situation, policy: SchedulingPolicy, said: str, action: str) -> LeverResult:
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
        sentences.append(f"{said}: {_compare(pool.name, len(jobs), today, found)}, {_say(parts)}.")
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
    """What of the unallocated time of these pools lies above what fewer GPUs would have left, as far as it was not taken before."""
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
SMALLER_CLUSTER = LossLever("smaller_cluster", "Run fewer nodes", "medium", "medium", _RISK, _find_smaller)
PACK_NODES = LossLever("pack_nodes", "Pack jobs onto fewer nodes", "medium", "low", _RISK, _find_packed)
POOL_CLUSTERS = LossLever("pool_clusters", "Put pools together", "high", "medium", _RISK, _find_pooled)
