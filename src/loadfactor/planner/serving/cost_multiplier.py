"""Why does a token cost more than the benchmark says? The multiplier, split into duty, provisioning for peaks, and batch fill.

    multiplier = paid replica-time × benchmark tokens/s ÷ tokens served
               = 1/duty  ×  paid ÷ needed at the mean rate while there is traffic  ×  how far those are from the benchmark

The three factors multiply to the multiplier exactly. Duty is the share of minutes in which any request came; the second factor is
what peaks inside that time cost; the third what objectives, whole replicas and uneven batches leave of the benchmark's throughput.
"""

from dataclasses import dataclass

from loadfactor.errors import PlanError


@dataclass(frozen=True)
class CostMultiplier:
    """Factors of the price of a token over its benchmark price; `multiplier` is their product."""

    duty_factor: float
    peaks_factor: float
    fill_factor: float

    @property
    def multiplier(self) -> float:
        """Times the benchmark price."""
        return self.duty_factor * self.peaks_factor * self.fill_factor


def split_cost_multiplier(
    paid_replica_s: float,
    tokens: float,
    benchmark_tokens_per_s: float,
    duty_share: float,
    replicas: float,
    needed_replicas: float,
) -> CostMultiplier:
    """Split the multiplier.

    `needed_replicas` carry the mean rate of the time with traffic; `replicas` is the mean number paid for.

    >>> c = split_cost_multiplier(100 * 3600.0, 10 * 3600 * 1000.0, 1000.0, 0.4, 4, 2)   # 100 hours paid, worth 10 at full speed
    >>> round(c.multiplier, 9), c.duty_factor, c.peaks_factor, round(c.fill_factor, 9)
    (10.0, 2.5, 2.0, 2.0)
    """
    if tokens <= 0 or not 0 < duty_share <= 1:
        raise PlanError("nothing was served, so a token has no price")
    total = paid_replica_s * benchmark_tokens_per_s / tokens
    duty = 1 / duty_share
    peaks = replicas / needed_replicas
    return CostMultiplier(duty, peaks, total / duty / peaks)
