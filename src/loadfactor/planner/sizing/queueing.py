"""Waits in front of servers that serve one piece of work each: the closed forms of queueing theory.

Letters of the field: offered load a = λ·S (servers busy on average, S the mean service time), utilization ρ = a/k. A server is
whatever holds one piece of work: a GPU for single-GPU jobs, a node for 8-GPU jobs, a replica's slot for requests.

One formula answers M/M/k, M/D/1, M/G/1, Kingman's G/G/1 and the Allen–Cunneen approximation of G/G/k: the mean wait is Erlang's,
scaled by the mean of the two squared coefficients of variation. It is exact for M/M/k and M/G/1, and an approximation elsewhere
(good to about 20 % for k > 1 and variable service; simulate where it matters). Heavy tails, gangs and nodes are not in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import ceil, exp, log, sqrt
from statistics import NormalDist

from loadfactor.base.errors import PlanError

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
    _check_drains(offered_load, servers)
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


def _check_drains(offered_load: float, servers: int) -> None:
    if servers <= offered_load:
        raise PlanError(
            f"{servers} servers cannot hold an offered load of {offered_load:g}: the queue grows without end; "
            f"take {least_servers(offered_load)} or more"
        )
