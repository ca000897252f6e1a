"""The simulation keeps its books exactly, agrees with the equations and the closed forms, and answers odd requests clearly.

As a plain queue, a prompt of t tokens at one microsecond each and one output token is a service of t µs. The fleet's shared queue
is then the line before k servers, whose mean wait has a closed form (planner/sizing/closed_forms.py).
"""

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import sqrt
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray

from loadfactor.base.errors import PlanError
from loadfactor.base.units import NS_PER_S, US_PER_S
from loadfactor.planner.serving.simulation.fleet import (
    Autoscale,
    Batching,
    Failures,
    PrefixCache,
    ServingFleet,
    Slo,
    Speculation,
    tabulate_costs,
)
from loadfactor.planner.serving.simulation.simulate import Arrivals, Run, simulate
from loadfactor.planner.serving.simulation.state import Costs, StepRates, as_record
from loadfactor.planner.serving.step import Replica, cache_tokens, step_time
from loadfactor.planner.sizing.closed_forms import queue_wait

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
CHUNK = 65_536


@dataclass(frozen=True)
class MeanWait:
    """A mean wait with its confidence interval from batch means, seconds."""

    mean_s: float
    half_width_s: float
    requests: int


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
    # A replica that computes one prompt token a microsecond and nothing else takes time.
    rates = StepRates(1 / US_PER_S, 0.0, 0.0, 0.0, 1e15, 0.0, 0.0, 1, 1.0, 0.0, 0.0, 0.0, 0.0)
    tokens = np.array([0.0, 1.0, 2.0]) / US_PER_S
    costs = Costs(as_record(rates), tokens, np.zeros(3), np.zeros(3))
    fleet = ServingFleet(costs, batching, servers, "shared-queue", pool_limit=500_000 + servers)
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


def balanced(run: Run) -> None:
    """Tokens, requests and time add up, to the last one."""
    t, c = run.total, run.total.counters
    assert c.prompt_tokens_in == c.prompt_tokens_out + c.prompt_tokens_rejected
    assert c.output_tokens_asked == c.output_tokens_out + c.output_tokens_rejected
    assert t.requests == t.finished + t.rejected
    assert t.unbalanced_ns() == 0
    assert c.system_ns == c.sojourn_ns
    for hour in run.hours:
        assert hour.unbalanced_ns() == 0
    assert c.paid_ns == sum(h.counters.paid_ns for h in run.hours)


VARIANTS = {
    "plain": {},
    "scarce cache": {"batching": Batching(cache_tokens=640, max_sequences=64, chunk_tokens=512, max_context=2000)},
    "prompts stop decoding": {"batching": Batching(4000, 64, 512, mixed=False, max_context=2000)},
    "shortest first": {"batching": Batching(4000, 8, 512, order="shortest-first", max_context=2000)},
    "short queue": {"batching": Batching(4000, 2, 512, max_context=2000, queue_limit=5)},
    "round robin": {"replicas": 3, "router": "round-robin"},
    "shared queue": {"replicas": 3, "router": "shared-queue"},
    "autoscaled": {"replicas": 6, "autoscale": Autoscale(1, 4.0, 1.0, 5.0, 10.0)},
    "failing": {"replicas": 4, "failures": Failures(20.0, 5.0)},
    "failing and scaled": {"replicas": 4, "failures": Failures(15, 5), "autoscale": Autoscale(1, 4.0, 1.0, 3.0, 5.0)},
    "disaggregated": {"replicas": 3, "prefill_replicas": 1, "transfer_s_per_token": 1e-6},
    "speculating": {"speculation": Speculation(3, 0.7)},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_everything_is_conserved(simple_fleet: ServingFleet, many_requests: Arrivals, name: str) -> None:
    """Tokens in = out + rejected, busy + idle + starting + down = paid, and Little's law hold exactly for every kind of fleet."""
    run = simulate(replace(simple_fleet, **VARIANTS[name]), [many_requests])
    balanced(run)
    assert run.total.finished > 0
    if name == "scarce cache":
        assert run.total.counters.preempted > 0
        assert run.total.counters.prompt_tokens_computed > run.total.counters.prompt_tokens_out
    if name.startswith("failing"):
        assert run.total.counters.failures > 0
        assert run.total.counters.retried > 0
        assert run.total.counters.down_ns > 0
    if name == "autoscaled":
        assert run.total.counters.cold_starts > 0
        assert run.total.counters.starting_ns > 0
    if name == "short queue":
        assert run.total.count_rejections().keys() == {"queue full"}


def test_same_seed_same_result(simple_fleet: ServingFleet, many_requests: Arrivals) -> None:
    """The same fleet, arrivals and seed give the same counters; another seed gives other failures."""
    fleet = replace(simple_fleet, replicas=4, failures=Failures(20.0, 5.0))
    first, second, other = (simulate(fleet, [many_requests], seed=s).total.counters for s in (1, 1, 2))
    assert first == second
    assert first != other


def test_chunks_do_not_matter(simple_fleet: ServingFleet, many_requests: Arrivals) -> None:
    """A stream cut into small chunks gives the same run as one chunk."""
    columns = (many_requests.at_ns, many_requests.prompts, many_requests.outputs)
    parts = [Arrivals(*(column[i : i + 7] for column in columns)) for i in range(0, 2000, 7)]
    whole, cut = simulate(simple_fleet, [many_requests]), simulate(simple_fleet, parts)
    assert whole.total.counters == cut.total.counters
    assert (whole.total.histograms == cut.total.histograms).all()


def test_one_request_by_hand(simple_fleet: ServingFleet) -> None:
    """A prompt of 100 and 3 output tokens: one step of 10.1 ms for the prompt, two of 10.001 ms for the other tokens."""
    rows: list[np.ndarray] = []
    run = simulate(simple_fleet, [Arrivals(np.array([5]), np.array([100]), np.array([3]))], records=rows.append)
    arrived, admitted, first, finished, prompt, output = rows[0][0]
    assert (arrived, admitted, prompt, output) == (5, 5, 100, 3)
    assert first - arrived == 10_100_000
    assert finished - first == 2 * 10_001_000
    assert run.total.counters.busy_ns == pytest.approx(0.030102 * NS_PER_S)


def test_a_step_may_finish_more_requests_than_are_handed_over_at_once(simple_fleet: ServingFleet) -> None:
    """A replica of a rack runs 73,728 sequences: all of them come, end in the same step and are handed over."""
    many = 73_728
    batching = replace(simple_fleet.batching, max_sequences=many, chunk_tokens=8 * many, cache_tokens=16 * many)
    fleet = replace(simple_fleet, batching=replace(batching, queue_limit=many))
    rows: list[np.ndarray] = []
    together = Arrivals(np.zeros(many, np.int64), np.full(many, 8), np.full(many, 2))
    run = simulate(fleet, [together], records=rows.append)
    assert run.total.finished == many == sum(map(len, rows))
    assert len(np.unique(np.concatenate(rows)[:, 3])) == 1


def test_odd_requests_are_counted_not_averaged(simple_fleet: ServingFleet) -> None:
    """Empty prompts and outputs, requests longer than the context and than the cache are rejected, each under its reason."""
    prompts = np.array([0, 50, 1900, 1500, 100])
    outputs = np.array([5, 0, 200, 400, 10])
    small = replace(simple_fleet, batching=replace(simple_fleet.batching, cache_tokens=1600))
    run = simulate(small, [Arrivals(np.arange(5) * 10**9, prompts, outputs)])
    expected = {"empty prompt or output": 2, "longer than the context": 1, "does not fit in the cache": 1}
    assert run.total.count_rejections() == expected
    assert run.total.finished == 1
    balanced(run)


def test_time_running_backwards_is_refused(simple_fleet: ServingFleet) -> None:
    """A request before the one before it is an error that names its place, also across chunks."""
    chunks = [
        Arrivals(np.array([10, 20]), np.array([1, 1]), np.array([1, 1])),
        Arrivals(np.array([15]), np.array([1]), np.array([1])),
    ]
    with pytest.raises(PlanError, match="request 3 arrives before"):
        simulate(simple_fleet, chunks)


def test_nothing_arrives(simple_fleet: ServingFleet) -> None:
    """A fleet nobody asks is paid and idle, and has no latency rather than a latency of 0."""
    run = simulate(simple_fleet, [], horizon_s=3600.0)
    assert run.total.counters.paid_ns == run.total.counters.idle_ns == 3600 * NS_PER_S
    assert run.total.ttft_p50_s is None
    assert run.total.slo_share is None
    assert run.total.mean_batch is None


@pytest.mark.parametrize("batch", [1, 16, 64])
def test_fleet_of_one_agrees_with_the_equations(llama_8b: Replica, batch: int) -> None:
    """At a fixed batch the simulated time per token is the step equation's to 1 %."""
    prompt, output = 512, 512
    fleet = ServingFleet(
        tabulate_costs(llama_8b, 8192, 256), Batching(cache_tokens(llama_8b, 1024.0), 256, 8192), 1, closed_loop=False
    )
    arrivals = Arrivals(np.zeros(batch, np.int64), np.full(batch, prompt), np.full(batch, output))
    rows: list[np.ndarray] = []
    simulate(fleet, [arrivals], records=rows.append)
    done = np.concatenate(rows)
    simulated_s = (
        float(((done[:, 3] - done[:, 2]) / (output - 1)).min()) / 1e9
    )  # the last to start sees no other prompt
    contexts = prompt + np.arange(output - 1)
    predicted_s = float(np.mean([step_time(llama_8b, float(batch), float(batch * c)).total_s for c in contexts]))
    assert simulated_s == pytest.approx(predicted_s, rel=0.01)


def test_closed_loop_keeps_its_users(simple_fleet: ServingFleet) -> None:
    """In a closed loop of 8 users there are always 8 requests in the system; each waits one step, in which it came, of its 21."""
    arrivals = Arrivals(np.zeros(8, np.int64), np.full(8, 100), np.full(8, 20))
    run = simulate(replace(simple_fleet, closed_loop=True), [arrivals], horizon_s=60.0)
    counted = run.total.counters
    assert counted.system_ns / NS_PER_S / run.elapsed_s == pytest.approx(8.0)
    assert counted.present_ns / counted.busy_ns == pytest.approx(8.0 * 20 / 21, rel=0.01)


def test_prefix_affinity_finds_more_than_chance(simple_fleet: ServingFleet) -> None:
    """Conversations that share a prefix are sent to the replica that holds it, and fewer prompt tokens are computed."""
    rng = np.random.default_rng(2)
    count, blocks = 600, 4
    at = np.sort(rng.uniform(0, 600e9, count)).astype(np.int64)
    talk = rng.integers(0, 40, count)
    hashes = (talk[:, None] * 100 + np.arange(blocks)).ravel()
    arrivals = Arrivals(at, np.full(count, 400), np.full(count, 5), np.arange(count + 1) * blocks, hashes)
    fleet = replace(simple_fleet, replicas=4, prefix=PrefixCache(blocks=64, block_tokens=64))
    computed = {
        router: simulate(replace(fleet, router=router), [arrivals]).total.counters.prompt_tokens_computed
        for router in ("least-loaded", "prefix-affine")
    }
    assert computed["prefix-affine"] < 0.8 * computed["least-loaded"]
    assert computed["least-loaded"] < count * 400


def test_speculation_is_faster_by_its_accepted_tokens(simple_costs: Costs, simple_fleet: ServingFleet) -> None:
    """With steps of constant length, decoding is as many times faster as a step yields tokens net of drafting."""
    spec = Speculation(3, 0.7, 0.0)
    record = simple_costs.rates.copy()
    record["accepted"], record["decode_tokens"] = spec.speed, 4
    flat = np.full(3000, 0.01)
    one = Arrivals(np.array([0]), np.array([10]), np.array([101]))
    times = []
    for rates in (simple_costs.rates, record):
        fleet = replace(simple_fleet, costs=Costs(rates, flat, np.zeros(400), flat))
        times.append(simulate(fleet, [one]).total.tpot_p50_s)
    assert times[0] / times[1] == pytest.approx(spec.tokens_per_step, rel=0.03)


def test_slo_counts_rejected_requests_as_missed(simple_fleet: ServingFleet) -> None:
    """A rejected request has not been served well."""
    arrivals = Arrivals(np.array([0, 10**9]), np.array([100, 5000]), np.array([5, 5]))
    run = simulate(replace(simple_fleet, slo=Slo(1.0, 1.0)), [arrivals])
    assert run.total.slo_share == 0.5


def test_an_hour_has_within_the_objective_no_more_than_ended_in_it(simple_fleet: ServingFleet) -> None:
    """A request that came just before an hour began counts in the hour in which it ends."""
    at = np.array([3_599_990, 3_700_000]) * 1_000_000
    run = simulate(replace(simple_fleet, slo=Slo(10.0, 10.0)), [Arrivals(at, np.array([100, 100]), np.array([50, 50]))])
    assert [hour.finished for hour in run.hours] == [0, 2]
    assert [hour.slo_share for hour in run.hours] == [None, 1.0]


def _forever(count: int) -> Iterator[Arrivals]:
    rng = np.random.default_rng(1)
    for start in range(0, count, 20_000):
        at = start * 20_000_000 + np.sort(rng.integers(0, 20_000 * 20_000_000, 20_000))
        yield Arrivals(at, rng.integers(1, 200, 20_000), rng.integers(1, 20, 20_000))


def test_memory_does_not_grow_with_the_trace(simple_fleet: ServingFleet) -> None:
    """Ten times the requests need no more memory, but for the statistics of more hours."""
    simulate(simple_fleet, _forever(20_000))
    peaks = []
    for count in (40_000, 400_000):
        tracemalloc.start()
        run = simulate(simple_fleet, _forever(count))
        peaks.append(tracemalloc.get_traced_memory()[1] - len(run.hours) * 60_000)
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


QUEUES = {"M/M/1": (1, 0.8, 1.0), "M/M/10": (10, 8.0, 1.0), "M/D/1": (1, 0.8, 0.0), "M/G/1": (1, 0.7, 4.0)}


@pytest.mark.long
@pytest.mark.parametrize("name", QUEUES)
def test_queues_agree_with_closed_forms(name: str) -> None:
    """With service times given, mean waits are within 2 % of the closed form, or it lies in the 95 % interval of batch means."""
    servers, rate, cv2 = QUEUES[name]

    def service(rng: np.random.Generator, count: int) -> np.ndarray:
        if cv2 == 0:
            return np.ones(count)
        fast_share = 0.5 * (1 + np.sqrt((cv2 - 1) / (cv2 + 1)))  # balanced hyperexponential; exponential for cv2 = 1
        fast = rng.random(count) < fast_share
        return rng.exponential(np.where(fast, 1 / (2 * fast_share), 1 / (2 * (1 - fast_share))))

    got = simulated_wait(lambda rng, n: rng.exponential(1 / rate, n), service, servers, 2_000_000, seed=7)
    exact = queue_wait(rate, 1.0, servers, service_cv2=cv2).mean_s
    assert abs(got.mean_s - exact) < max(0.02 * exact, got.half_width_s)
    assert got.half_width_s < 0.04 * exact
