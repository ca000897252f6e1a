"""What does a fleet do with a stream of requests? Chunks of arrivals in, one tally an hour out; memory stays bounded."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from loadfactor.errors import PlanError
from loadfactor.planner.serving.simulation import state
from loadfactor.planner.serving.simulation.fleet import ServingFleet
from loadfactor.planner.serving.simulation.statistics import Statistics
from loadfactor.units import NS_PER_S, S_PER_HOUR

HOUR_NS = S_PER_HOUR * NS_PER_S
NONE_KNOWN: NDArray[np.int64] = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Arrivals:
    """A chunk of requests in order of time. `hashes[offsets[i]:offsets[i+1]]` are the prefix blocks of request i, if known."""

    at_ns: NDArray[np.int64]
    prompts: NDArray[np.int64]
    outputs: NDArray[np.int64]
    offsets: NDArray[np.int64] = field(default_factory=lambda: NONE_KNOWN)
    hashes: NDArray[np.int64] = field(default_factory=lambda: NONE_KNOWN)


@dataclass(frozen=True)
class Run:
    """What came out: one tally an hour, their sum, and how long it took on the simulated clock."""

    hours: tuple[Statistics, ...]
    total: Statistics
    elapsed_s: float

    @property
    def mean_in_system(self) -> float | None:
        """Requests in the system on average over the run."""
        return int(self.total.counters[state.SYSTEM_NS]) / NS_PER_S / self.elapsed_s if self.elapsed_s else None


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
    from loadfactor.planner.serving.simulation.loop import (  # loads the compiler, which other commands need not wait for
        EMPTY,
        MORE_TO_COME,
        NEED_ARRIVALS,
        REACHED,
        RECORDS_FULL,
        TO_THE_END,
        UNTIL_EMPTY,
        run,
    )

    rules = fleet.rules()
    ring = 1 << max(int(most_output).bit_length(), 8)
    pool = state.new_pool(
        min(fleet.pool_limit, fleet.replicas * (rules.max_sequences + rules.queue_limit) + rules.queue_limit)
    )
    active = fleet.autoscale.least if fleet.autoscale else fleet.replicas
    sets = -(-fleet.prefix.blocks // state.PREFIX_WAYS) if fleet.prefix.blocks else 0
    replicas = state.new_replicas(fleet.replicas, rules, ring, active, sets)
    replicas.each["role"] = fleet.roles()
    clock = state.new_clock(1 << 17 if records else 0)
    clock.scalars[state.CHANCE] = seed % 2147483646 + 1
    clock.scalars[state.SPARE_SINCE] = state.NEVER
    if fleet.failures:
        draws = np.random.default_rng(seed).exponential(fleet.failures.mtbf_s * NS_PER_S, fleet.replicas)
        replicas.each["timer"][:active] = draws[:active].astype(np.int64) + 1
    leaving = np.zeros(2 * rules.max_sequences + 2, np.int64)
    packed = state.as_record(rules)
    hours: list[Statistics] = []
    horizon_ns = None if horizon_s is None else round(horizon_s * NS_PER_S)
    stream = _checked(arrivals)
    chunk = next(stream, None)
    position, ending = 0, MORE_TO_COME
    until = HOUR_NS if horizon_ns is None else min(HOUR_NS, horizon_ns)
    while True:
        if chunk is None:
            chunk, position = Arrivals(NONE_KNOWN, NONE_KNOWN, NONE_KNOWN), 0
            ending = TO_THE_END
        if ending != MORE_TO_COME:
            ending = TO_THE_END if horizon_ns is not None and until <= horizon_ns else UNTIL_EMPTY
        why, position = run(
            pool,
            replicas,
            packed,
            fleet.costs,
            clock,
            until,
            chunk.at_ns,
            chunk.prompts,
            chunk.outputs,
            chunk.offsets,
            chunk.hashes,
            position,
            ending,
            leaving,
        )
        if why == NEED_ARRIVALS:
            chunk, position = next(stream, None), 0
        elif why == RECORDS_FULL:
            _hand_over(clock, records)
        else:
            hours.append(_read(clock))
            now = int(clock.scalars[state.NOW])
            over = horizon_ns is not None and now >= horizon_ns
            empty = ending != MORE_TO_COME and clock.scalars[state.IN_SYSTEM] == 0
            if why == EMPTY or (over and (empty or fleet.closed_loop)):
                _hand_over(clock, records)
                total = hours[0]
                for hour in hours[1:]:
                    total = total + hour
                return Run(tuple(hours), total, now / NS_PER_S)
            assert why == REACHED
            until = (now // HOUR_NS + 1) * HOUR_NS
            if horizon_ns is not None and now < horizon_ns:
                until = min(until, horizon_ns)


def _checked(arrivals: Iterable[Arrivals]) -> Iterator[Arrivals]:
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


def _read(clock: state.Clock) -> Statistics:
    statistics = Statistics(clock.counters.copy(), clock.sums.copy(), clock.histograms.copy(), clock.rejected.copy())
    for array in (clock.counters, clock.sums, clock.histograms, clock.rejected):
        array[:] = 0
    return statistics


def _hand_over(clock: state.Clock, records: Records | None) -> None:
    count = int(clock.scalars[state.RECORDED])
    if records is not None and count:
        records(clock.records[:count].copy())
    clock.scalars[state.RECORDED] = 0
