"""Statistics of a simulated hour, or of the whole run, with their shares of the accelerator and their cost."""

from dataclasses import dataclass, field

from loadfactor.base.units import NS_PER_S, S_PER_HOUR, TOKENS_PER_MTOK
from loadfactor.planner.serving.layout_search import LayoutOption
from loadfactor.planner.serving.replica_layout import compute_datatype
from loadfactor.planner.serving.simulation.statistics import Statistics


@dataclass(frozen=True)
class PricedStatistics(Statistics):
    """Statistics of replicas of `option` at a price per GPU-hour. Shares of the accelerator are of its peaks while busy.

    The cost of tokens is split between prompt and output in the proportion of the time each takes on this replica at capacity.
    """

    option: LayoutOption = field(repr=False)
    price_per_gpu_hour: float = field(repr=False)

    @property
    def batch_fill_share(self) -> float | None:
        """Mean batch over the most a benchmark or the objective allows."""
        most = max(self.option.require_capacity().batch, self.option.benchmark.batch)
        return None if self.mean_batch is None else self.mean_batch / most

    @property
    def compute_share(self) -> float | None:
        """Achieved FLOP/s over the peak of the datatype the weights are computed in."""
        r = self.option.replica
        datatype = compute_datatype(r.precision.expert_bits, r.precision.name, r.accelerator)
        return self._of_busy_time(self.counters.flops, r.accelerator.peak_flops(datatype))

    @property
    def bandwidth_share(self) -> float | None:
        """Achieved bytes/s over peak memory bandwidth."""
        return self._of_busy_time(
            self.counters.moved_bytes, self.option.replica.accelerator.memory_bandwidth_bytes_per_s
        )

    @property
    def cost(self) -> float:
        """Cost of the replica-time paid for."""
        paid_s = self.counters.paid_ns / NS_PER_S
        return paid_s / S_PER_HOUR * self.option.replica.layout.gpus * self.price_per_gpu_hour

    @property
    def cost_per_mtok(self) -> float | None:
        """Cost per million tokens served, prompt and output together."""
        return _per_mtok(self.cost, self.counters.prompt_tokens_out + self.counters.output_tokens_out)

    @property
    def cost_per_prompt_mtok(self) -> float | None:
        """Cost of prompts per million prompt tokens."""
        return _per_mtok(self.cost * self.option.require_capacity().prompt_share, self.counters.prompt_tokens_out)

    @property
    def cost_per_output_mtok(self) -> float | None:
        """Cost of decoding per million output tokens."""
        return _per_mtok(self.cost * (1 - self.option.require_capacity().prompt_share), self.counters.output_tokens_out)

    def _of_busy_time(self, amount: float, peak_per_s: float) -> float | None:
        busy_s = self.counters.busy_ns / NS_PER_S
        return amount / (busy_s * peak_per_s) if busy_s else None


def price_statistics(found: Statistics, option: LayoutOption, price_per_gpu_hour: float) -> PricedStatistics:
    """The same statistics with what they cost on replicas of `option`."""
    return PricedStatistics(**vars(found), option=option, price_per_gpu_hour=price_per_gpu_hour)


def _per_mtok(cost: float, tokens: int) -> float | None:
    return cost / (tokens / TOKENS_PER_MTOK) if tokens else None
