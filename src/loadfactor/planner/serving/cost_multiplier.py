"""Why a token costs more than its benchmark price: the multiplier, split into duty, peaks and batch fill.

    multiplier = paid replica-time × benchmark tokens/s ÷ tokens served
               = 1/duty  ×  paid ÷ needed at the mean rate while there is traffic  ×  how far those are from the benchmark

The three factors multiply to the multiplier exactly. Duty is the share of minutes in which any request came; the second factor is
what peaks inside that time cost; the third what objectives, whole replicas and uneven batches leave of the benchmark's throughput.
"""

from dataclasses import dataclass
from math import log

from loadfactor.base.errors import PlanError


@dataclass(frozen=True)
class CostMultiplier:
    """Factors of the cost of a token over its benchmark price; `multiplier` is their product."""

    duty_factor: float = 1.0
    peaks_factor: float = 1.0
    fill_factor: float = 1.0

    @property
    def multiplier(self) -> float:
        """Times the benchmark price."""
        return self.duty_factor * self.peaks_factor * self.fill_factor

    @property
    def duty_share(self) -> float:
        """Share of minutes with a request."""
        return 1 / self.duty_factor


def split_cost_multiplier(
    paid_replica_s: float,
    tokens: float,
    benchmark_tokens_per_s: float,
    duty_share: float,
    replicas: float,
    needed_replicas: float,
) -> CostMultiplier:
    """The multiplier of a run and its factors.

    `needed_replicas` carry the mean rate of the time with traffic; `replicas` is the mean number paid for.

    >>> c = split_cost_multiplier(100 * 3600.0, 10 * 3600 * 1000.0, 1000.0, 0.4, 4, 2)   # 100 hours paid, worth 10 at full speed
    >>> round(c.multiplier, 9), c.duty_factor, c.peaks_factor, round(c.fill_factor, 9)
    (10.0, 2.5, 2.0, 2.0)
    """
    if tokens <= 0:
        raise PlanError("nothing was served, so a token has no cost")
    total = paid_replica_s * benchmark_tokens_per_s / tokens
    duty = duty_multiplier(duty_share).duty_factor
    peaks = replicas / needed_replicas
    return CostMultiplier(duty, peaks, total / duty / peaks)


def duty_multiplier(duty_share: float, fill_share: float = 1.0) -> CostMultiplier:
    """1/(duty × fill): what hours without requests and half-empty batches do to the cost of a token.

    >>> duty_multiplier(0.4).multiplier, duty_multiplier(0.4, 0.5).multiplier
    (2.5, 5.0)
    """
    for name, share in (("duty_share", duty_share), ("fill_share", fill_share)):
        if not 0 < share <= 1:
            raise PlanError(f"{name} lies between 0 (excluded) and 1, got {share:g}")
    return CostMultiplier(duty_factor=1 / duty_share, fill_factor=1 / fill_share)


def exponential_peak_multiplier(quantile: float) -> float:
    """Capacity for the `quantile` of an exponential load over its mean: −ln(1 − q), what provisioning for peaks costs.

    >>> round(exponential_peak_multiplier(0.95), 4)
    2.9957
    """
    if not 0 <= quantile < 1:
        raise PlanError(f"a quantile lies between 0 and below 1, got {quantile:g}")
    return -log(1 - quantile)
