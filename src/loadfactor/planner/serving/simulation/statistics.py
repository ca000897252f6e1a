"""Statistics of an hour of a simulation, or of the whole run: shares and percentiles, divided last from sums that add up.

Every public property is one published statistic; what a plan prints and writes as JSON is read from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import add

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import NS_PER_S
from loadfactor.planner.serving.simulation.counters import (
    BIN_RATIO,
    END_TO_END,
    LEAST_NS,
    QUEUE,
    REASONS,
    TPOT,
    TTFT,
    Counters,
)


@dataclass(frozen=True)
class Statistics:
    """What was counted in `elapsed_s` of simulated time; two added are the statistics of both. Nothing seen is None, never 0."""

    counters: Counters = field(repr=False)
    histograms: NDArray[np.int64] = field(repr=False)
    rejections: NDArray[np.int64] = field(repr=False)
    elapsed_s: float = field(repr=False)

    def __add__(self, other: "Statistics") -> "Statistics":
        return Statistics(
            Counters(*map(add, self.counters, other.counters)),
            self.histograms + other.histograms,
            self.rejections + other.rejections,
            self.elapsed_s + other.elapsed_s,
        )

    def count_rejections(self) -> dict[str, int]:
        """Requests turned away, by reason; reasons nobody met are left out."""
        return {name: int(n) for name, n in zip(REASONS, self.rejections, strict=True) if n}

    def balance(self) -> Mapping[str, int]:
        """Tokens in = out + rejected once the system is empty, and paid time less busy, idle, starting and down, which is 0."""
        c = self.counters
        tokens = {name: n for name, n in c._asdict().items() if name.endswith(("_in", "_asked", "_out", "_rejected"))}
        return {**tokens, "paid_less_busy_idle_starting_down_ns": self.unbalanced_ns()}

    def unbalanced_ns(self) -> int:
        """Paid time less busy, idle, starting and down: 0, or the simulation loses time."""
        c = self.counters
        return c.paid_ns - c.busy_ns - c.idle_ns - c.starting_ns - c.down_ns

    def quantile_s(self, kind: int, quantile: float) -> float | None:
        """Quantile of the waits of one kind (TTFT, TPOT, QUEUE, END_TO_END), seconds, to 1 %."""
        counts = self.histograms[kind]
        total = int(counts.sum())
        if total == 0:
            return None
        place = int(np.searchsorted(np.cumsum(counts), quantile * total))
        if place == 0:
            return 0.0 if counts[0] else LEAST_NS / NS_PER_S
        return float(LEAST_NS * BIN_RATIO ** (place - 0.5) / NS_PER_S)

    @property
    def requests(self) -> int:
        """Requests that came, rejected ones too."""
        return self.counters.requests

    @property
    def finished(self) -> int:
        """Requests that got their last token."""
        return self.counters.finished

    @property
    def rejected(self) -> int:
        """Requests turned away."""
        return int(self.rejections.sum())

    @property
    def duty_share(self) -> float | None:
        """Share of paid replica-time with a step running."""
        return _ratio(self.counters.busy_ns, self.counters.paid_ns)

    @property
    def mean_batch(self) -> float | None:
        """Sequences decoding in a step, on average over busy time."""
        return _ratio(self.counters.decoding_ns, self.counters.busy_ns)

    @property
    def cache_fill_share(self) -> float | None:
        """Share of cache blocks in use over busy time."""
        return _ratio(self.counters.cache_fill_ns, self.counters.busy_ns)

    @property
    def ttft_p50_s(self) -> float | None:
        """Median time to first token."""
        return self.quantile_s(TTFT, 0.5)

    @property
    def ttft_p90_s(self) -> float | None:
        """90th percentile of the time to first token."""
        return self.quantile_s(TTFT, 0.9)

    @property
    def ttft_p99_s(self) -> float | None:
        """99th percentile of the time to first token."""
        return self.quantile_s(TTFT, 0.99)

    @property
    def tpot_p50_s(self) -> float | None:
        """Median time per output token after the first."""
        return self.quantile_s(TPOT, 0.5)

    @property
    def tpot_p90_s(self) -> float | None:
        """90th percentile of the time per output token after the first."""
        return self.quantile_s(TPOT, 0.9)

    @property
    def tpot_p99_s(self) -> float | None:
        """99th percentile of the time per output token after the first."""
        return self.quantile_s(TPOT, 0.99)

    @property
    def queue_p90_s(self) -> float | None:
        """90th percentile of the wait until a replica began with a request."""
        return self.quantile_s(QUEUE, 0.9)

    @property
    def end_to_end_p90_s(self) -> float | None:
        """90th percentile of the time from arrival to last token."""
        return self.quantile_s(END_TO_END, 0.9)

    @property
    def slo_share(self) -> float | None:
        """Share of all requests that finished within the objective; a rejected one did not."""
        return _ratio(self.counters.in_slo, self.counters.requests)

    @property
    def replicas(self) -> float:
        """Replicas paid for, on average over the time."""
        return self.counters.paid_ns / NS_PER_S / self.elapsed_s if self.elapsed_s else 0.0


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None
