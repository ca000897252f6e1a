"""The load of serving jobs, as measured: requests, tokens, and the GPUs that were held for them."""

from dataclasses import dataclass

from loadfactor.base.units import S_PER_DAY, S_PER_HOUR


@dataclass(frozen=True)
class MeasuredLoad:
    """Requests and tokens over `span_s` seconds, nights included, of jobs that held `gpu_s` GPU-seconds of it.

    `duty_share`: the share of the counted time in which tokens came; `counted_share`: that of the held time that is counted, the
    rest made an unknown number. `busiest_…` is the highest of an hour. `cost` is None where no price is known.
    """

    jobs: tuple[str, ...]
    span_s: float
    gpu_s: float
    cost: float | None
    currency: str
    requests: float
    prompt_tokens: float
    output_tokens: float
    duty_share: float
    counted_share: float
    busiest_tokens_per_gpu_s: float
    busiest_requests_per_s: float
    gpus_per_replica: int

    @property
    def requests_per_s(self) -> float:
        """Mean demand.

        >>> load = MeasuredLoad(("chat",), 7200, 14400, 8, "USD", 3600, 1.8e6, 0.36e6, 0.5, 1, 300, 1, 2)
        >>> load.requests_per_s, load.input_tokens, load.output_tokens_each, load.peak_ratio
        (0.5, 500.0, 100.0, 2.0)
        >>> load.tokens_per_gpu_s, load.price_per_gpu_hour, load.cost_per_hour, load.share_of(300)
        (150.0, 2.0, 4.0, 0.5)
        """
        return self.requests / self.span_s

    @property
    def requests_per_day(self) -> float:
        return self.requests_per_s * S_PER_DAY

    @property
    def input_tokens(self) -> float:
        """Of the mean request; those from a cache, too."""
        return self.prompt_tokens / self.requests

    @property
    def output_tokens_each(self) -> float:
        return self.output_tokens / self.requests

    @property
    def peak_ratio(self) -> float:
        """Demand of the busiest hour over the mean."""
        return max(1.0, self.busiest_requests_per_s / self.requests_per_s)

    @property
    def gpus(self) -> float:
        return self.gpu_s / self.span_s

    @property
    def tokens_per_gpu_s(self) -> float:
        return (self.prompt_tokens + self.output_tokens) / self.gpu_s

    @property
    def price_per_gpu_hour(self) -> float | None:
        """Cost of a held GPU-hour; None where no price is known."""
        return None if self.cost is None else self.cost / self.gpu_s * S_PER_HOUR

    @property
    def cost_per_hour(self) -> float | None:
        return None if self.cost is None else self.cost / self.span_s * S_PER_HOUR

    def share_of(self, saturated_tokens_per_gpu_s: float) -> float:
        """The mean load as a share of what the held GPUs would serve if they were always saturated."""
        return self.tokens_per_gpu_s / saturated_tokens_per_gpu_s
