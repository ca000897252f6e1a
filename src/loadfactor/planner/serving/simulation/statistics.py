"""What came out of an hour, or of the whole run? Sums that add up, and the shares and percentiles made from them last."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadfactor.planner.serving.simulation import state as s
from loadfactor.units import NS_PER_S


@dataclass(frozen=True)
class Statistics:
    """Counters of a stretch of simulated time; two tallies added are the tally of both. Nothing seen is None, never 0."""

    counters: NDArray[np.int64]
    sums: NDArray[np.float64]
    histograms: NDArray[np.int64]
    rejections: NDArray[np.int64]

    def __add__(self, other: "Statistics") -> "Statistics":
        return Statistics(
            self.counters + other.counters,
            self.sums + other.sums,
            self.histograms + other.histograms,
            self.rejections + other.rejections,
        )

    def _count(self, which: int) -> int:
        return int(self.counters[which])

    # ---- requests ----

    @property
    def arrived(self) -> int:
        """Requests that came, rejected ones too."""
        return self._count(s.ARRIVED)

    @property
    def finished(self) -> int:
        """Requests that got their last token."""
        return self._count(s.FINISHED)

    @property
    def rejected(self) -> dict[str, int]:
        """Requests turned away, by reason; reasons nobody met are left out."""
        return {name: int(n) for name, n in zip(s.REASONS, self.rejections, strict=True) if n}

    @property
    def preempted(self) -> int:
        """Times a sequence lost its cache to make room."""
        return self._count(s.PREEMPTED)

    @property
    def retried(self) -> int:
        """Requests that started again because their replica failed."""
        return self._count(s.RETRIED)

    @property
    def steps(self) -> int:
        """Engine steps."""
        return self._count(s.STEPS)

    @property
    def failures(self) -> int:
        """Replicas that failed."""
        return self._count(s.FAILURES)

    @property
    def cold_starts(self) -> int:
        """Replicas that were started."""
        return self._count(s.COLD_STARTS)

    # ---- tokens ----

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of finished requests."""
        return self._count(s.PROMPT_DONE)

    @property
    def output_tokens(self) -> int:
        """Output tokens of finished requests."""
        return self._count(s.OUTPUT_DONE)

    @property
    def prompt_tokens_arrived(self) -> int:
        """Prompt tokens that came; = finished + rejected once the system is empty."""
        return self._count(s.PROMPT_IN)

    @property
    def prompt_tokens_rejected(self) -> int:
        """Prompt tokens of rejected requests."""
        return self._count(s.PROMPT_REJECTED)

    @property
    def output_tokens_asked(self) -> int:
        """Output tokens asked for; = finished + rejected once the system is empty."""
        return self._count(s.OUTPUT_ASKED)

    @property
    def output_tokens_rejected(self) -> int:
        """Output tokens rejected requests would have got."""
        return self._count(s.OUTPUT_REJECTED)

    @property
    def output_tokens_made(self) -> int:
        """Output tokens that left an engine, those of requests given up later too."""
        return self._count(s.OUTPUT_MADE)

    @property
    def prompt_tokens_computed(self) -> int:
        """Prompt tokens computed: without those found in the cache, with those computed again."""
        return self._count(s.PROMPT_COMPUTED)

    @property
    def prompt_tokens_cached(self) -> int:
        """Prompt tokens found in the prefix cache at arrival."""
        return self._count(s.PROMPT_CACHED)

    # ---- time ----

    @property
    def paid_replica_s(self) -> float:
        """Replica-seconds paid for: up, starting or down; = busy + idle + starting + down, exactly in nanoseconds."""
        return self._count(s.PAID_NS) / NS_PER_S

    @property
    def busy_replica_s(self) -> float:
        """Replica-seconds with a step running."""
        return self._count(s.BUSY_NS) / NS_PER_S

    @property
    def idle_replica_s(self) -> float:
        """Replica-seconds up, with nothing to do."""
        return self._count(s.IDLE_NS) / NS_PER_S

    @property
    def starting_replica_s(self) -> float:
        """Replica-seconds of cold starts."""
        return self._count(s.STARTING_NS) / NS_PER_S

    @property
    def down_replica_s(self) -> float:
        """Replica-seconds failed and under repair."""
        return self._count(s.DOWN_NS) / NS_PER_S

    @property
    def unbalanced_ns(self) -> int:
        """Paid time less busy, idle, starting and down: 0, or the books are wrong."""
        parts = (s.BUSY_NS, s.IDLE_NS, s.STARTING_NS, s.DOWN_NS)
        return self._count(s.PAID_NS) - sum(self._count(p) for p in parts)

    @property
    def duty_share(self) -> float | None:
        """Share of paid replica-time with a step running."""
        return _ratio(self._count(s.BUSY_NS), self._count(s.PAID_NS))

    @property
    def mean_batch(self) -> float | None:
        """Sequences decoding per step, time-weighted over busy time."""
        return _ratio(self._count(s.SEQUENCE_NS), self._count(s.BUSY_NS))

    @property
    def mean_present(self) -> float | None:
        """Sequences in a replica, decoding or in their prompt, over busy time."""
        return _ratio(self._count(s.PRESENT_NS), self._count(s.BUSY_NS))

    @property
    def cache_fill_share(self) -> float | None:
        """Share of cache blocks in use over busy time: fullness of the memory that is left to the cache."""
        return _ratio(float(self.sums[s.CACHE_FILL_NS]), self._count(s.BUSY_NS))

    @property
    def moved_bytes(self) -> float:
        """Bytes of weights and cache one accelerator of each replica moved."""
        return float(self.sums[s.MOVED_BYTES])

    @property
    def flops(self) -> float:
        """FLOPs one accelerator of each replica did."""
        return float(self.sums[s.FLOPS])

    @property
    def mean_in_system(self) -> float | None:
        """Requests in the system ÷ (needs `elapsed_s`): their time in it, in request-seconds."""
        return self._count(s.SYSTEM_NS) / NS_PER_S

    @property
    def little_residual_ns(self) -> int:
        """Time requests spent in the system, counted by the clock less counted by request: 0 once the system is empty."""
        return self._count(s.SYSTEM_NS) - self._count(s.SOJOURN_NS)

    # ---- what users see ----

    @property
    def slo_share(self) -> float | None:
        """Share of all arrived requests that finished within the SLO; a rejected one did not."""
        return _ratio(self._count(s.IN_SLO), self.arrived)

    def ttft_s(self, quantile: float) -> float | None:
        """Quantile of the time to first token, seconds, to 1 %."""
        return self._quantile(s.TTFT, quantile)

    def tpot_s(self, quantile: float) -> float | None:
        """Quantile of the time per output token after the first."""
        return self._quantile(s.TPOT, quantile)

    def queue_s(self, quantile: float) -> float | None:
        """Quantile of the wait until a replica began with a request."""
        return self._quantile(s.QUEUE, quantile)

    def end_to_end_s(self, quantile: float) -> float | None:
        """Quantile of the time from arrival to last token."""
        return self._quantile(s.END_TO_END, quantile)

    def _quantile(self, kind: int, quantile: float) -> float | None:
        counts = self.histograms[kind]
        total = int(counts.sum())
        if total == 0:
            return None
        place = int(np.searchsorted(np.cumsum(counts), quantile * total))
        if place == 0:
            return 0.0 if counts[0] else s.LEAST_NS / NS_PER_S
        return float(s.LEAST_NS * s.BIN_RATIO ** (place - 0.5) / NS_PER_S)


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None
