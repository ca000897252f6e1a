"""Levers on the size of a cluster: the answers are those of the planner's scheduler on the jobs of the books."""

from pathlib import Path

import pytest
from tests.insight.levers.fleet import held, keep

from loadfactor.books.losses.facts import read_losses
from loadfactor.insight.levers.cluster_levers import LONGER_WAIT_S, PACKED, SPREAD, find_fewest, list_jobs, replay
from loadfactor.insight.savings import find_savings
from loadfactor.planner.sizing.cluster import Cluster, simulate
from loadfactor.planner.sizing.cluster.jobs import make_jobs


def test_a_smaller_cluster_is_what_the_replay_says(tmp_path: Path) -> None:
    """Twelve jobs of 50 min, one after another on one of three nodes: one node does, and two are free.

    Scaling down takes what it can before; packing and pooling find nothing left to give back.
    """
    gpus = {"a": "n1", "b": "n2", "c": "n3"}
    jobs = [row for k in range(12) for row in held(f"j{k}", ["abc"[k % 3]], k, k + 5 / 6)]
    work = {gpu: [(k, k + 5 / 6, 1.0) for k in range(12) if "abc"[k % 3] == gpu] for gpu in gpus}
    books = keep(tmp_path, gpus, 12, jobs, work)
    found = find_savings(books)
    hours = {lever.lever: lever.gpu_hours for lever in found.levers}
    # each node is free for 2 h 10 min four times but for one of 10 min (c at its end) and starts of 1 h and 2 h (b, c)
    with read_losses(books) as facts:
        (pool,) = facts.pools
        replayed = list_jobs(pool.jobs, pool.node_gpus)
    assert replayed is not None
    mine = make_jobs([k * 3600 for k in range(12)], [1] * 12, [3000] * 12)
    assert replayed.submit_s.tolist() == mine.submit_s.tolist()
    assert replayed.duration_s.tolist() == mine.duration_s.tolist()
    few = find_fewest(replayed, pool.node_gpus, SPREAD, replay(replayed, pool.node_gpus, SPREAD).wait_s + LONGER_WAIT_S)
    assert few is not None
    assert few.node_gpus == (1,)
    assert few.wait_s == simulate(mine, Cluster((1,)), SPREAD).gpu_weighted_wait_s == 0.0
    free = 36 - 10.0
    assert found.lost_gpu_hours == pytest.approx(free)
    after_scaling = free - hours["autoscale_down"]
    assert hours.get("smaller_cluster", 0.0) == pytest.approx(max(0.0, after_scaling - max(0.0, free - 2 * 12)))
    assert {"pack_nodes", "pool_clusters"}.isdisjoint(hours)


def test_fewest_is_the_fewest() -> None:
    """On bursts of gangs, one node fewer than the answer makes jobs wait longer than allowed, spread or packed."""
    jobs = make_jobs(
        [h * 3600 for h in range(30) for _ in range(4)], [4, 2, 1, 1] * 30, [5400, 9000, 3600, 12_000] * 30
    )
    nodes = (4,) * 10
    allowed = simulate(jobs, Cluster(nodes), SPREAD).gpu_weighted_wait_s + LONGER_WAIT_S
    for policy in (SPREAD, PACKED):
        few = find_fewest(jobs, nodes, policy, allowed)
        assert few is not None
        assert few.wait_s == simulate(jobs, Cluster(few.node_gpus), policy).gpu_weighted_wait_s <= allowed
        assert simulate(jobs, Cluster(few.node_gpus[1:]), policy).gpu_weighted_wait_s > allowed


def test_pools_that_are_full_in_turns_are_put_together(tmp_path: Path) -> None:
    """Two pools of one node, each full in every other hour: together one node does, and the lever says so by the replay.

    Each job holds its node for 55 of 60 min, so no stretch is free for longer than what scaling down needs.
    """
    gpus = {"a": "n1", "b": "n2"}
    jobs = [row for k in range(24) for row in held(f"j{k}", ["ab"[k % 2]], k / 2, k / 2 + 0.45)]
    work = {gpu: [(k / 2, k / 2 + 0.45, 1.0) for k in range(24) if "ab"[k % 2] == gpu] for gpu in gpus}
    devices = {"a": "x", "b": "y"}
    books = keep(tmp_path, gpus, 12, jobs, work, pools=devices)
    found = {lever.lever: lever for lever in find_savings(books).levers}
    both = make_jobs([k * 1800 for k in range(24)], [1] * 24, [1620] * 24)
    assert simulate(both, Cluster((1,)), PACKED).gpu_weighted_wait_s == 0.0
    free = 24 - 24 * 0.45
    taken = found["autoscale_down"].gpu_hours if "autoscale_down" in found else 0.0
    assert found["pool_clusters"].gpu_hours == pytest.approx(free - taken - (free - 12))
    assert "24 jobs wait 0 min on 1 GPUs" in found["pool_clusters"].evidence[0]
