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
from math import exp, log

from loadfactor.base.errors import PlanError


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
        """Mean over all arrivals."""
        return self.waiting_share * self.drain_s

    def longer_share(self, wait_s: float) -> float:
        """Share of arrivals that waits longer than this."""
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
