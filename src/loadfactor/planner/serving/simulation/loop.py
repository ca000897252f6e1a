"""The event loop: step ends, arrivals, transfers, timers and the autoscaler, in the order of time; routing and the prefix cache.

The prefix cache of a replica is set-associative, the least recently used block out first. Blocks enter when a request is routed,
not when its prompt has been computed: one that follows within the time of a prefill finds them a little early.
"""

import numpy as np

from loadfactor.base.compiled import entry, inline, inner
from loadfactor.base.units import MS_PER_S, NS_PER_S
from loadfactor.planner.serving.simulation.batching import (
    count_system,
    end_step,
    forget,
    pop,
    push,
    release,
    serves,
    settle,
    settle_all,
    start_step,
)
from loadfactor.planner.serving.simulation.state import (
    ACTIVE,
    BOTH,
    BY_TIME,
    DECODE,
    DOWN,
    DRAINING,
    NEVER,
    NONE,
    OFF,
    PREFIX_AFFINE,
    REJECTED_DOES_NOT_FIT,
    REJECTED_EMPTY,
    REJECTED_QUEUE_FULL,
    REJECTED_TOO_LONG,
    ROUND_ROBIN,
    SHARED_QUEUE,
    STARTING,
    Clock,
    Costs,
    Ints,
    Pool,
    Prefix,
    Replica,
    Replicas,
    Rules,
    Stream,
)


@inner
def cached_blocks(cache: Prefix, hashes: Ints) -> int:
    """How many of a prompt's leading blocks the replica with this cache holds."""
    found = 0
    for block in hashes:
        row = cache[block % cache.shape[0]]
        held = False
        for way in range(row.size):
            if row[way].block == block:
                held = True
        if not held:
            break
        found += 1
    return found


@inner
def remember(cache: Prefix, hashes: Ints, now: int) -> None:
    """Put a prompt's blocks into the cache, each over the least recently used of its set."""
    for block in hashes:
        row = cache[block % cache.shape[0]]
        oldest = 0
        for way in range(row.size):
            if row[way].block == block:
                oldest = way
                break
            if row[way].used < row[oldest].used:
                oldest = way
        row[oldest].block = block
        row[oldest].used = now + 1


@inner
def draw_chance(clock: Clock) -> float:
    """The next number of a fixed pseudo-random sequence, above 0 and at most 1 (Lehmer's, modulus 2³¹ − 1)."""
    value = clock.chance * np.int64(48271) % np.int64(2147483647)
    clock.chance = value
    return float(value / 2147483647.0)


@inner
def change_status(me: Replica, rules: Rules, clock: Clock, status: int) -> None:
    settle(me, clock, rules)
    now = clock.now
    me.status = status
    me.timer = NEVER
    if status == STARTING:
        me.timer = now + rules.cold_start_ns
        clock.cold_starts += 1
    elif status == DOWN:
        me.timer = now + rules.repair_ns
    elif status == ACTIVE and rules.mtbf_ns > 0:
        me.timer = now + np.int64(-np.log(draw_chance(clock)) * rules.mtbf_ns) + 1


@inner
def scale(replicas: Replicas, rules: Rules, clock: Clock) -> None:
    """One look of the autoscaler: enough replicas for the sequences outstanding, at most one fewer per look, and not at once."""
    now = clock.now
    clock.next_scale = now + rules.scale_interval_ns
    count = replicas.each.size
    waiting, up = replicas.queued[count], 0
    for r in range(count):
        me = replicas.each[r]
        waiting += me.outstanding
        if me.status == ACTIVE or me.status == STARTING:
            up += 1
        if me.status == DRAINING and me.outstanding == 0 and me.step_end == NEVER:
            change_status(me, rules, clock, OFF)
    needed = min(max(int(np.ceil(waiting / rules.scale_target)), rules.least), count)
    if needed >= up:
        clock.spare_since = NEVER
        for status in (DRAINING, OFF):  # one that is still warm first
            for r in range(count):
                me = replicas.each[r]
                if up < needed and me.status == status:
                    change_status(me, rules, clock, ACTIVE if status == DRAINING else STARTING)
                    up += 1
        return
    if clock.spare_since == NEVER:
        clock.spare_since = now
    if now - clock.spare_since < rules.scale_down_lag_ns:
        return
    for r in range(count - 1, -1, -1):
        me = replicas.each[r]
        if me.status == ACTIVE:
            change_status(me, rules, clock, DRAINING)
            return


CROWDED = 2.0  # a replica with this many times the average outstanding work loses its claim to a prefix


@inner
def route(replicas: Replicas, prefix: Prefix, clock: Clock, rules: Rules, hashes: Ints, role: int) -> int:
    """The replica for a new request (role not `DECODE`) or a transfer (`role` = DECODE); NONE when none is up."""
    count: int = replicas.each.size
    if rules.router == SHARED_QUEUE and role != DECODE:
        return count
    best: int = NONE
    least, total, up = 0, 0, 0
    for offset in range(count):
        r: int = (clock.turn + offset) % count
        one = replicas.each[r]
        if one.status != ACTIVE or (one.role == DECODE) != (role == DECODE):
            continue
        if rules.router == ROUND_ROBIN:
            clock.turn = r + 1
            return r
        up += 1
        total += one.outstanding
        if best == NONE or one.outstanding < least:
            best, least = r, one.outstanding
    clock.turn += 1
    if rules.router == PREFIX_AFFINE and hashes.size and role != DECODE and up:
        longest, limit = 0, CROWDED * (total / up) + 2
        for r in range(count):
            one = replicas.each[r]
            if one.status != ACTIVE or one.role == DECODE or one.outstanding > limit:
                continue
            found = cached_blocks(prefix[r], hashes)
            fuller = found == longest and found > 0 and one.outstanding < replicas.each[best].outstanding
            if found > longest or fuller:
                longest, best = found, r
    return best


@inner
def _reject(clock: Clock, reason: int, prompt: int, output: int) -> None:
    clock.rejected[reason] += 1
    clock.prompt_tokens_rejected += prompt
    clock.output_tokens_rejected += output


NEED_ARRIVALS, REACHED, EMPTY, RECORDS_FULL = 0, 1, 2, 3
MORE_TO_COME, TO_THE_END, UNTIL_EMPTY = 0, 1, 2
RETRY_NS = NS_PER_S // MS_PER_S


@inner
def arrive(
    pool: Pool,
    replicas: Replicas,
    prefix: Prefix,
    rules: Rules,
    clock: Clock,
    prompt: int,
    output: int,
    hashes: Ints,
) -> None:
    prompt, output = max(prompt, 0), max(output, 0)
    clock.requests += 1
    clock.prompt_tokens_in += prompt
    clock.output_tokens_asked += output
    q = clock.next_free
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
    request = pool[q]
    clock.next_free = request.next_run
    r = route(replicas, prefix, clock, rules, hashes, BOTH)
    cached = int(prompt * rules.cached_share)
    if hashes.size and r != NONE and r < replicas.each.size and prefix.shape[1] > 1:
        cached = cached_blocks(prefix[r], hashes) * rules.prefix_block_tokens
        remember(prefix[r], hashes, clock.now)
    request.arrival = clock.now
    request.key = clock.sequence
    clock.sequence += 1
    request.prompt, request.output = prompt, output
    request.cached = min(cached, prompt - 1)  # the last token is always computed: it yields the first one of the answer
    request.produced, request.progress = 0, 0
    request.held, request.running = 0, 0
    request.admitted, request.first = NONE, NONE
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
    for r in range(lobby):
        me = replicas.each[r]
        if me.step_end != NEVER or not serves(me.status):
            continue
        common = replicas.queued[lobby] > 0 and me.role != DECODE and me.status == ACTIVE
        if replicas.queued[r] > 0 or me.present > 0 or common:
            start_step(pool, replicas, rules, costs, clock, r)


@inner
def _finish_step(
    pool: Pool,
    replicas: Replicas,
    prefix: Prefix,
    rules: Rules,
    costs: Costs,
    clock: Clock,
    records: Ints,
    r: int,
    leaving: Ints,
) -> None:
    no_hashes = leaving[:0]
    left = end_step(pool, replicas, rules, clock, records, r, leaving)
    start_step(pool, replicas, rules, costs, clock, r)  # before any client has its answer
    for i in range(left):
        q = leaving[i]
        if q < 0:  # its prompt is done here; the cache goes over the link to a decoding replica
            q = ~q
            request = pool[q]
            request.start = clock.now + np.int64(request.prompt * rules.transfer_ns_per_token)
            push(pool, replicas, BY_TIME, replicas.each.size + 1, q)
            continue
        request = pool[q]
        prompt, output = request.prompt, request.output
        forget(pool, clock, q)
        if rules.closed_loop:
            arrive(pool, replicas, prefix, rules, clock, prompt, output, no_hashes)
    if rules.closed_loop and left:
        _wake(pool, replicas, rules, costs, clock)


@inner
def _fail(pool: Pool, replicas: Replicas, prefix: Prefix, rules: Rules, clock: Clock, r: int) -> None:
    """A replica is lost: what it held is computed again elsewhere."""
    me = replicas.each[r]
    change_status(me, rules, clock, DOWN)
    clock.failures += 1
    me.step_end = NEVER
    me.done = NONE
    prefix.block[r] = NONE
    no_hashes = replicas.queue[r, :0]
    while me.first_run != NONE or replicas.queued[r] > 0:
        q = me.first_run
        if q != NONE:
            release(pool, replicas, rules, r, q)
        else:
            q = pop(pool, replicas, rules.order, r)
        me.outstanding -= 1
        request = pool[q]
        request.progress, request.cached = 0, 0
        clock.retried += 1
        other = route(replicas, prefix, clock, rules, no_hashes, BOTH)
        if not _enqueue(pool, replicas, rules, other, q):
            _reject(clock, REJECTED_QUEUE_FULL, request.prompt, request.output)
            count_system(clock, -1)
            forget(pool, clock, q)


@inline
def _take_arrivals(
    pool: Pool, replicas: Replicas, prefix: Prefix, rules: Rules, clock: Clock, stream: Stream, position: int
) -> int:
    while position < stream.at.size and stream.at[position] == clock.now:
        if stream.offsets.size:
            known = stream.hashes[stream.offsets[position] : stream.offsets[position + 1]]
        else:
            known = stream.hashes[:0]
        arrive(pool, replicas, prefix, rules, clock, stream.prompts[position], stream.outputs[position], known)
        position += 1
    return position


@inline
def _take_transfer(pool: Pool, replicas: Replicas, prefix: Prefix, rules: Rules, clock: Clock, no_hashes: Ints) -> bool:
    """Give the cache that has just come over the link to a decoding replica; False where none can take it yet."""
    transfers = replicas.each.size + 1
    q = pop(pool, replicas, BY_TIME, transfers)
    r = route(replicas, prefix, clock, rules, no_hashes, DECODE)
    if r == NONE or not push(pool, replicas, rules.order, r, q):
        pool[q].start = clock.now + RETRY_NS  # again in a millisecond
        push(pool, replicas, BY_TIME, transfers, q)
        return False
    replicas.each[r].outstanding += 1
    return True


@entry
def run(
    pool: Pool,
    replicas: Replicas,
    prefix: Prefix,
    rules: Rules,
    costs: Costs,
    clock: Clock,
    records: Ints,
    stream: Stream,
    position: int,
    until: int,
    ending: int,
    leaving: Ints,
) -> tuple[int, int]:
    """Advance to `until` (ns) or to the end of these arrivals; returns (why it stopped, the next arrival's position).

    `ending`: MORE_TO_COME stops at the end of the arrivals, TO_THE_END goes on to `until` without more,
    UNTIL_EMPTY stops when nobody is left.
    """
    count = replicas.each.size
    transfers = count + 1
    while True:
        if position >= stream.at.size and ending == MORE_TO_COME:
            return NEED_ARRIVALS, position
        if clock.recorded >= records.shape[0] - leaving.size and records.shape[0] > 1:
            return RECORDS_FULL, position
        stepping, step_at, timed, timer_at = 0, NEVER, 0, NEVER
        for r in range(count):
            if replicas.each[r].step_end < step_at:
                stepping, step_at = r, replicas.each[r].step_end
            if replicas.each[r].timer < timer_at:
                timed, timer_at = r, replicas.each[r].timer
        arrival_at = stream.at[position] if position < stream.at.size else NEVER
        transfer_at = pool[replicas.queue[transfers, 0]].start if replicas.queued[transfers] else NEVER
        work_at = min(step_at, arrival_at, transfer_at)
        if ending == UNTIL_EMPTY and work_at == NEVER and clock.in_system == 0:
            settle_all(replicas, clock, rules)
            return EMPTY, position
        scale_at = clock.next_scale if rules.scale_interval_ns > 0 else NEVER
        soonest = min(work_at, timer_at, scale_at)
        if soonest > until or soonest == NEVER:
            clock.now = until
            settle_all(replicas, clock, rules)
            return REACHED, position
        clock.now = soonest
        if step_at == soonest:
            _finish_step(pool, replicas, prefix, rules, costs, clock, records, stepping, leaving)
            continue
        if timer_at == soonest:
            status = replicas.each[timed].status
            if status in (STARTING, DOWN):
                change_status(replicas.each[timed], rules, clock, ACTIVE)
            else:
                _fail(pool, replicas, prefix, rules, clock, timed)
        elif transfer_at == soonest:
            if not _take_transfer(pool, replicas, prefix, rules, clock, stream.hashes[:0]):
                continue
        elif arrival_at == soonest:
            position = _take_arrivals(pool, replicas, prefix, rules, clock, stream, position)
        else:
            scale(replicas, rules, clock)
        _wake(pool, replicas, rules, costs, clock)
