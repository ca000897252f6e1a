"""Continuous batching over a paged cache: queues, the running batch, what a replica does in a step, and what happens when it ends.

A step decodes one token for every running sequence and, within the token budget, computes prompts. Blocks for a whole prompt are
reserved at admission; each 16th token of a sequence takes one more. When none is left the sequence admitted last is preempted:
it loses its blocks, waits at the head of the queue, and its tokens are computed again. Finishing is not searched for: a sequence
waits in the list of the decode step at which it ends (`due`), and how many need a block in a step is counted by phase.
"""

import numpy as np

from loadfactor.base.compiled import inline, inner
from loadfactor.base.units import NS_PER_S
from loadfactor.planner.serving.simulation.state import (
    ACTIVE,
    AT,
    BIN_RATIO,
    BINS,
    BY_TIME,
    DECODE,
    DOWN,
    DRAINING,
    END_TO_END,
    IN_SYSTEM,
    LAST_SETTLED,
    LEAST_NS,
    NEVER,
    NEXT_FREE,
    NONE,
    NOW,
    OFF,
    PREFILL,
    QUEUE,
    RECORDED,
    SHORTEST_FIRST,
    STARTING,
    TPOT,
    TTFT,
    Clock,
    Costs,
    Pool,
    Replicas,
    Rules,
)


@inner
def settle(replicas: Replicas, clock: Clock, rules: Rules, r: int) -> None:
    """Book the time of replica `r` since it was last settled; call before anything about it changes."""
    now = clock.scalars[NOW]
    spent = now - replicas.each[r].settled
    replicas.each[r].settled = now
    status = replicas.each[r].status
    if spent == 0 or status == OFF:
        return
    counters = clock.counters
    counters[AT.paid_ns] += spent
    if status == STARTING:
        counters[AT.starting_ns] += spent
    elif status == DOWN:
        counters[AT.down_ns] += spent
    elif replicas.each[r].step_end != NEVER:
        counters[AT.busy_ns] += spent
        counters[AT.decoding_ns] += spent * replicas.each[r].step_batch
        counters[AT.present_ns] += spent * replicas.each[r].present
        clock.sums[AT.cache_fill_ns] += spent * (1.0 - replicas.each[r].free / rules.blocks)
    else:
        counters[AT.idle_ns] += spent


@inner
def settle_all(replicas: Replicas, clock: Clock, rules: Rules) -> None:
    """Book everybody's time up to now, as the end of an hour needs."""
    for r in range(replicas.each.size):
        settle(replicas, clock, rules, r)
    count_system(clock, 0)


@inner
def count_system(clock: Clock, change: int) -> None:
    """Requests in the system × time, for Little's law."""
    s = clock.scalars
    clock.counters[AT.system_ns] += s[IN_SYSTEM] * (s[NOW] - s[LAST_SETTLED])
    s[LAST_SETTLED] = s[NOW]
    s[IN_SYSTEM] += change


@inner
def count_value(clock: Clock, kind: int, value_ns: float) -> None:
    place = 0
    if value_ns > LEAST_NS:
        place = min(int(np.log(value_ns / LEAST_NS) / np.log(BIN_RATIO)) + 1, BINS - 1)
    clock.histograms[kind, place] += 1


@inner
def serves(status: int) -> bool:
    return status in (ACTIVE, DRAINING)


@inner
def _before(pool: Pool, order: int, a: int, b: int) -> bool:
    if order == BY_TIME and pool.start[a] != pool.start[b]:
        return bool(pool.start[a] < pool.start[b])
    if order == SHORTEST_FIRST:
        left = pool.prompt[a] - pool.cached[a] + pool.output[a] - pool.produced[a]
        right = pool.prompt[b] - pool.cached[b] + pool.output[b] - pool.produced[b]
        if left != right:
            return bool(left < right)
    return bool(pool.key[a] < pool.key[b])


@inner
def push(pool: Pool, replicas: Replicas, order: int, row: int, request: int) -> bool:
    queue = replicas.queue[row]
    place = replicas.queued[row]
    if place >= queue.size:
        return False
    replicas.queued[row] = place + 1
    while place > 0:
        parent = (place - 1) // 2
        if not _before(pool, order, request, queue[parent]):
            break
        queue[place] = queue[parent]
        place = parent
    queue[place] = request
    return True


@inner
def pop(pool: Pool, replicas: Replicas, order: int, row: int) -> int:
    """Take the request whose turn it is from the queue of `row`, which must not be empty."""
    queue = replicas.queue[row]
    top = queue[0]
    size = replicas.queued[row] - 1
    replicas.queued[row] = size
    last = queue[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _before(pool, order, queue[child + 1], queue[child]):
            child += 1
        if not _before(pool, order, queue[child], last):
            break
        queue[place] = queue[child]
        place = child
    queue[place] = last
    return int(top)


@inner
def join_batch(pool: Pool, replicas: Replicas, rules: Rules, r: int, q: int) -> None:
    """From now on `q` gets a token in every decode step."""
    me = replicas.each[r]
    context = pool.prompt[q] + pool.produced[q] - 1  # its newest token is not in the cache yet
    pool.context_at[q] = context
    pool.joined_at[q] = me.decodes
    pool.finish_at[q] = me.decodes + pool.output[q] - pool.produced[q]
    pool.running[q] = 1
    place = pool.finish_at[q] % replicas.due.shape[1]
    head = replicas.due[r, place]
    pool.next_due[q] = head
    pool.prev_due[q] = NONE
    if head != NONE:
        pool.prev_due[head] = q
    replicas.due[r, place] = q
    replicas.phase[r, (context - me.decodes) % rules.block_tokens] += 1
    me.batch += 1
    me.context += context


@inner
def _leave_batch(pool: Pool, replicas: Replicas, rules: Rules, r: int, q: int) -> None:
    me = replicas.each[r]
    ran = me.decodes - pool.joined_at[q]
    place = pool.finish_at[q] % replicas.due.shape[1]
    if pool.prev_due[q] == NONE:
        replicas.due[r, place] = pool.next_due[q]
    else:
        pool.next_due[pool.prev_due[q]] = pool.next_due[q]
    if pool.next_due[q] != NONE:
        pool.prev_due[pool.next_due[q]] = pool.prev_due[q]
    replicas.phase[r, (pool.context_at[q] - pool.joined_at[q]) % rules.block_tokens] -= 1
    me.batch -= 1
    me.context -= pool.context_at[q] + ran
    pool.produced[q] += ran
    pool.running[q] = 0


@inner
def release(pool: Pool, replicas: Replicas, rules: Rules, r: int, q: int) -> None:
    """Take a request off its replica, wherever it stands there: blocks free, lists and sums without it."""
    me = replicas.each[r]
    blocks = pool.held[q]
    if pool.running[q]:
        context = pool.context_at[q] + me.decodes - pool.joined_at[q]
        blocks = max(blocks, (context + rules.block_tokens - 1) // rules.block_tokens)
        _leave_batch(pool, replicas, rules, r, q)
    me.free += blocks
    if me.partial == q:
        me.partial = NONE
    before, after = pool.prev_run[q], pool.next_run[q]
    if before == NONE:
        me.first_run = after
    else:
        pool.next_run[before] = after
    if after == NONE:
        me.last_run = before
    else:
        pool.prev_run[after] = before
    me.present -= 1


@inner
def forget(pool: Pool, clock: Clock, q: int) -> None:
    pool.next_run[q] = clock.scalars[NEXT_FREE]
    clock.scalars[NEXT_FREE] = q


@inner
def step_seconds(costs: Costs, batch: int, context: float, tokens: int, pairs: float, window_pairs: float) -> float:
    """Length of a step of `batch` decodes over `context` cached tokens and `tokens` of prompts: the tables of `Costs`."""
    rates = costs.rates
    attention = pairs * rates.pair_s + window_pairs * rates.pair_window_s + tokens * rates.prompt_token_s
    prompt = 0.0
    if tokens > 0:
        prompt = _by_tokens(costs, tokens) + attention
        if batch == 0:
            return float(prompt + costs.head_s[1])
    both = _by_tokens(costs, tokens + batch * rates.decode_tokens) + attention
    rows = batch * rates.decode_tokens + (1 if tokens > 0 else 0)
    both += costs.head_s[min(rows, costs.head_s.size - 1)]
    both += rates.context_s * context + rates.window_s * min(context, rates.window * batch) + rates.sequence_s * batch
    # a speculative step is worth `accepted` plain ones: its decode part is spread over them
    return float(prompt + (both - prompt) / rates.accepted)


@inline
def _make_room(pool: Pool, replicas: Replicas, rules: Rules, clock: Clock, r: int) -> int:
    """Preempt until every sequence whose context fills its last block can have another; returns how many blocks they need."""
    me = replicas.each[r]
    crossing = replicas.phase[r, (-me.decodes) % rules.block_tokens]
    while me.free < crossing and me.last_run != me.first_run:
        q = me.last_run
        release(pool, replicas, rules, r, q)
        pool.progress[q] = 0
        pool.cached[q] = 0
        clock.counters[AT.preempted] += 1
        push(pool, replicas, rules.order, r, q)
        crossing = replicas.phase[r, (-me.decodes) % rules.block_tokens]
    return int(crossing)


@inline
def _admit(pool: Pool, replicas: Replicas, rules: Rules, clock: Clock, r: int, crossing: int) -> int:
    me = replicas.each[r]
    row = r
    if replicas.queued[r] == 0 and me.role != DECODE:
        row = replicas.each.size
    if replicas.queued[row] == 0 or me.present >= rules.max_sequences:
        return NONE
    q = replicas.queue[row, 0]
    # a transfer's last token is not cached yet
    tokens = pool.prompt[q] + pool.produced[q] - (1 if pool.progress[q] < 0 else 0)
    needed = (tokens + rules.block_tokens - 1) // rules.block_tokens
    if me.free - crossing < needed:
        return NONE
    pop(pool, replicas, rules.order, row)
    if row != r:
        me.outstanding += 1
    me.free -= needed
    pool.held[q] = needed
    me.present += 1
    pool.prev_run[q], pool.next_run[q] = me.last_run, NONE
    if me.last_run == NONE:
        me.first_run = q
    else:
        pool.next_run[me.last_run] = q
    me.last_run = q
    if pool.admitted[q] == NONE:
        pool.admitted[q] = clock.scalars[NOW]
        count_value(clock, QUEUE, clock.scalars[NOW] - pool.arrival[q])
    return int(q)


@inner
def _by_tokens(costs: Costs, tokens: int) -> float:
    last = costs.tokens_s.size - 1
    if tokens <= last:
        return float(costs.tokens_s[tokens])
    return float(costs.tokens_s[last] + (tokens - last) * costs.rates.token_slope_s)


@inner
def start_step(pool: Pool, replicas: Replicas, rules: Rules, costs: Costs, clock: Clock, r: int) -> None:
    """Compose the next step of an idle replica and set when it ends; leaves it idle when there is nothing to do."""
    settle(replicas, clock, rules, r)
    me, rates = replicas.each[r], costs.rates
    crossing = _make_room(pool, replicas, rules, clock, r)
    budget = rules.chunk_tokens
    if rules.mixed:
        budget -= me.batch * rates.decode_tokens
    if me.batch > 0 and me.step_prompt == 0 and me.partial == NONE and me.decodes % rules.poll_steps != 0:
        budget = 0  # the engine does not look for new requests in this step
    tokens, pairs, window_pairs = 0, 0.0, 0.0
    me.done = NONE
    while budget > 0:
        q = me.partial
        if q == NONE:
            q = _admit(pool, replicas, rules, clock, r, crossing)
            if q == NONE:
                break
            if me.role == DECODE and pool.progress[q] < 0:  # its cache came over the link
                pool.progress[q] = 0
                join_batch(pool, replicas, rules, r, q)
                continue
            pool.progress[q] = min(pool.cached[q], pool.prompt[q] + pool.produced[q] - 1)
            me.partial = q
        whole = pool.prompt[q] + pool.produced[q]
        done = pool.progress[q]
        part = min(whole - done, budget)
        inside = part * done + part * (part + 1) / 2.0
        pairs += inside
        window_pairs += min(inside, part * rates.window)
        pool.progress[q] += part
        tokens += part
        budget -= part
        if pool.progress[q] < whole:
            break
        me.partial = NONE
        pool.next_done[q] = me.done
        me.done = q
    batch = me.batch
    if tokens > 0 and not rules.mixed:
        batch = 0
    if batch == 0 and tokens == 0:
        return
    me.step_batch = batch
    me.step_prompt = tokens
    seconds = step_seconds(costs, batch, float(me.context), tokens, pairs, window_pairs)
    me.step_end = clock.scalars[NOW] + max(np.int64(np.rint(seconds * NS_PER_S)), np.int64(1))
    clock.counters[AT.steps] += 1
    clock.counters[AT.prompt_tokens_computed] += tokens
    work = batch * rates.decode_tokens + tokens
    context = me.context if batch else 0
    moved = costs.tokens_bytes[min(work, costs.tokens_bytes.size - 1)]
    clock.sums[AT.moved_bytes] += moved + context * rates.context_bytes
    clock.sums[AT.flops] += work * rates.token_flops + (pairs + context * rates.decode_tokens) * rates.pair_flops


@inner
def end_step(pool: Pool, replicas: Replicas, rules: Rules, clock: Clock, r: int, leaving: np.ndarray) -> int:
    """Count a step that has just ended; requests that finished, and prompts ready to move on, are put in `leaving`.

    Returns how many; a transfer is marked by its complement (~request).
    """
    settle(replicas, clock, rules, r)
    me, now = replicas.each[r], clock.scalars[NOW]
    me.step_end = NEVER
    left = 0
    if me.step_batch > 0:
        me.free -= replicas.phase[r, (-me.decodes) % rules.block_tokens]
        me.decodes += 1
        me.context += me.step_batch
        clock.counters[AT.output_tokens_made] += me.step_batch
        q = replicas.due[r, me.decodes % replicas.due.shape[1]]
        while q != NONE:
            after = pool.next_due[q]
            release(pool, replicas, rules, r, q)
            finish(pool, clock, rules, now, q)
            leaving[left] = q
            left += 1
            q = after
    q = me.done
    me.done = NONE
    while q != NONE:
        after = pool.next_done[q]
        pool.produced[q] += 1
        clock.counters[AT.output_tokens_made] += 1
        if pool.first[q] == NONE:
            pool.first[q] = now
            count_value(clock, TTFT, now - pool.arrival[q])
        if pool.produced[q] >= pool.output[q]:
            release(pool, replicas, rules, r, q)
            finish(pool, clock, rules, now, q)
            leaving[left] = q
            left += 1
        elif me.role == PREFILL:
            release(pool, replicas, rules, r, q)
            pool.progress[q] = NONE
            leaving[left] = ~q
            left += 1
        else:
            join_batch(pool, replicas, rules, r, q)
        q = after
    me.outstanding -= left
    return left


@inner
def finish(pool: Pool, clock: Clock, rules: Rules, now: int, q: int) -> None:
    """Everything that is known about a request that has got its last token."""
    counters = clock.counters
    counters[AT.finished] += 1
    counters[AT.prompt_tokens_out] += pool.prompt[q]
    counters[AT.output_tokens_out] += pool.output[q]
    counters[AT.sojourn_ns] += now - pool.arrival[q]
    count_value(clock, END_TO_END, now - pool.arrival[q])
    first = pool.first[q] - pool.arrival[q]
    each = 0.0
    if pool.output[q] > 1:
        each = (now - pool.first[q]) / (pool.output[q] - 1)
        count_value(clock, TPOT, each)
    if first <= rules.slo_ttft_ns and each <= rules.slo_tpot_ns:
        counters[AT.in_slo] += 1
    place = clock.scalars[RECORDED]
    if place < clock.records.shape[0]:
        row = clock.records[place]
        row[0], row[1], row[2], row[3] = pool.arrival[q], pool.admitted[q], pool.first[q], now
        row[4], row[5] = pool.prompt[q], pool.output[q]
        clock.scalars[RECORDED] = place + 1
    count_system(clock, -1)
