"""Closed forms of queueing and staffing, and what they say of a history of jobs.

Letters of the field: offered load a = λ·S (servers busy on average, S the mean service time), utilization ρ = a/k. One formula
answers M/M/k, M/D/1, M/G/1, Kingman's G/G/1 and the Allen–Cunneen approximation of G/G/k: the mean wait is Erlang's, scaled by the
mean of the two squared coefficients of variation. It is exact for M/M/k and M/G/1, and good to about 20 % for k > 1 and variable
service; heavy tails, gangs and nodes are not in it: simulate where it matters. Square-root staffing (Halfin and Whitt 1981),
k = ⌈a + β√a⌉, keeps the share that waits constant while the load grows; pooling is the same law seen from the teams' side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil, exp, log, sqrt
from statistics import NormalDist

import numpy as np

from loadfactor.base.errors import PlanError
from loadfactor.planner.economics.load_duration import LoadDuration
from loadfactor.planner.sizing.cluster.jobs import Jobs

NORMAL = NormalDist()


def halfin_whitt_waiting_share(beta: float) -> float:
    """Share of arrivals that wait in a large system staffed with a + β√a servers: 1 / (1 + β Φ(β)/φ(β)).

    >>> round(halfin_whitt_waiting_share(1.0615), 4)
    0.2
    """
    if beta < 0:
        raise PlanError(f"the safety factor must not be negative, got {beta:g}; 1.06 lets a fifth of the work wait")
    return 1 / (1 + beta * NORMAL.cdf(beta) / NORMAL.pdf(beta))


def halfin_whitt_beta(waiting_share: float) -> float:
    """The safety factor β at which `waiting_share` of arrivals wait, by bisection to 1e-12.

    >>> [round(halfin_whitt_beta(share), 4) for share in (0.5, 0.2, 0.1, 0.05)]
    [0.5061, 1.0615, 1.4202, 1.7398]
    """
    if not 0 < waiting_share < 1:
        raise PlanError(
            f"the share that may wait lies between 0 and 1, got {waiting_share:g}; 0.2 lets a fifth of the work wait"
        )
    low, high = 0.0, 1.0
    while halfin_whitt_waiting_share(high) > waiting_share:
        high *= 2
    while high - low > 1e-12:
        middle = (low + high) / 2
        if halfin_whitt_waiting_share(middle) > waiting_share:
            low = middle
        else:
            high = middle
    return high


def square_root_staffing(offered_load: float, waiting_share: float) -> int:
    """Servers for a load at which about `waiting_share` of arrivals wait: ⌈a + β√a⌉.

    >>> [square_root_staffing(load, 0.2) for load in (10, 100, 1_000, 10_000)]
    [14, 111, 1034, 10107]
    """
    return ceil(offered_load + halfin_whitt_beta(waiting_share) * sqrt(offered_load))


def pooled_cv(cv: float, teams: int, correlation: float = 0.0) -> float:
    """Coefficient of variation of the sum of `teams` equal demands: cv·√((1 + (n−1)·r)/n). Never below cv·√r.

    >>> round(pooled_cv(0.6, 16), 4), round(pooled_cv(0.6, 16, correlation=0.3), 4)
    (0.15, 0.3518)
    """
    if teams < 1:
        raise PlanError(f"a pool needs at least 1 team, got {teams}")
    if not 0 <= correlation <= 1:
        raise PlanError(f"the correlation between teams lies between 0 and 1, got {correlation:g}")
    return cv * sqrt((1 + (teams - 1) * correlation) / teams)


def utilization_at_quantile(cv: float, quantile: float) -> float:
    """Mean utilization of capacity bought for the `quantile` of a normal demand: 1 / (1 + z·cv).

    >>> [round(utilization_at_quantile(pooled_cv(0.6, teams), 0.99), 3) for teams in (1, 4, 16, 100)]
    [0.417, 0.589, 0.741, 0.878]
    """
    return 1 / (1 + NORMAL.inv_cdf(quantile) * cv)


def stranded_share(node_gpus: int, job_gpus: int) -> float:
    """Share of a node that jobs of one size cannot use: 1 − ⌊G/j⌋·j/G. A job larger than a node takes whole nodes.

    >>> stranded_share(8, 5), stranded_share(8, 4), stranded_share(8, 12)  # 12 GPUs hold two nodes: 4 of 16 stranded
    (0.375, 0.0, 0.25)
    """
    if node_gpus < 1 or job_gpus < 1:
        raise PlanError(f"a node and a job have at least 1 GPU each, got {node_gpus} and {job_gpus}")
    if job_gpus > node_gpus:
        held = ceil(job_gpus / node_gpus) * node_gpus
        return 1 - job_gpus / held
    return 1 - node_gpus // job_gpus * job_gpus / node_gpus


def erlang_b_sizes(offered_load: float) -> Iterator[float]:
    """Erlang's loss share for 0, 1, 2, … servers without end: B₀ = 1, Bᵢ = a·Bᵢ₋₁ / (i + a·Bᵢ₋₁).

    >>> [round(share, 4) for share in islice(erlang_b_sizes(2.0), 4)]  # 1, 2/3, 2/5, 4/19
    [1.0, 0.6667, 0.4, 0.2105]
    """
    if offered_load < 0:
        raise PlanError(f"the offered load must not be negative, got {offered_load:g}")
    loss = 1.0
    servers = 0
    while True:
        yield loss
        servers += 1
        carried = offered_load * loss
        loss = carried / (servers + carried)


def erlang_b(offered_load: float, servers: int) -> float:
    """Share of arrivals turned away when nobody may wait (M/G/k/k).

    >>> round(erlang_b(8, 10), 6)
    0.121661
    """
    _check_servers(servers)
    return next(islice(erlang_b_sizes(offered_load), servers, None))


def erlang_c(offered_load: float, servers: int) -> float:
    """Share of arrivals that must wait (M/M/k): B / (1 − ρ(1 − B)). Raises PlanError when the load never drains.

    >>> round(erlang_c(1.8, 2), 6)  # 81/95
    0.852632
    """
    if servers <= offered_load:
        raise PlanError(
            f"{servers} servers cannot hold an offered load of {offered_load:g}: the queue grows without end; "
            f"take {least_servers(offered_load)} or more"
        )
    loss = erlang_b(offered_load, servers)
    return loss / (1 - offered_load / servers * (1 - loss))


@dataclass(frozen=True)
class QueueWait:
    """The wait before service: the share of arrivals that waits at all, and the mean wait of those who do, seconds."""

    waiting_share: float
    drain_s: float

    @property
    def mean_s(self) -> float:
        return self.waiting_share * self.drain_s

    def longer_share(self, wait_s: float) -> float:
        return self.waiting_share * exp(-wait_s / self.drain_s) if self.drain_s > 0 else 0.0

    def quantile_s(self, quantile: float) -> float:
        """The wait that this share of arrivals does not exceed."""
        if not 0 < quantile < 1:
            raise PlanError(f"a quantile lies between 0 and 1, got {quantile:g}; 0.9 is the 90th percentile")
        if self.waiting_share <= 1 - quantile:
            return 0.0
        return self.drain_s * log(self.waiting_share / (1 - quantile))


def queue_wait(
    arrivals_per_s: float, service_s: float, servers: int, arrival_cv2: float = 1.0, service_cv2: float = 1.0
) -> QueueWait:
    """The wait in front of `servers`: C of the arrivals wait, S/(k − a) · (c²ₐ + c²ₛ)/2 on average.

    `arrival_cv2` and `service_cv2` are squared coefficients of variation: 1 for exponential times, 0 for constant ones.

    >>> round(queue_wait(1.8, 1.0, 2).mean_s, 4), round(queue_wait(0.8, 1.0, 1, service_cv2=0).mean_s, 4)  # M/M/2, M/D/1
    (4.2632, 2.0)
    >>> wait = queue_wait(8, 1.0, 10)
    >>> round(wait.mean_s, 5), round(wait.longer_share(0.5), 6), wait.quantile_s(0.5)  # at p50 nobody waits
    (0.20459, 0.150529, 0.0)
    """
    if arrivals_per_s < 0:
        raise PlanError(f"the arrival rate must not be negative, got {arrivals_per_s:g}/s")
    if service_s <= 0:
        raise PlanError(f"the mean service time must be positive, got {service_s:g} s")
    if min(arrival_cv2, service_cv2) < 0:
        raise PlanError("a squared coefficient of variation is 0 (constant) or more; exponential times have 1")
    offered_load = arrivals_per_s * service_s
    waiting_share = erlang_c(offered_load, servers)
    return QueueWait(waiting_share, service_s / (servers - offered_load) * (arrival_cv2 + service_cv2) / 2)


def least_servers(offered_load: float) -> int:
    """The smallest number of servers whose queue drains: the next whole number above the offered load.

    >>> least_servers(7.5), least_servers(8.0)
    (8, 9)
    """
    return max(1, int(offered_load) + 1)


def servers_for_wait_share(offered_load: float, waiting_share: float) -> int:
    """The fewest servers at which at most `waiting_share` of arrivals wait (exact Erlang C).

    >>> servers_for_wait_share(8, 0.2), servers_for_wait_share(80, 0.2)  # ten teams: 10 × 12 apart, 90 together
    (12, 90)
    """
    if not 0 < waiting_share < 1:
        raise PlanError(
            f"the share that may wait lies between 0 and 1, got {waiting_share:g}; 0.2 lets a fifth of the jobs wait"
        )
    for servers, loss in enumerate(erlang_b_sizes(offered_load)):
        if servers > offered_load and loss / (1 - offered_load / servers * (1 - loss)) <= waiting_share:
            return servers
    raise AssertionError("Erlang C falls to zero as servers are added")


def _check_servers(servers: int) -> None:
    if servers < 0:
        raise PlanError(f"the number of servers must not be negative, got {servers}")


@dataclass(frozen=True)
class Slots:
    """Jobs of mixed size seen as a plain queue: a slot is a mean gang (weighted by duration), a server runs one."""

    mean_gpus: float
    arrivals_per_s: float
    service_s: float
    arrival_cv2: float
    service_cv2: float

    @property
    def offered(self) -> float:
        """Slots busy on average."""
        return self.arrivals_per_s * self.service_s


def make_slots(jobs: Jobs) -> Slots:
    """The plain queue nearest to these jobs.

    >>> from loadfactor.planner.sizing.cluster.jobs import make_jobs
    >>> slots = make_slots(make_jobs([0, 100, 200], [2, 4, 2], [60, 60, 60]))
    >>> round(slots.mean_gpus, 3), slots.service_s, slots.arrivals_per_s
    (2.667, 60.0, 0.015)
    """
    service_s = float(jobs.duration_s.mean())
    mean_gpus = float(jobs.gpu_s.sum() / jobs.duration_s.sum())
    return Slots(mean_gpus, len(jobs) / jobs.span_s, service_s, jobs.arrival_cv2, jobs.service_cv2)


def estimate_wait(jobs: Jobs, gpus: int) -> QueueWait | None:
    """The wait M/G/k promises for these jobs in slots; None where its queue never drains."""
    slots = make_slots(jobs)
    servers = int(gpus / slots.mean_gpus)
    if servers <= slots.offered:
        return None
    return queue_wait(slots.arrivals_per_s, slots.service_s, servers, slots.arrival_cv2, slots.service_cv2)


def estimate_wait_s(jobs: Jobs, gpus: int) -> float | None:
    wait = estimate_wait(jobs, gpus)
    return None if wait is None else wait.mean_s


@dataclass(frozen=True)
class Staffing:
    """Sizes by closed form at which at most `waiting_share` of plain, memoryless work waits; GPUs, not slots."""

    waiting_share: float
    erlang_gpus: int
    square_root_gpus: int
    teams: int
    teams_are_equal: bool
    apart_gpus: int


@dataclass(frozen=True)
class Pooling:
    """How full capacity bought for the `quantile` of demand is on average: for all teams together, and for each apart.

    Demand is taken as normal with the coefficient of variation `cv` of these jobs; teams are equal and alike to `correlation`.
    """

    quantile: float
    cv: float
    correlation: float
    together_share: float
    apart_share: float


def staff(jobs: Jobs, waiting_share: float = 0.2, teams: int = 1, team_of_job: Sequence[str] | None = None) -> Staffing:
    """Exact Erlang C and square-root staffing, and what the teams would need with clusters of their own.

    Teams are those of the jobs where `team_of_job` names them, else `teams` equal parts of the load.

    >>> from loadfactor.planner.sizing.cluster.jobs import make_jobs
    >>> jobs = make_jobs(range(0, 1000, 5), [1] * 200, [400] * 200)  # 80 GPUs busy
    >>> found = staff(jobs, teams=10)
    >>> found.erlang_gpus, found.apart_gpus
    (91, 120)
    """
    slots = make_slots(jobs)
    loads = [slots.offered / teams] * teams
    if team_of_job is not None:
        names, place = np.unique(np.asarray(team_of_job), return_inverse=True)
        work = np.bincount(place, weights=jobs.gpu_s, minlength=len(names))
        loads = [float(share) * slots.offered for share in work / work.sum()]
    together = servers_for_wait_share(slots.offered, waiting_share)
    apart = sum(servers_for_wait_share(load, waiting_share) for load in loads)
    return Staffing(
        waiting_share,
        ceil(together * slots.mean_gpus),
        ceil(square_root_staffing(slots.offered, waiting_share) * slots.mean_gpus),
        len(loads),
        team_of_job is None,
        ceil(apart * slots.mean_gpus),
    )


def estimate_lost_share(jobs: Jobs, gpus: int) -> float:
    """Erlang B: the share of these jobs, in slots, that such a cluster would turn away if nobody could wait."""
    slots = make_slots(jobs)
    return erlang_b(slots.offered, int(gpus / slots.mean_gpus))


@dataclass(frozen=True)
class HeldGpus:
    """GPUs the same work keeps held on average: as requested, rounded up to whole GPUs, rounded up to whole instances."""

    as_asked_gpus: float
    whole_gpus: float
    whole_instances_gpus: float


def count_held_gpus(jobs: Jobs, gpus_per_node: int = 8) -> HeldGpus:
    """GPUs that sharing and packing nodes save: the same jobs rounded up to whole GPUs, and to whole instances.

    >>> from loadfactor.planner.sizing.cluster.jobs import make_jobs
    >>> count_held_gpus(make_jobs([0, 100], [0.5, 4], [100, 100]))
    HeldGpus(as_asked_gpus=4.5, whole_gpus=5.0, whole_instances_gpus=16.0)
    """
    whole = np.ceil(jobs.gpus)
    instances = np.ceil(jobs.gpus / gpus_per_node) * gpus_per_node
    return HeldGpus(*(float((held * jobs.duration_s).sum()) / jobs.span_s for held in (jobs.gpus, whole, instances)))


def compare_pooling(demand: LoadDuration, teams: int, correlation: float = 0.0, quantile: float = 0.99) -> Pooling:
    """Utilization of capacity bought for a quantile of demand, by one pool and by as many clusters as there are teams.

    >>> from loadfactor.planner.economics.load_duration import load_duration
    >>> found = compare_pooling(load_duration([80, 100, 120]), teams=16)
    >>> round(found.cv, 3), round(found.together_share, 3), round(found.apart_share, 3)
    (0.163, 0.725, 0.397)
    """
    cv = demand.sd_gpus / demand.mean_gpus
    team_cv = cv / pooled_cv(1.0, teams, correlation)
    return Pooling(
        quantile,
        cv,
        correlation,
        utilization_at_quantile(cv, quantile),
        utilization_at_quantile(team_cv, quantile),
    )


def strand_nodes(jobs: Jobs, gpus_per_node: int) -> float:
    """Share of GPUs no job can use where every node holds jobs of one size; the mean over the work of these jobs.

    >>> from loadfactor.planner.sizing.cluster.jobs import make_jobs
    >>> strand_nodes(make_jobs([0, 0], [5, 8], [80, 50]), 8)
    0.1875
    """
    sizes, place = np.unique(np.ceil(jobs.gpus).astype(int), return_inverse=True)
    work = np.bincount(place, weights=jobs.gpu_s)
    shares = [stranded_share(gpus_per_node, int(gpus)) for gpus in sizes]
    return float(np.average(shares, weights=work))
