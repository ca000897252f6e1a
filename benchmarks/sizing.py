"""Speed of sizing answers: simulated jobs, closed-form points, and a year's trace swept over fifty cluster sizes.

`jobs_per_s` simulates gangs of 1 to 32 GPUs at 95 % load on 1,000 nodes of 8 with EASY backfill on one core (compilation left out).
"""

import time

from loadfactor.base.units import H_PER_YEAR, S_PER_HOUR
from loadfactor.planner.sizing.closed_forms import queue_wait
from loadfactor.planner.sizing.cluster import Cluster, SchedulingPolicy, simulate
from loadfactor.planner.sizing.cluster.jobs import draw_poisson_jobs

NAME = "sizing"
SIZES, SHARES = (1, 2, 4, 8, 16, 32), (0.50, 0.15, 0.10, 0.20, 0.03, 0.02)
MEAN_GPUS = sum(size * share for size, share in zip(SIZES, SHARES, strict=True))


def run(quick: bool) -> dict[str, float]:
    """The three speeds."""
    warm_up = draw_poisson_jobs(100, 1.0, 1.0)
    simulate(warm_up, Cluster.of(4), SchedulingPolicy(backfill="easy"))
    simulate(warm_up, Cluster.of(4), SchedulingPolicy(backfill="any"))
    return {
        "jobs_per_s": _jobs_per_s(100_000 if quick else 500_000),
        "sizing_points_per_s": _points_per_s(2_000 if quick else 20_000),
        "year_sweep_50_sizes_s": _sweep_s(50_000 if quick else 400_000),
    }


def _jobs_per_s(jobs: int) -> float:
    rate = 8000 * 0.95 / MEAN_GPUS / S_PER_HOUR
    trace = draw_poisson_jobs(jobs, rate, S_PER_HOUR, service="lognormal", gpus=SIZES, gpu_shares=SHARES, seed=1)
    began = time.perf_counter()
    simulate(trace, Cluster.of(1000), SchedulingPolicy(backfill="easy"))
    return jobs / (time.perf_counter() - began)


def _points_per_s(points: int) -> float:
    """The wait of M/G/k and its p99 at 110 to 289 servers."""
    began = time.perf_counter()
    for point in range(points):
        servers = 110 + point % 180
        wait = queue_wait(0.1, 1000.0, servers, service_cv2=4.0)
        wait.quantile_s(0.99)
    return points / (time.perf_counter() - began)


def _sweep_s(jobs: int) -> float:
    """Fifty cluster sizes from 16 to 65 nodes under a year of jobs that keep 100 GPUs busy."""
    rate = jobs / (H_PER_YEAR * S_PER_HOUR)
    service_s = 100 / (rate * MEAN_GPUS)
    trace = draw_poisson_jobs(jobs, rate, service_s, service="lognormal", gpus=SIZES, gpu_shares=SHARES, seed=2)
    began = time.perf_counter()
    for nodes in range(16, 66):
        simulate(trace, Cluster.of(nodes), SchedulingPolicy(backfill="easy"))
    return time.perf_counter() - began
