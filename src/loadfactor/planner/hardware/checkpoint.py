"""Checkpoint interval of a job that can fail, and the share of its time that is kept work.

A job of n GPUs fails every `mtbf_s` on average (exponential): the mean time between failures of one GPU divided by n. Between two
checkpoints it works for `interval_s`, then blocks for `checkpoint_s` (an asynchronous checkpoint blocks for little). A failure
costs `restart_s` and the work since the last checkpoint.

Limits: failures are independent and memoryless; detection time belongs into `restart_s`.
"""

from dataclasses import dataclass
from math import ceil, exp, expm1, sqrt
from statistics import NormalDist

from loadfactor.base.errors import PlanError
from loadfactor.base.units import S_PER_HOUR

LEAST_EFFICIENCY_SHARE = 0.01
"""Below this share of kept work nobody would call a job running: plans refuse it."""
MOST_WAITING = 500.0  # nodes that wait for repair on average


@dataclass(frozen=True)
class CheckpointPlan:
    """How a job survives its failures: the interval of work between checkpoints and what share of the time is kept work."""

    interval_s: float
    efficiency_share: float
    checkpoint_s: float
    restart_s: float
    mtbf_s: float

    @property
    def first_order_efficiency_share(self) -> float:
        """Meta's effective-training-time ratio, (1 − (R + τ/2)/M) / (1 + δ/τ), not below 0; arXiv:2410.21680.

        Nearly the same as `efficiency_share` while failures are rare; a check on it.

        >>> meta = plan_checkpoints(60, job_mtbf_s(24 / 6.5e-3, 128), 600, interval_s=3600)  # 6.5 failures per 1,000 node-days
        >>> round(meta.first_order_efficiency_share, 4), round(meta.efficiency_share, 4)
        (0.9609, 0.9608)
        """
        overhead = self.checkpoint_s / self.interval_s if self.interval_s else 0.0
        return max(0.0, 1 - (self.restart_s + self.interval_s / 2) / self.mtbf_s) / (1 + overhead)


def job_mtbf_s(gpu_mtbf_h: float, gpus: int) -> float:
    """Mean time between failures of a job that stops when any of its `gpus` fails, seconds; likewise for nodes.

    Llama 3: 419 unexpected interruptions in 54 days on 16,384 H100 are 50,677 hours per GPU, hence every 3.09 hours for the job.

    Meta's RSC: 6.5 failures in 1,000 node-days stop 2,048 nodes every 1.8 hours (arXiv:2410.21680).

    >>> round(job_mtbf_s(50_677, 16_384) / 3600, 2), round(job_mtbf_s(24 / 6.5e-3, 2048) / 3600, 2)
    (3.09, 1.8)
    """
    if gpu_mtbf_h <= 0:
        raise PlanError(
            f"the mean time between failures must be positive, got {gpu_mtbf_h:g} h; a data-center GPU has about 50000"
        )
    if gpus < 1:
        raise PlanError(f"a job needs at least 1 GPU, got {gpus}")
    return gpu_mtbf_h * S_PER_HOUR / gpus


def young_interval_s(checkpoint_s: float, mtbf_s: float) -> float:
    """Young's first-order interval between checkpoints, √(2 δ M), seconds.

    >>> young_interval_s(50, 10_000)
    1000.0
    """
    _check(checkpoint_s, mtbf_s, 0.0)
    return sqrt(2 * checkpoint_s * mtbf_s)


def daly_interval_s(checkpoint_s: float, mtbf_s: float) -> float:
    """Daly's higher-order interval (2006), seconds: √(2δM)·[1 + ⅓√(δ/2M) + ⅑ δ/2M] − δ while δ < 2M, else M.

    >>> round(daly_interval_s(60, 86_400), 1)  # a checkpoint of a minute, a failure a day
    3180.1
    """
    _check(checkpoint_s, mtbf_s, 0.0)
    if checkpoint_s >= 2 * mtbf_s:
        return mtbf_s
    x = checkpoint_s / (2 * mtbf_s)
    return young_interval_s(checkpoint_s, mtbf_s) * (1 + sqrt(x) / 3 + x / 9) - checkpoint_s


def efficiency_share(interval_s: float, checkpoint_s: float, mtbf_s: float, restart_s: float) -> float:
    """Share of the wall clock that is kept work: τ / (M·e^(R/M)·(e^((τ+δ)/M) − 1)).

    >>> round(efficiency_share(3180.1, 60, 86_400, 600), 4)
    0.9565
    """
    _check(checkpoint_s, mtbf_s, restart_s)
    if interval_s <= 0:
        raise PlanError(f"the interval between checkpoints must be positive, got {interval_s:g} s")
    exponent = (interval_s + checkpoint_s) / mtbf_s
    if exponent > 700 or restart_s / mtbf_s > 700:  # e^700 is the end of the floating-point range: no work survives
        return 0.0
    return interval_s / (mtbf_s * exp(restart_s / mtbf_s) * expm1(exponent))


def count_spares(mtbf_s: float, repair_s: float, held_share: float = 0.99) -> int:
    """Spare nodes with which a job that stops at every failure is whole `held_share` of the time: what waits for repair is Poisson.

    On paper: a failure every 10 h and 24 h of repair leave 2.4 nodes waiting on average, at most 6 of them 98.8 % of the time:

    >>> count_spares(10 * 3600, 24 * 3600), count_spares(10 * 3600, 0)
    (7, 0)
    """
    _check(0.0, mtbf_s, repair_s)
    waiting = repair_s / mtbf_s
    if waiting > MOST_WAITING:  # the normal's tail, where e^-waiting has no number left
        return ceil(waiting + NormalDist().inv_cdf(held_share) * sqrt(waiting))
    spares, probability = 0, exp(-waiting)
    reached = probability
    while reached < held_share:
        spares += 1
        probability *= waiting / spares
        reached += probability
    return spares


def plan_checkpoints(
    checkpoint_s: float, mtbf_s: float, restart_s: float, interval_s: float | None = None
) -> CheckpointPlan:
    """The plan at a given interval, or at Daly's where none is given; a checkpoint that costs nothing is taken continuously.

    >>> plan = plan_checkpoints(checkpoint_s=60, mtbf_s=4 * 3600, restart_s=600)
    >>> round(plan.interval_s, 1), round(plan.efficiency_share, 4)
    (1274.8, 0.8743)
    """
    _check(checkpoint_s, mtbf_s, restart_s)
    if interval_s is None and checkpoint_s == 0:
        return CheckpointPlan(0.0, exp(-restart_s / mtbf_s), checkpoint_s, restart_s, mtbf_s)
    interval = daly_interval_s(checkpoint_s, mtbf_s) if interval_s is None else interval_s
    share = efficiency_share(interval, checkpoint_s, mtbf_s, restart_s)
    return CheckpointPlan(interval, share, checkpoint_s, restart_s, mtbf_s)


def _check(checkpoint_s: float, mtbf_s: float, restart_s: float) -> None:
    if mtbf_s <= 0:
        raise PlanError(f"the mean time between failures must be positive, got {mtbf_s:g} s")
    if checkpoint_s < 0:
        raise PlanError(
            f"a checkpoint cannot take {checkpoint_s:g} s; give the seconds the job stands still, 0 or more"
        )
    if restart_s < 0:
        raise PlanError(f"a restart cannot take {restart_s:g} s; give 0 or more")
