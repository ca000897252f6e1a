"""Staffing rules: servers for a load without solving the queue, and what sharing them saves.

Square-root staffing (Halfin and Whitt 1981): k = ⌈a + β√a⌉ keeps the share that waits constant while the load grows, so big
clusters run fuller at the same service. Pooling is the same law seen from the teams' side: the sum of many demands varies less.
"""

from math import ceil, sqrt
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
    if offered_load < 0:
        raise PlanError(f"the offered load must not be negative, got {offered_load:g}")
    return ceil(offered_load + halfin_whitt_beta(waiting_share) * sqrt(offered_load))


def pooled_cv(cv: float, teams: int, correlation: float = 0.0) -> float:
    """Coefficient of variation of the sum of `teams` equal demands: cv·√((1 + (n−1)·r)/n). Never below cv·√r.

    >>> round(pooled_cv(0.6, 16), 4), round(pooled_cv(0.6, 16, correlation=0.3), 4)
    (0.15, 0.3518)
    """
    if teams < 1:
        raise PlanError(f"a pool needs at least 1 team, got {teams}")
    if cv < 0:
        raise PlanError(f"a coefficient of variation must not be negative, got {cv:g}")
    if not 0 <= correlation <= 1:
        raise PlanError(f"the correlation between teams lies between 0 and 1, got {correlation:g}")
    return cv * sqrt((1 + (teams - 1) * correlation) / teams)


def utilization_at_quantile(cv: float, quantile: float) -> float:
    """Mean utilization of capacity bought for the `quantile` of a normal demand: 1 / (1 + z·cv).

    >>> [round(utilization_at_quantile(pooled_cv(0.6, teams), 0.99), 3) for teams in (1, 4, 16, 100)]
    [0.417, 0.589, 0.741, 0.878]
    """
    if not 0.5 <= quantile < 1:
        raise PlanError(f"capacity is bought for a quantile between 0.5 and 1, got {quantile:g}")
    if cv < 0:
        raise PlanError(f"a coefficient of variation must not be negative, got {cv:g}")
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
