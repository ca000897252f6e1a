"""What the event loop counts: one declared list of fields, from which its arrays, every sum and every statistic are made."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Counters(NamedTuple):
    """Sums over a stretch of simulated time, an hour or the whole run. Times are whole nanoseconds, so that they add up exactly."""

    requests: int = 0  # that came, rejected ones too
    finished: int = 0  # got their last token
    in_slo: int = 0  # finished within the objective
    preempted: int = 0  # times a sequence lost its cache to another
    retried: int = 0  # started again because their replica failed
    steps: int = 0  # of an engine
    failures: int = 0  # of replicas
    cold_starts: int = 0  # of replicas
    # tokens: in (or wanted) = out + rejected once the system is empty
    prompt_tokens_in: int = 0
    prompt_tokens_out: int = 0  # of finished requests
    prompt_tokens_rejected: int = 0
    prompt_tokens_computed: int = 0  # without those found in the cache, with those computed again
    output_tokens_asked: int = 0
    output_tokens_out: int = 0  # of finished requests
    output_tokens_rejected: int = 0
    output_tokens_made: int = 0  # left an engine, those of requests given up later too
    # time of replicas: paid = busy + idle + starting + down
    paid_ns: int = 0
    busy_ns: int = 0  # a step is running
    idle_ns: int = 0
    starting_ns: int = 0
    down_ns: int = 0
    # time of requests
    decoding_ns: int = 0  # sequences decoding × busy time
    present_ns: int = 0  # sequences in a replica, decoding or in their prompt, × busy time
    system_ns: int = 0  # requests in the system × time, by the clock
    sojourn_ns: int = 0  # the same, summed over finished requests
    # work of one accelerator of each replica
    cache_fill_ns: float = 0.0  # share of cache blocks in use × busy time
    moved_bytes: float = 0.0
    flops: float = 0.0


# Where each field stands in the arrays of the clock; constants when compiled.
AT: Any = Counters(*range(len(Counters._fields)))


def take_counters(counters: NDArray[np.int64], sums: NDArray[np.float64]) -> Counters:
    """What has been counted since the last call, fractions from `sums`; both start again at zero."""
    kinds = Counters.__annotations__.values()
    found = Counters._make(float(sums[i]) if kind is float else int(counters[i]) for i, kind in enumerate(kinds))
    counters[:] = 0
    sums[:] = 0.0
    return found


# Reasons of a rejection, in the order they are tested.
REJECTED_EMPTY, REJECTED_TOO_LONG, REJECTED_DOES_NOT_FIT, REJECTED_QUEUE_FULL = 0, 1, 2, 3
REASONS = ("empty prompt or output", "longer than the context", "does not fit in the cache", "queue full")

# Histograms, logarithmic bins.
TTFT, TPOT, QUEUE, END_TO_END = 0, 1, 2, 3
HISTOGRAMS = 4
BINS = 1600
BIN_RATIO = 1.015
LEAST_NS = 1_000.0
