"""The event loop: step ends, arrivals, transfers, timers and the autoscaler, in the order of time."""

import numpy as np

from loadfactor.base.compiled import entry, inner
from loadfactor.base.units import MS_PER_S, NS_PER_S
from loadfactor.planner.serving.simulation.accounting import count_system, serves, settle_all
from loadfactor.planner.serving.simulation.batching import end_step, start_step
from loadfactor.planner.serving.simulation.counters import (
    AT,
    REJECTED_DOES_NOT_FIT,
    REJECTED_EMPTY,
    REJECTED_QUEUE_FULL,
    REJECTED_TOO_LONG,
)
from loadfactor.planner.serving.simulation.prefix_cache import cached_blocks, remember
from loadfactor.planner.serving.simulation.queues import pop, push
from loadfactor.planner.serving.simulation.routing import route
from loadfactor.planner.serving.simulation.running import forget, release
from loadfactor.planner.serving.simulation.scaling import change_status, scale
from loadfactor.planner.serving.simulation.state import (
    ACTIVE,
    BOTH,
    BY_TIME,
    DECODE,
    DOWN,
    IN_SYSTEM,
    NEVER,
    NEXT_FREE,
    NEXT_SCALE,
    NONE,
    NOW,
    RECORDED,
    SEQUENCE,
    STARTING,
    Clock,
    Costs,
    Pool,
    Replicas,
    Rules,
)

NEED_ARRIVALS, REACHED, EMPTY, RECORDS_FULL = 0, 1, 2, 3
MORE_TO_COME, TO_THE_END, UNTIL_EMPTY = 0, 1, 2
RETRY_NS = NS_PER_S // MS_PER_S


@inner
def _reject(clock: Clock, reason: int, prompt: int, output: int) -> None:
    clock.rejected[reason] += 1
    clock.counters[AT.prompt_tokens_rejected] += prompt
    clock.counters[AT.output_tokens_rejected] += output


@inner
def arrive(
    pool: Pool, replicas: Replicas, rules: Rules, clock: Clock, prompt: int, output: int, hashes: np.ndarray
) -> None:
    """A request comes in: rejected with a reason, or routed and queued."""
    prompt, output = max(prompt, 0), max(output, 0)
    counters = clock.counters
    counters[AT.requests] += 1
    counters[AT.prompt_tokens_in] += prompt
    counters[AT.output_tokens_asked] += output
    q = clock.scalars[NEXT_FREE]
    reason = NONE
    if prompt == 0 or output == 0:
        reason = REJECTED_EMPTY
    elif prompt + output > rules.max_context or output >= replicas.due.shape[1]:
        reason = REJECTED_TOO_LONG
    elif prompt + output > rules.blocks * rules.block_tokens:
        reason = REJECTED_DOES_NOT_FIT
    elif q == NONE:
        reason = REJECTED_QUEUE_FULL
    if reason != NONE:
        _reject(clock, reason, prompt, output)
        return
    clock.scalars[NEXT_FREE] = pool.next_run[q]
    r = route(replicas, clock, rules, hashes, BOTH)
    cached = int(prompt * rules.cached_share)
    if hashes.size and r != NONE and r < replicas.each.size and replicas.prefix_key.shape[1] > 1:
        cached = cached_blocks(replicas, r, hashes) * rules.prefix_block_tokens
        remember(replicas, r, hashes, clock.scalars[NOW])
    pool.arrival[q] = clock.scalars[NOW]
    pool.key[q] = clock.scalars[SEQUENCE]
    clock.scalars[SEQUENCE] += 1
    pool.prompt[q], pool.output[q] = prompt, output
    pool.cached[q] = min(cached, prompt - 1)  # the last token is always computed: it yields the first one of the answer
    pool.produced[q], pool.progress[q], pool.held[q], pool.running[q] = 0, 0, 0, 0
    pool.admitted[q], pool.first[q] = NONE, NONE
    if not _enqueue(pool, replicas, rules, r, q):
        forget(pool, clock, q)
        _reject(clock, REJECTED_QUEUE_FULL, prompt, output)
        return
    count_system(clock, 1)


@inner
def _enqueue(pool: Pool, replicas: Replicas, rules: Rules, r: int, q: int) -> bool:
    row = replicas.each.size if r == NONE else r  # nobody up: in the lobby
    if replicas.queued[row] >= rules.queue_limit or not push(pool, replicas, rules.order, row, q):
        return False
    if row < replicas.each.size:
        replicas.each[row].outstanding += 1
    return True


@inner
def _wake(pool: Pool, replicas: Replicas, rules: Rules, costs: Costs, clock: Clock) -> None:
    lobby = replicas.each.size
    for r in range(replicas.each.size):
        if replicas.each[r].step_end != NEVER or not serves(replicas.each[r].status):
            continue
        common = replicas.queued[lobby] > 0 and replicas.each[r].role != DECODE and replicas.each[r].status == ACTIVE
        if replicas.queued[r] > 0 or replicas.each[r].present > 0 or common:
            start_step(pool, replicas, rules, costs, clock, r)


@inner
def _finish_step(
    pool: Pool, replicas: Replicas, rules: Rules, costs: Costs, clock: Clock, r: int, leaving: np.ndarray
) -> None:
    no_hashes = leaving[:0]
    left = end_step(pool, replicas, rules, clock, r, leaving)
    start_step(pool, replicas, rules, costs, clock, r)  # before any client has its answer
    for i in range(left):
        q = leaving[i]
        if q < 0:  # its prompt is done here; the cache goes over the link to a decoding replica
            q = ~q
            pool.start[q] = clock.scalars[NOW] + np.int64(pool.prompt[q] * rules.transfer_ns_per_token)
            push(pool, replicas, BY_TIME, replicas.each.size + 1, q)
            continue
        prompt, output = pool.prompt[q], pool.output[q]
        forget(pool, clock, q)
        if rules.closed_loop:
            arrive(pool, replicas, rules, clock, prompt, output, no_hashes)
    if rules.closed_loop and left:
        _wake(pool, replicas, rules, costs, clock)


@inner
def _fail(pool: Pool, replicas: Replicas, rules: Rules, clock: Clock, r: int) -> None:
    """A replica is lost: what it held is computed again elsewhere."""
    change_status(replicas, rules, clock, r, DOWN)
    clock.counters[AT.failures] += 1
    replicas.each[r].step_end = NEVER
    replicas.each[r].done = NONE
    replicas.prefix_key[r, :, :] = NONE
    no_hashes = replicas.queue[r, :0]
    while replicas.each[r].first_run != NONE or replicas.queued[r] > 0:
        q = replicas.each[r].first_run
        if q != NONE:
            release(pool, replicas, rules, r, q)
        else:
            q = pop(pool, replicas, rules.order, r)
        replicas.each[r].outstanding -= 1
        pool.progress[q], pool.cached[q] = 0, 0
        clock.counters[AT.retried] += 1
        other = route(replicas, clock, rules, no_hashes, BOTH)
        if not _enqueue(pool, replicas, rules, other, q):
            _reject(clock, REJECTED_QUEUE_FULL, pool.prompt[q], pool.output[q])
            count_system(clock, -1)
            forget(pool, clock, q)


@entry
def run(
    pool: Pool,
    replicas: Replicas,
    rules: Rules,
    costs: Costs,
    clock: Clock,
    until: int,
    at: np.ndarray,
    prompts: np.ndarray,
    outputs: np.ndarray,
    offsets: np.ndarray,
    hashes: np.ndarray,
    position: int,
    ending: int,
    leaving: np.ndarray,
) -> tuple[int, int]:
    """Advance to `until` (ns) or to the end of these arrivals; returns (why it stopped, the next arrival's position).

    `ending`: MORE_TO_COME stops at the end of the arrivals, TO_THE_END goes on to `until` without more,
    UNTIL_EMPTY stops when nobody is left.

    `offsets[i]:offsets[i + 1]` are the prefix blocks of arrival i in `hashes`; an empty `offsets` means none are known.
    """
    s = clock.scalars
    count = replicas.each.size
    transfers = count + 1
    while True:
        if position >= at.size and ending == MORE_TO_COME:
            return NEED_ARRIVALS, position
        if s[RECORDED] >= clock.records.shape[0] - leaving.size and clock.records.shape[0] > 1:
            return RECORDS_FULL, position
        first, step_at, timer_first, timer_at = 0, NEVER, 0, NEVER
        for r in range(count):
            if replicas.each[r].step_end < step_at:
                first, step_at = r, replicas.each[r].step_end
            if replicas.each[r].timer < timer_at:
                timer_first, timer_at = r, replicas.each[r].timer
        arrival_at = at[position] if position < at.size else NEVER
        transfer_at = pool.start[replicas.queue[transfers, 0]] if replicas.queued[transfers] else NEVER
        work_at = min(step_at, arrival_at, transfer_at)
        if ending == UNTIL_EMPTY and work_at == NEVER and s[IN_SYSTEM] == 0:
            settle_all(replicas, clock, rules)
            return EMPTY, position
        scale_at = s[NEXT_SCALE] if rules.scale_interval_ns > 0 else NEVER
        soonest = min(work_at, timer_at, scale_at)
        if soonest > until or soonest == NEVER:
            s[NOW] = until
            settle_all(replicas, clock, rules)
            return REACHED, position
        s[NOW] = soonest
        if step_at == soonest:
            _finish_step(pool, replicas, rules, costs, clock, first, leaving)
        elif timer_at == soonest:
            r = timer_first
            if replicas.each[r].status == STARTING or replicas.each[r].status == DOWN:
                change_status(replicas, rules, clock, r, ACTIVE)
            else:
                _fail(pool, replicas, rules, clock, r)
            _wake(pool, replicas, rules, costs, clock)
        elif transfer_at == soonest:
            q = pop(pool, replicas, BY_TIME, transfers)
            r = route(replicas, clock, rules, hashes[:0], DECODE)
            if r == NONE or not push(pool, replicas, rules.order, r, q):
                pool.start[q] = s[NOW] + RETRY_NS  # nobody can take it yet: ask again in a millisecond
                push(pool, replicas, BY_TIME, transfers, q)
            else:
                replicas.each[r].outstanding += 1
                _wake(pool, replicas, rules, costs, clock)
        elif arrival_at == soonest:
            while position < at.size and at[position] == soonest:
                if offsets.size:
                    known = hashes[offsets[position] : offsets[position + 1]]
                else:
                    known = hashes[:0]
                arrive(pool, replicas, rules, clock, prompts[position], outputs[position], known)
                position += 1
            _wake(pool, replicas, rules, costs, clock)
        else:
            scale(replicas, rules, clock)
            _wake(pool, replicas, rules, costs, clock)
