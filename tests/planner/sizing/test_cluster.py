"""The cluster simulator agrees with queueing theory and published clusters, conserves work and says why jobs wait."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import PlanError
from loadfactor.interfaces.plans.size import read_counts
from loadfactor.planner.sizing.closed_forms import erlang_b, queue_wait
from loadfactor.planner.sizing.cluster import Cluster, SchedulingPolicy, average_batches, simulate
from loadfactor.planner.sizing.cluster.jobs import Jobs, draw_poisson_jobs, make_jobs
from loadfactor.planner.sizing.state_plan import explain_idle
from loadfactor.sources.demand import JobTrace, StateTrace
from loadfactor.sources.demand_files import read_demand

POLICIES = (
    SchedulingPolicy(backfill="none"),
    SchedulingPolicy(backfill="any"),
    SchedulingPolicy(backfill="easy"),
    SchedulingPolicy(backfill="easy", order="shortest"),
    SchedulingPolicy(backfill="any", order="priority", spread=True),
    SchedulingPolicy(preempt="shortest remaining"),
    SchedulingPolicy(preempt="shortest remaining gpu time", interval_s=7.0),
    SchedulingPolicy(preempt="least attained", queue_edges_gpu_s=(20.0, 200.0), restart_s=2.0),
    SchedulingPolicy(preempt="priority", restart_s=1.0),
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("arrivals_per_s", "servers", "service", "cv2", "jobs"),
    [
        (0.6, 1, "exponential", 1.0, 1_500_000),
        (1.4, 2, "exponential", 1.0, 1_500_000),
        (8.0, 10, "exponential", 1.0, 1_500_000),
        (0.8, 1, "constant", 0.0, 1_500_000),
        (0.5, 1, "hyperexponential", 4.0, 2_000_000),
    ],
)
def test_waits_of_textbook_queues(arrivals_per_s: float, servers: int, service: str, cv2: float, jobs: int) -> None:
    """M/M/k, M/D/1 and M/G/1: the simulated mean wait is within 2 % of the exact one, which its 99 % interval holds."""
    trace = draw_poisson_jobs(jobs, arrivals_per_s, 1.0, service=service, service_cv2=cv2 or 1.0, seed=1)  # type: ignore[arg-type]
    found = average_batches(simulate(trace, Cluster.pooled(servers), SchedulingPolicy(backfill="none")).wait_s)
    exact = queue_wait(arrivals_per_s, 1.0, servers, service_cv2=cv2).mean_s
    assert found.mean == pytest.approx(exact, rel=0.02)
    assert abs(found.mean - exact) < 1.5 * found.half_width


@pytest.mark.long
def test_losses_of_erlang_b() -> None:
    """Turning away what cannot start at once loses Erlang's share, within 2 %, whatever the service times' distribution."""
    for service in ("exponential", "lognormal"):
        trace = draw_poisson_jobs(1_000_000, 8.0, 1.0, service=service, seed=2)  # type: ignore[arg-type]
        lost = simulate(trace, Cluster.pooled(10), SchedulingPolicy(turn_away=True)).turned_away_share
        assert lost == pytest.approx(erlang_b(8, 10), rel=0.02)


def random_jobs(seed: int, count: int = 120) -> Jobs:
    """A crowded hour of whole-second jobs of every size, shares of a GPU among them."""
    random = np.random.default_rng(seed)
    gpus = random.choice([0.25, 0.5, 1, 1, 2, 3, 4, 8, 8, 12, 16], size=count)
    submit = random.integers(0, 400, count).astype(float)
    duration = random.integers(1, 60, count).astype(float)
    limit = duration * random.integers(1, 4, count)
    return make_jobs(submit, gpus, duration, limit_s=limit, priority=random.integers(0, 3, count))


CLUSTERS = (Cluster.of(2), Cluster.of_gpus(20), Cluster((4, 8, 4, 8)), Cluster.pooled(16), Cluster.of(8, 2))


@given(st.integers(0, 10_000), st.sampled_from(POLICIES), st.sampled_from(CLUSTERS))
@settings(max_examples=200, deadline=None)
def test_work_is_conserved_and_gangs_are_whole(seed: int, policy: SchedulingPolicy, cluster: Cluster) -> None:
    """Busy GPU-seconds equal Σ gpus × seconds held exactly; every job gets all its work; no more GPUs are held than exist."""
    jobs = random_jobs(seed)
    outcome = simulate(jobs, cluster, policy)
    extra = policy.restart_s * (outcome.starts - 1)
    np.testing.assert_allclose(outcome.held_s, jobs.duration_s + extra, rtol=0, atol=1e-6)
    assert outcome.busy_gpu_s == pytest.approx(float((jobs.gpus * outcome.held_s).sum()), rel=1e-12)
    assert (outcome.start_s >= jobs.submit_s).all()
    assert (outcome.wait_s >= 0).all()
    if policy.preempt == "none":
        assert outcome.busy_gpu_s == float(jobs.gpu_s.sum())
        events = sorted(
            [(end, -held) for end, held in zip(outcome.end_s, outcome.jobs.gpus, strict=True)]
            + [(start, held) for start, held in zip(outcome.start_s, outcome.jobs.gpus, strict=True)]
        )
        running = 0.0
        for _, change in events:
            running += change
            assert running <= cluster.gpus + 1e-9


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: f"{p.order}-{p.backfill}-{p.preempt}")
def test_same_input_same_result(policy: SchedulingPolicy) -> None:
    """The same jobs and the same seed give the same waits."""
    first, second = (simulate(random_jobs(5), Cluster.of(3), policy).wait_s for _ in (0, 1))
    assert (first == second).all()


def test_backfill_rules_differ_as_they_should() -> None:
    """Behind a gang that must wait: nobody passes with none, the short job with easy, everybody with any (who then delays it)."""
    # 8 GPUs: 4 held for 100 s; then a gang of 8, a long single and a short single arrive.
    jobs = make_jobs([0, 1, 2, 3], [4, 8, 1, 1], [100, 100, 500, 90])
    starts = {b: simulate(jobs, Cluster.of(1), SchedulingPolicy(backfill=b)).start_s for b in ("none", "easy", "any")}
    assert starts["none"].tolist() == [0, 100, 200, 200]
    assert starts["easy"].tolist() == [0, 100, 200, 3]
    assert starts["any"].tolist() == [0, 502, 2, 3]


def test_easy_never_delays_the_first_in_line() -> None:
    """With exact limits the job that was first in line when it blocked starts no later with backfill than without."""
    for seed in range(40):
        told = random_jobs(seed, 40)
        jobs = replace(told, limit_s=told.duration_s)
        plain = simulate(jobs, Cluster.of(2), SchedulingPolicy(backfill="none")).start_s
        blocked = int(np.argmax(plain > jobs.submit_s))
        filled = simulate(jobs, Cluster.of(2), SchedulingPolicy(backfill="easy")).start_s
        assert filled[blocked] <= plain[blocked] + 1e-9


def test_a_gang_waits_for_a_node_not_for_a_number() -> None:
    """Two half-full nodes have 8 GPUs free but no place for a gang of 8: fragmentation, which pooled GPUs would not have."""
    jobs = make_jobs([0, 0, 1, 300], [4, 4, 8, 1], [100, 100, 10, 1])
    spread = simulate(jobs, Cluster.of(2), SchedulingPolicy(backfill="none", spread=True))
    packed = simulate(jobs, Cluster.of(2), SchedulingPolicy(backfill="none"))
    assert spread.start_s[2] == 100
    assert packed.start_s[2] == 1
    assert spread.fragmented_share == pytest.approx(99 / 300)
    assert spread.fragmented_gpu_hours == pytest.approx(8 * 99 / 3600)
    assert simulate(jobs, Cluster.pooled(16), SchedulingPolicy(backfill="none")).start_s[2] == 1


def test_gang_size_and_order_are_told_apart() -> None:
    """Three free GPUs cannot start a gang of 4 (gang size); one that would fit is held behind it (order)."""
    gang = simulate(make_jobs([0, 1, 50], [5, 4, 5], [100, 10, 1]), Cluster.of(1), SchedulingPolicy(backfill="none"))
    assert (gang.gang_share, gang.order_share) == (pytest.approx(49 / 50), 0)
    order = simulate(
        make_jobs([0, 1, 1, 50], [5, 4, 1, 5], [100, 10, 1, 1]), Cluster.of(1), SchedulingPolicy(backfill="none")
    )
    assert order.order_share == pytest.approx(49 / 50)


def test_shares_of_a_gpu_share_it() -> None:
    """Four quarters run on one GPU at once, a fifth waits; a whole-GPU job waits until the last quarter has left."""
    jobs = make_jobs([0, 0, 0, 0, 0, 1], [0.25, 0.25, 0.25, 0.25, 0.25, 1], [10, 20, 30, 40, 10, 5])
    for backfill in ("none", "any", "easy"):
        outcome = simulate(jobs, Cluster.of(1, 1), SchedulingPolicy(backfill=backfill))  # type: ignore[arg-type]
        assert outcome.start_s.tolist() == [0, 0, 0, 0, 10, 40]
        assert outcome.busy_gpu_s == 0.25 * 110 + 5


def test_preemption_keeps_progress_and_pays_the_restart() -> None:
    """A job stopped for a shorter one resumes where it was, its wait counts both gaps, and the restart is extra work."""
    jobs = make_jobs([0, 10], [8, 8], [100, 20])
    outcome = simulate(jobs, Cluster.of(1), SchedulingPolicy(preempt="shortest remaining", restart_s=5.0))
    assert outcome.end_s.tolist() == [125, 30]
    assert outcome.starts.tolist() == [2, 1]
    assert outcome.wait_s.tolist() == [20, 0]
    assert outcome.held_s.tolist() == [105, 20]


def test_a_clocked_scheduler_leaves_freed_gpus_idle_until_it_wakes() -> None:
    """With a step of 60 s a job submitted at 1 s starts at 60 s, and the next at the first step after it ended."""
    jobs = make_jobs([0, 1, 2], [8, 8, 8], [30, 70, 5])
    outcome = simulate(jobs, Cluster.of(1), SchedulingPolicy(preempt="priority", interval_s=60.0))
    assert outcome.start_s.tolist() == [0, 60, 180]


def test_waits_by_size_cover_every_job() -> None:
    """The size classes hold each job once, in the order of size."""
    outcome = simulate(random_jobs(3), Cluster.of(2))
    assert sum(c.jobs for c in outcome.by_size()) == 120
    assert [c.gpus for c in outcome.by_size()] == ["under 1", "1", "2", "3–4", "5–8", "9–16"]


def test_demand_series_holds_all_the_work() -> None:
    """GPUs wanted per interval, times the interval, is the work of all jobs."""
    jobs = random_jobs(9)
    assert jobs.concurrent_gpus(10).sum() * 10 == pytest.approx(float(jobs.gpu_s.sum()))


def test_large_sizes_at_once_are_fast_enough_to_sweep() -> None:
    """A thousand nodes with gangs up to 32 GPUs conserve work over 50,000 jobs under every queueing rule."""
    jobs = draw_poisson_jobs(50_000, 0.6, 3600.0, gpus=(1, 4, 8, 32), gpu_shares=(0.6, 0.2, 0.15, 0.05), seed=4)
    for backfill in ("none", "any", "easy"):
        outcome = simulate(jobs, Cluster.of(1000), SchedulingPolicy(backfill=backfill))  # type: ignore[arg-type]
        assert outcome.busy_gpu_s == pytest.approx(float(jobs.gpu_s.sum()), rel=1e-9)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: make_jobs([], [], []), "no jobs"),
        (lambda: make_jobs([0], [0], [1]), "job 0: GPUs"),
        (lambda: make_jobs([0, 1], [1, 1.5], [1, 1]), "job 1: GPUs must be a whole number"),
        (lambda: make_jobs([0], [1], [-1]), "job 0: a duration"),
        (lambda: make_jobs([0], [1], [1, 2]), "every job needs"),
        (lambda: make_jobs([0], [1], [1]).offered_gpus, "at once"),
        (lambda: Cluster.of(0), "at least one node"),
        (lambda: Cluster(()), "at least one node"),
        (
            lambda: simulate(make_jobs([0, 0], [1, 32], [1, 1]), Cluster.of(2)),
            "asks for 32 GPUs, the cluster can give 16",
        ),
        (
            lambda: simulate(make_jobs([0], [1], [1]), Cluster.of(1), SchedulingPolicy(interval_s=-1)),
            "must not be negative",
        ),
        (
            lambda: simulate(make_jobs([0], [1], [1]), Cluster.of(1), SchedulingPolicy(queue_edges_gpu_s=(5, 2))),
            "must rise",
        ),
        (lambda: draw_poisson_jobs(0, 1, 1), "above 0"),
        (lambda: draw_poisson_jobs(5, 1, 1, service="hyperexponential", service_cv2=0.5), "1 or more"),
    ],
)
def test_impossible_inputs_name_themselves(call: object, says: str) -> None:
    """An input that cannot be is refused in one line that names it."""
    with pytest.raises(PlanError, match=says) as refused:
        call()  # type: ignore[operator]
    assert "\n" not in str(refused.value)


TICK_S = 360.0  # the experiment's scheduler wakes every six minutes: all published starts are multiples of it
PUBLISHED = (
    ("SRTF", SchedulingPolicy(preempt="shortest remaining", interval_s=TICK_S)),
    ("tiresias", SchedulingPolicy(preempt="least attained", interval_s=TICK_S, queue_edges_gpu_s=(3600.0,))),
)


@pytest.mark.parametrize(("scheduler", "policy"), PUBLISHED, ids=[name for name, _ in PUBLISHED])
def test_waits_and_makespan_of_the_64_gpu_experiment(scheduler: str, policy: SchedulingPolicy, shared: Path) -> None:
    """With the times the jobs really ran, mean wait and makespan are within 5 % of the published ones (asked: 15 %)."""
    trace = read_demand(shared / "data" / "jobs" / f"muri_testbed_64xV100_{scheduler}_job.csv.gz")
    assert isinstance(trace, JobTrace)
    assert trace.published_wait_s is not None
    outcome = simulate(make_jobs(trace.submit_s, trace.gpus, trace.duration_s), Cluster.of(8), policy)
    assert outcome.mean_wait_s == pytest.approx(float(trace.published_wait_s.mean()), rel=0.05)
    assert outcome.makespan_s == pytest.approx(trace.published_makespan_s, rel=0.05)


def test_planned_durations_explain_the_rest(shared: Path) -> None:
    """From the submitted trace alone the wait is still within 15 %: the rest is that jobs ran 5 % longer than planned."""
    planned = read_demand(shared / "data" / "jobs" / "muri_testbed_64xV100_submitted_trace.csv.gz")
    real = read_demand(shared / "data" / "jobs" / "muri_testbed_64xV100_SRTF_job.csv.gz")
    assert isinstance(planned, JobTrace)
    assert isinstance(real, JobTrace)
    assert real.published_wait_s is not None
    assert real.duration_s.sum() / planned.duration_s.sum() == pytest.approx(1.05, abs=0.01)
    outcome = simulate(make_jobs(planned.submit_s, planned.gpus, planned.duration_s), Cluster.of(8), PUBLISHED[0][1])
    assert outcome.mean_wait_s == pytest.approx(float(real.published_wait_s.mean()), rel=0.15)
    assert outcome.makespan_s == pytest.approx(real.published_makespan_s, rel=0.15)


@pytest.mark.parametrize(
    ("cluster", "idle", "gang", "fragmentation"), [("vc6YE", 0.457, 0.319, 0.096), ("vcpDC", 0.444, 0.361, 0.041)]
)
def test_helios_minutes_of_pending_beside_idle(
    cluster: str, idle: float, gang: float, fragmentation: float, shared: Path
) -> None:
    """In the two virtual clusters with 45 % such minutes, gang size and fragmentation account for nine tenths of them."""
    trace = read_demand(shared / "data" / "jobs" / f"helios_earth_{cluster}_cluster_sequence_vc.csv.gz")
    assert isinstance(trace, StateTrace)
    found = explain_idle(read_counts(trace))
    assert found.pending_while_idle_share == pytest.approx(idle, abs=0.001)
    assert found.gang_share == pytest.approx(gang, abs=0.001)
    assert found.fragmentation_share == pytest.approx(fragmentation, abs=0.001)
    assert (found.explained_share or 0) > 0.9
    total = found.gang_share + found.fragmentation_share + found.order_share
    assert total == pytest.approx(found.pending_while_idle_share)
