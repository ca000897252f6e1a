"""The simulation as a plain queue, to hold it against closed forms: service times given, one request at a time per replica.

A prompt of t tokens at one microsecond each and one output token is a service of t µs. The fleet's shared queue is then the line
before k servers, and its mean wait has a closed form (planner/sizing/closed_forms.py). Confidence comes from batch means.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import PlanError
from loadfactor.base.units import NS_PER_S, US_PER_S
from loadfactor.planner.serving.simulation.fleet import Batching, ServingFleet
from loadfactor.planner.serving.simulation.simulate import Arrivals, simulate
from loadfactor.planner.serving.simulation.state import Costs, StepRates, as_record

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
CHUNK = 65_536


@dataclass(frozen=True)
class MeanWait:
    """A mean wait with its confidence interval from batch means, seconds."""

    mean_s: float
    half_width_s: float
    requests: int


def given_service_costs() -> Costs:
    """A replica that computes one prompt token a microsecond and nothing else takes time."""
    rates = StepRates(1 / US_PER_S, 0.0, 0.0, 0.0, 1e15, 0.0, 0.0, 1, 1.0, 0.0, 0.0, 0.0, 0.0)
    tokens = np.array([0.0, 1.0, 2.0]) / US_PER_S
    return Costs(as_record(rates), tokens, np.zeros(3), np.zeros(3))


def simulated_wait(
    interarrival: Draw,
    service: Draw,
    servers: int,
    requests: int,
    seed: int = 1,
    batches: int = 50,
    confidence: float = 0.95,
) -> MeanWait:
    """Mean wait of `requests` arrivals before `servers` servers, the first tenth dropped.

    `interarrival` and `service` draw times in seconds. Raises PlanError when there are too few requests for the batches.
    """
    if requests < 20 * batches:
        raise PlanError(f"{requests} requests are too few for {batches} batches; take at least {20 * batches}")
    batching = Batching(cache_tokens=2**60, max_sequences=1, chunk_tokens=2**40, max_context=2**50, queue_limit=500_000)
    fleet = ServingFleet(given_service_costs(), batching, servers, "shared-queue", pool_limit=500_000 + servers)
    waits: list[NDArray[np.int64]] = []

    def keep(records: NDArray[np.int64]) -> None:
        waits.append(records[:, :2].copy())

    simulate(fleet, _arrivals(interarrival, service, requests, seed), records=keep)
    seen = np.concatenate(waits)
    seen = seen[np.argsort(seen[:, 0], kind="stable")]
    wait_s = (seen[:, 1] - seen[:, 0])[len(seen) // 10 :] / NS_PER_S
    size = len(wait_s) // batches
    means = wait_s[: size * batches].reshape(batches, size).mean(axis=1)
    spread = float(means.std(ddof=1)) / sqrt(batches)
    return MeanWait(float(means.mean()), NormalDist().inv_cdf((1 + confidence) / 2) * spread, len(wait_s))


def _arrivals(interarrival: Draw, service: Draw, requests: int, seed: int) -> Iterator[Arrivals]:
    rng = np.random.default_rng(seed)
    now_s = 0.0
    for first in range(0, requests, CHUNK):
        count = min(CHUNK, requests - first)
        at_s = now_s + np.cumsum(interarrival(rng, count))
        now_s = float(at_s[-1])
        micros = np.maximum(np.rint(service(rng, count) * US_PER_S), 1).astype(np.int64)
        yield Arrivals((at_s * NS_PER_S).astype(np.int64), micros, np.ones(count, np.int64))
