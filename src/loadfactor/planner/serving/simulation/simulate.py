"""A stream of requests served by a fleet: chunks of arrivals in, statistics of every hour out; memory stays bounded."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import PlanError
from loadfactor.base.units import NS_PER_S, S_PER_HOUR
from loadfactor.planner.serving.simulation import state
from loadfactor.planner.serving.simulation.fleet import ServingFleet
from loadfactor.planner.serving.simulation.state import (
    BIN_RATIO,
    END_TO_END,
    LEAST_NS,
    QUEUE,
    REASONS,
    TPOT,
    TTFT,
    Counters,
    take_counters,
)


@dataclass(frozen=True)
class Statistics:
    """Counts of `elapsed_s` of simulated time; two added are the statistics of both. Nothing seen is None, never 0."""

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
        return self.counters.finished

    @property
    def rejected(self) -> int:
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

    # waits that half, nine tenths and 99 % of the requests do not exceed; the time per token is that after the first
    ttft_p50_s = property(lambda self: self.quantile_s(TTFT, 0.5))
    ttft_p90_s = property(lambda self: self.quantile_s(TTFT, 0.9))
    ttft_p99_s = property(lambda self: self.quantile_s(TTFT, 0.99))
    tpot_p50_s = property(lambda self: self.quantile_s(TPOT, 0.5))
    tpot_p90_s = property(lambda self: self.quantile_s(TPOT, 0.9))
    tpot_p99_s = property(lambda self: self.quantile_s(TPOT, 0.99))
    queue_p90_s = property(lambda self: self.quantile_s(QUEUE, 0.9))
    end_to_end_p90_s = property(lambda self: self.quantile_s(END_TO_END, 0.9))

    @property
    def slo_share(self) -> float | None:
        """Share of the requests that ended (in this time, whenever they came) within the objective; a rejected one did not."""
        return _ratio(self.counters.in_slo, self.finished + self.rejected)

    @property
    def replicas(self) -> float:
        """Replicas paid for, on average over the time."""
        return self.counters.paid_ns / NS_PER_S / self.elapsed_s if self.elapsed_s else 0.0


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None


HOUR_NS = S_PER_HOUR * NS_PER_S
NOTHING: NDArray[np.int64] = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Arrivals:
    """A chunk of requests in order of time. `hashes[offsets[i]:offsets[i+1]]` are the prefix blocks of request i, if known."""

    at_ns: NDArray[np.int64]
    prompts: NDArray[np.int64]
    outputs: NDArray[np.int64]
    offsets: NDArray[np.int64] = field(default_factory=lambda: NOTHING)
    hashes: NDArray[np.int64] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True)
class Run:
    """Result of a simulation: the statistics of every hour and of all of them together."""

    hours: tuple[Statistics, ...]
    total: Statistics

    @property
    def elapsed_s(self) -> float:
        """How long it took on the simulated clock."""
        return self.total.elapsed_s


Records = Callable[[NDArray[np.int64]], None]


def simulate(
    fleet: ServingFleet,
    arrivals: Iterable[Arrivals],
    seed: int = 1,
    horizon_s: float | None = None,
    records: Records | None = None,
    most_output: int = 32_767,
) -> Run:
    """Serve `arrivals` and count, hour by hour, until the last request is done and at least until `horizon_s`.

    With `horizon_s` and a closed loop the run stops there. `records` receives finished requests in batches, rows of arrival,
    admission, first token and finish (ns), prompt and output tokens. Same fleet, arrivals and seed: same result, to the nanosecond.
    Raises PlanError when arrivals run backwards in time.
    """
    # loads the compiler, for which no command waits that does not simulate
    from loadfactor.planner.serving.simulation import loop

    advance, clock, finished = _prepare(loop.run, fleet, seed, records is not None, most_output)
    horizon_ns = None if horizon_s is None else round(horizon_s * NS_PER_S)
    stream = _check_order(arrivals)
    chunk = next(stream, None)
    position, until = 0, HOUR_NS if horizon_ns is None else min(HOUR_NS, horizon_ns)
    hours: list[Statistics] = []
    started_ns = 0
    while True:
        ending = loop.MORE_TO_COME
        if chunk is None:
            waits = horizon_ns is not None and until <= horizon_ns
            ending = loop.TO_THE_END if waits else loop.UNTIL_EMPTY
        why, position = advance(until, chunk or Arrivals(NOTHING, NOTHING, NOTHING), position if chunk else 0, ending)
        if why == loop.NEED_ARRIVALS:
            chunk, position = next(stream, None), 0
            continue
        if why == loop.RECORDS_FULL:
            _hand_over(clock, finished, records)
            continue
        now = int(clock["now"])
        hours.append(_take_statistics(clock, (now - started_ns) / NS_PER_S))
        started_ns = now
        over = horizon_ns is not None and now >= horizon_ns
        empty = chunk is None and clock["in_system"] == 0
        if why == loop.EMPTY or (over and (empty or fleet.closed_loop)):
            _hand_over(clock, finished, records)
            return Run(tuple(hours), reduce(add, hours))
        until = (now // HOUR_NS + 1) * HOUR_NS
        if horizon_ns is not None and now < horizon_ns:
            until = min(until, horizon_ns)


Advance = Callable[[int, Arrivals, int, int], tuple[int, int]]


def _prepare(
    run: Callable[..., tuple[int, int]], fleet: ServingFleet, seed: int, recording: bool, most_output: int
) -> tuple[Advance, state.Clock, state.Ints]:
    """The compiled loop bound to a fleet's empty state, the clock in which it counts, and records of finished requests."""
    rules = fleet.build_rules()
    ring = 1 << max(int(most_output).bit_length(), 8)
    places = fleet.replicas * (rules.max_sequences + rules.queue_limit) + rules.queue_limit
    pool = state.new_pool(min(fleet.pool_limit, places))
    active = fleet.autoscale.least if fleet.autoscale else fleet.replicas
    sets = -(-fleet.prefix.blocks // state.PREFIX_WAYS) if fleet.prefix.blocks else 0
    prefix = state.new_prefix(fleet.replicas, sets)
    replicas = state.new_replicas(fleet.replicas, rules, ring, active)
    replicas.each["role"] = fleet.list_roles()
    leaving = np.zeros(2 * rules.max_sequences + 2, np.int64)
    # a step may finish as many as fit in `leaving`
    records = np.zeros(((1 << 17) + leaving.size if recording else 1, 6), np.int64)
    clock = state.new_clock()
    clock["chance"] = seed % 2147483646 + 1
    clock["spare_since"] = state.NEVER
    if fleet.failures:
        draws = np.random.default_rng(seed).exponential(fleet.failures.mtbf_s * NS_PER_S, fleet.replicas)
        replicas.each["timer"][:active] = draws[:active].astype(np.int64) + 1
    packed: Any = state.as_record(rules)

    def advance(until: int, chunk: Arrivals, position: int, ending: int) -> tuple[int, int]:
        stream = state.Stream(chunk.at_ns, chunk.prompts, chunk.outputs, chunk.offsets, chunk.hashes)
        return run(
            pool, replicas, prefix, packed, fleet.costs, clock, records, stream, position, until, ending, leaving
        )

    return advance, clock, records


def _check_order(arrivals: Iterable[Arrivals]) -> Iterator[Arrivals]:
    last, seen = 0, 0
    for chunk in arrivals:
        at = np.ascontiguousarray(chunk.at_ns, np.int64)
        if at.size == 0:
            continue
        backwards = np.flatnonzero(np.diff(at, prepend=last) < 0)
        if backwards.size:
            raise PlanError(
                f"request {seen + int(backwards[0]) + 1} arrives before the one before it; sort the trace by time"
            )
        last, seen = int(at[-1]), seen + at.size
        whole = [np.ascontiguousarray(a, np.int64) for a in (chunk.prompts, chunk.outputs, chunk.offsets, chunk.hashes)]
        yield Arrivals(at, *whole)


def _take_statistics(clock: state.Clock, elapsed_s: float) -> Statistics:
    found = Statistics(take_counters(clock), clock["histograms"].copy(), clock["rejected"].copy(), elapsed_s)
    clock["histograms"] = 0
    clock["rejected"] = 0
    return found


def _hand_over(clock: state.Clock, finished: state.Ints, records: Records | None) -> None:
    count = int(clock["recorded"])
    if records is not None and count:
        records(finished[:count].copy())
    clock["recorded"] = 0
