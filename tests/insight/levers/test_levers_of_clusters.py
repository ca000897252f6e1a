"""Levers on clusters, by hand: small jobs that share GPUs, other sizes of the cluster, spot and committed prices."""

import random
from pathlib import Path

import pytest
from tests.insight.levers.fleet import PRICE, START, held, keep
from tests.ledger.fleets import HOUR, MINUTE, Row

from loadfactor.books.books import Books
from loadfactor.books.losses.facts import read_losses
from loadfactor.insight.levers.cluster_levers import LONGER_WAIT_S, PACKED, SPREAD, find_fewest, list_jobs, replay
from loadfactor.insight.levers.lever import PriceSaving
from loadfactor.insight.levers.offers import PriceOffers
from loadfactor.insight.levers.share_gpus import share_time
from loadfactor.insight.savings import find_savings
from loadfactor.planner.economics.renting import SpotOffer, cost_spot
from loadfactor.planner.sizing.cluster import Cluster, simulate
from loadfactor.planner.sizing.cluster.jobs import make_jobs

GIB = 2**30
HOURS = 10


FLEETS = {
    "sevenths": (8, 0.1, 20),  # two of three GPUs
    "thirds": (8, 0.2, 20),
    "halves": (30, 0.2, 10),  # by memory: two GPUs for three jobs
    "full": (50, 0.2, None),
    "busy": (8, 0.6, None),
    "unknown": (None, 0.2, None),  # nobody knows whether it would fit
}
"""GiB of 80 in use, activity, and GPU-hours that are saved of three jobs that held a GPU each for ten hours."""


@pytest.fixture(scope="module")
def saved_gpu_hours(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, float]:
    """What the lever saves of each of these fleets, which are a pool and a team each."""
    gpus, pools, samples, allocations = dict[str, str](), dict[str, str](), list[Row](), list[Row]()
    for team, (memory_gib, active, _) in FLEETS.items():
        memory = {} if memory_gib is None else {"mem_used_bytes": memory_gib * GIB, "mem_total_bytes": 80.0 * GIB}
        for gpu in (f"{team}-{name}" for name in "abc"):
            gpus[gpu], pools[gpu] = f"{team}-n", team
            allocations += held(f"job-{gpu}", [gpu], 0, HOURS, team=team)
            for m in range(5, HOURS * 60 + 1, 5):
                times = {"from_utc": START + (m - 5) * MINUTE, "to_utc": START + m * MINUTE}
                samples.append({"device_id": gpu, **times, "sm_active_share": active, **memory})
    books = keep(tmp_path_factory.mktemp("shared"), gpus, HOURS, allocations, {}, pools=pools, samples=samples)
    return {row.by["team"]: row.levers.get("share_gpus", 0.0) / PRICE for row in find_savings(books, ("team",)).rows}


@pytest.mark.parametrize("team", FLEETS)
def test_small_jobs_share_a_gpu(saved_gpu_hours: dict[str | None, float], team: str) -> None:
    """Three jobs fit into as many GPUs as their activity and their peak of memory say; all of what is spared was inactive."""
    assert saved_gpu_hours[team] == pytest.approx(FLEETS[team][2] or 0.0)


def share_by_hand(spans: list[tuple[int, int]], on_one: int) -> int:
    """The same, instant by instant: a span goes to the GPU that was taken first of those with room, and leaves at its end."""
    gpus: list[list[int]] = []
    waiting = sorted(spans)
    held = 0
    for now in range(max(end for _, end in spans)):
        gpus = [left for gpu in gpus if (left := [end for end in gpu if end > now])]
        while waiting and waiting[0][0] == now:
            end = waiting.pop(0)[1]
            for gpu in gpus:
                if len(gpu) < on_one:
                    gpu.append(end)
                    break
            else:
                gpus.append([end])
        held += len(gpus)
    return held


@pytest.mark.parametrize("seed", range(20))
def test_the_replay_is_what_happens_instant_by_instant(seed: int) -> None:
    """GPUs are held from their first to their last run, and a new run opens a GPU only where all others are full."""
    rnd = random.Random(seed)
    spans = [(start, start + rnd.randint(1, 40)) for start in (rnd.randrange(100) for _ in range(rnd.randint(1, 30)))]
    on_one = rnd.choice((2, 3, 7))
    found = share_time(spans, on_one)
    assert found == share_by_hand(spans, on_one)
    assert found <= sum(end - start for start, end in spans)


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


def make_books(folder: Path) -> Books:
    """Two GPUs: one held all the time by a job that reports checkpoints of 60 s, the other for four of ten hours by one without."""
    return keep(
        folder,
        {"a": "n", "b": "n"},
        HOURS,
        [*held("safe", ["a"], 0, HOURS), *held("short", ["b"], 0, 4)],
        {"a": [(0, HOURS, 1.0)], "b": [(0, 4, 1.0)]},
        job_sections=[
            {
                "job_id": "safe",
                "kind": "checkpoint",
                "from_utc": START + hour * HOUR,
                "to_utc": START + hour * HOUR + MINUTE,
            }
            for hour in range(1, HOURS)
        ],
    )


def find(books: Books, offers: PriceOffers) -> dict[str, PriceSaving]:
    savings = find_savings(books, offers=offers)
    assert savings.saved_at_most == sum(lever.saved or 0 for lever in savings.levers)  # prices are apart
    return {lever.lever: lever for lever in savings.price_levers}


@pytest.mark.long
def test_spot_is_for_jobs_with_checkpoints(tmp_path: Path) -> None:
    """Ten hours at 2 dollars cost the spot price over the share of kept work; the job without checkpoints stays."""
    books = make_books(tmp_path)
    found = find(books, PriceOffers(1.0, 12.0))
    useful = cost_spot(SpotOffer(1.0, 12.0, 60.0)).cost_per_useful_gpu_hour
    assert {*found} == {"spot"}
    assert found["spot"].saved == pytest.approx(10 * (2 - useful))
    assert found["spot"].gpu_hours == pytest.approx(10)
    assert find(books, PriceOffers(1.95, 1.0)) == {}  # interruptions cost more than the lower price saves
    assert find(books, PriceOffers()) == {}


@pytest.mark.long
def test_the_base_is_committed_and_the_peak_rented(tmp_path: Path) -> None:
    """At 1.5 of 2 dollars one GPU is worth a commitment, used all the time; the other, 40 % of the time, is not, but at 0.7 is."""
    books = make_books(tmp_path)
    found = find(books, PriceOffers(committed_per_gpu_hour=1.5))
    assert found["committed_base"].saved == pytest.approx(10 * 0.5)
    assert found["committed_base"].gpu_hours == pytest.approx(10)
    found = find(books, PriceOffers(committed_per_gpu_hour=0.7))
    assert found["committed_base"].saved == pytest.approx(14 * 2 - 20 * 0.7)
    assert find(books, PriceOffers(committed_per_gpu_hour=2.1)) == {}


def test_the_base_lies_under_what_spot_leaves(tmp_path: Path) -> None:
    """Where spot takes ten of fourteen hours, the base is chosen for the rest, and nothing is saved twice."""
    found = find(make_books(tmp_path), PriceOffers(1.0, 12.0, 0.1))
    assert {*found} == {"spot", "committed_base"}
    assert found["spot"].saved + found["committed_base"].saved < 14 * 2
