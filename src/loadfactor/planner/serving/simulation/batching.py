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
    BIN_RATIO,
    BINS,
    BY_TIME,
    DECODE,
    DOWN,
    DRAINING,
    END_TO_END,
    LEAST_NS,
    NEVER,
    NONE,
    OFF,
    PREFILL,
    QUEUE,
    SHORTEST_FIRST,
    STARTING,
    TPOT,
    TTFT,
    Clock,
    Costs,
    Ints,
    Pool,
    Replica,
    Replicas,
    Rules,
)


@inner
def settle(me: Replica, clock: Clock, rules: Rules) -> None:
    """Book the time of a replica since it was last settled; call before anything about it changes."""
    spent = clock.now - me.settled
    me.settled = clock.now
    status = me.status
    if spent == 0 or status == OFF:
        return
    clock.paid_ns += spent
    if status == STARTING:
        clock.starting_ns += spent
    elif status == DOWN:
        clock.down_ns += spent
    elif me.step_end != NEVER:
        clock.busy_ns += spent
        clock.decoding_ns += spent * me.step_batch
        clock.present_ns += spent * me.present
        clock.cache_fill_ns += spent * (1.0 - me.free / rules.blocks)
    else:
        clock.idle_ns += spent


@inner
def settle_all(replicas: Replicas, clock: Clock, rules: Rules) -> None:
    """Book everybody's time up to now, as the end of an hour needs."""
    for r in range(replicas.each.size):
        settle(replicas.each[r], clock, rules)
    count_system(clock, 0)


@inner
def count_system(clock: Clock, change: int) -> None:
    """Requests in the system × time, for Little's law."""
    clock.system_ns += clock.in_system * (clock.now - clock.last_settled)
    clock.last_settled = clock.now
    clock.in_system += change


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
    one, other = pool[a], pool[b]
    left, right = one.key, other.key
    if order == BY_TIME and one.start != other.start:
        left, right = one.start, other.start
    elif order == SHORTEST_FIRST:
        left_tokens = one.prompt - one.cached + one.output - one.produced
        right_tokens = other.prompt - other.cached + other.output - other.produced
        if left_tokens != right_tokens:
            left, right = left_tokens, right_tokens
    is_before: bool = left < right
    return is_before


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
    top: int = queue[0]
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
    return top


@inner
def join_batch(pool: Pool, replicas: Replicas, rules: Rules, r: int, q: int) -> None:
    """From now on `q` gets a token in every decode step."""
    me, request = replicas.each[r], pool[q]
    context = request.prompt + request.produced - 1  # its newest token is not in the cache yet
    request.context_at = context
    request.joined_at = me.decodes
    request.finish_at = me.decodes + request.output - request.produced
    request.running = 1
    place = request.finish_at % replicas.due.shape[1]
    head = replicas.due[r, place]
    request.next_due = head
    request.prev_due = NONE
    if head != NONE:
        pool[head].prev_due = q
    replicas.due[r, place] = q
    replicas.phase[r, (context - me.decodes) % rules.block_tokens] += 1
    me.batch += 1
    me.context += context


@inner
def _leave_batch(pool: Pool, replicas: Replicas, rules: Rules, r: int, q: int) -> None:
    me, request = replicas.each[r], pool[q]
    ran = me.decodes - request.joined_at
    place = request.finish_at % replicas.due.shape[1]
    if request.prev_due == NONE:
        replicas.due[r, place] = request.next_due
    else:
        pool[request.prev_due].next_due = request.next_due
    if request.next_due != NONE:
        pool[request.next_due].prev_due = request.prev_due
    replicas.phase[r, (request.context_at - request.joined_at) % rules.block_tokens] -= 1
    me.batch -= 1
    me.context -= request.context_at + ran
    request.produced += ran
    request.running = 0


@inner
def release(pool: Pool, replicas: Replicas, rules: Rules, r: int, q: int) -> None:
    """Take a request off its replica, wherever it stands there: blocks free, lists and sums without it."""
    me, request = replicas.each[r], pool[q]
    blocks = request.held
    if request.running:
        context = request.context_at + me.decodes - request.joined_at
        blocks = max(blocks, (context + rules.block_tokens - 1) // rules.block_tokens)
        _leave_batch(pool, replicas, rules, r, q)
    me.free += blocks
    if me.partial == q:
        me.partial = NONE
    before, after = request.prev_run, request.next_run
    if before == NONE:
        me.first_run = after
    else:
        pool[before].next_run = after
    if after == NONE:
        me.last_run = before
    else:
        pool[after].prev_run = before
    me.present -= 1


@inner
def forget(pool: Pool, clock: Clock, q: int) -> None:
    pool[q].next_run = clock.next_free
    clock.next_free = q


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
def _let_wait(pool: Pool, replicas: Replicas, rules: Rules, r: int) -> bool:
    """Whether prompts wait in this step for others to join them, as sequences are running and a step has room for more prompts."""
    me = replicas.each[r]
    row = r
    if replicas.queued[r] == 0 and me.role != DECODE:
        row = replicas.each.size
    if me.batch == 0 or me.partial != NONE or replicas.queued[row] == 0:
        return False
    waiting = replicas.queued[row] * pool[replicas.queue[row, 0]].prompt
    if me.waited < rules.wait_steps and waiting < rules.chunk_tokens:
        me.waited += 1
        return True
    me.waited = 0
    return False


@inline
def _make_room(pool: Pool, replicas: Replicas, rules: Rules, clock: Clock, r: int) -> int:
    """Preempt until every sequence whose context fills its last block can have another; returns how many blocks they need."""
    me = replicas.each[r]
    crossing: int = replicas.phase[r, (-me.decodes) % rules.block_tokens]
    while me.free < crossing and me.last_run != me.first_run:
        q = me.last_run
        release(pool, replicas, rules, r, q)
        request = pool[q]
        request.progress = 0
        request.cached = 0
        clock.preempted += 1
        push(pool, replicas, rules.order, r, q)
        crossing = replicas.phase[r, (-me.decodes) % rules.block_tokens]
    return crossing


@inline
def _admit(pool: Pool, replicas: Replicas, rules: Rules, clock: Clock, r: int, crossing: int) -> int:
    me = replicas.each[r]
    row = r
    if replicas.queued[r] == 0 and me.role != DECODE:
        row = replicas.each.size
    if replicas.queued[row] == 0 or me.present >= rules.max_sequences:
        return NONE
    q: int = replicas.queue[row, 0]
    request = pool[q]
    # a transfer's last token is not cached yet
    tokens = request.prompt + request.produced - (1 if request.progress < 0 else 0)
    needed = (tokens + rules.block_tokens - 1) // rules.block_tokens
    if me.free - crossing < needed:
        return NONE
    pop(pool, replicas, rules.order, row)
    if row != r:
        me.outstanding += 1
    me.free -= needed
    request.held = needed
    me.present += 1
    request.prev_run, request.next_run = me.last_run, NONE
    if me.last_run == NONE:
        me.first_run = q
    else:
        pool[me.last_run].next_run = q
    me.last_run = q
    if request.admitted == NONE:
        request.admitted = clock.now
        count_value(clock, QUEUE, float(clock.now - request.arrival))
    return q


@inner
def _by_tokens(costs: Costs, tokens: int) -> float:
    last = costs.tokens_s.size - 1
    if tokens <= last:
        return float(costs.tokens_s[tokens])
    return float(costs.tokens_s[last] + (tokens - last) * costs.rates.token_slope_s)


@inner
def start_step(pool: Pool, replicas: Replicas, rules: Rules, costs: Costs, clock: Clock, r: int) -> None:
    """Compose the next step of an idle replica and set when it ends; leaves it idle when there is nothing to do."""
    me, rates = replicas.each[r], costs.rates
    settle(me, clock, rules)
    crossing = _make_room(pool, replicas, rules, clock, r)
    budget = rules.chunk_tokens
    if rules.mixed:
        budget -= me.batch * rates.decode_tokens
    if me.batch > 0 and me.step_prompt == 0 and me.partial == NONE and me.decodes % rules.poll_steps != 0:
        budget = 0  # the engine does not look for new requests in this step
    elif rules.wait_steps > 0 and _let_wait(pool, replicas, rules, r):
        budget = 0
    tokens, pairs, window_pairs = 0, 0.0, 0.0
    me.done = NONE
    while budget > 0:
        q = me.partial
        if q == NONE:
            q = _admit(pool, replicas, rules, clock, r, crossing)
            if q == NONE:
                break
            request = pool[q]
            if me.role == DECODE and request.progress < 0:  # its cache came over the link
                request.progress = 0
                join_batch(pool, replicas, rules, r, q)
                continue
            request.progress = min(request.cached, request.prompt + request.produced - 1)
            me.partial = q
        request = pool[q]
        whole = request.prompt + request.produced
        done = request.progress
        part = min(whole - done, budget)
        inside = part * done + part * (part + 1) / 2.0
        pairs += inside
        window_pairs += min(inside, part * rates.window)
        request.progress += part
        tokens += part
        budget -= part
        if request.progress < whole:
            break
        me.partial = NONE
        request.next_done = me.done
        me.done = q
    batch = me.batch
    if tokens > 0 and not rules.mixed:
        batch = 0
    if batch == 0 and tokens == 0:
        return
    me.step_batch = batch
    me.step_prompt = tokens
    seconds = step_seconds(costs, batch, float(me.context), tokens, pairs, window_pairs)
    me.step_end = clock.now + max(np.int64(np.rint(seconds * NS_PER_S)), np.int64(1))
    clock.steps += 1
    clock.prompt_tokens_computed += tokens
    work = batch * rates.decode_tokens + tokens
    context = me.context if batch else 0
    moved = costs.tokens_bytes[min(work, costs.tokens_bytes.size - 1)]
    clock.moved_bytes += moved + context * rates.context_bytes
    clock.flops += work * rates.token_flops + (pairs + context * rates.decode_tokens) * rates.pair_flops


@inner
def end_step(pool: Pool, replicas: Replicas, rules: Rules, clock: Clock, records: Ints, r: int, leaving: Ints) -> int:
    """Count a step that has just ended; requests that finished, and prompts ready to move on, are put in `leaving`.

    Returns how many; a transfer is marked by its complement (~request).
    """
    me, now = replicas.each[r], clock.now
    settle(me, clock, rules)
    me.step_end = NEVER
    left = 0
    if me.step_batch > 0:
        me.free -= replicas.phase[r, (-me.decodes) % rules.block_tokens]
        me.decodes += 1
        me.context += me.step_batch
        clock.output_tokens_made += me.step_batch
        q = replicas.due[r, me.decodes % replicas.due.shape[1]]
        while q != NONE:
            after = pool[q].next_due
            release(pool, replicas, rules, r, q)
            finish(pool, clock, rules, records, q)
            leaving[left] = q
            left += 1
            q = after
    q = me.done
    me.done = NONE
    while q != NONE:
        request = pool[q]
        after = request.next_done
        request.produced += 1
        clock.output_tokens_made += 1
        if request.first == NONE:
            request.first = now
            count_value(clock, TTFT, float(now - request.arrival))
        if request.produced >= request.output:
            release(pool, replicas, rules, r, q)
            finish(pool, clock, rules, records, q)
            leaving[left] = q
            left += 1
        elif me.role == PREFILL:
            release(pool, replicas, rules, r, q)
            request.progress = NONE
            leaving[left] = ~q
            left += 1
        else:
            join_batch(pool, replicas, rules, r, q)
        q = after
    me.outstanding -= left
    return left


@inner
def finish(pool: Pool, clock: Clock, rules: Rules, records: Ints, q: int) -> None:
    """Everything that is known about a request that has got its last token."""
    now, request = clock.now, pool[q]
    clock.finished += 1
    clock.prompt_tokens_out += request.prompt
    clock.output_tokens_out += request.output
    clock.sojourn_ns += now - request.arrival
    count_value(clock, END_TO_END, float(now - request.arrival))
    first = request.first - request.arrival
    each = 0.0
    if request.output > 1:
        each = (now - request.first) / (request.output - 1)
        count_value(clock, TPOT, each)
    if first <= rules.slo_ttft_ns and each <= rules.slo_tpot_ns:
        clock.in_slo += 1
    place = clock.recorded
    if place < records.shape[0]:
        row = records[place]
        row[0], row[1] = request.arrival, request.admitted
        row[2], row[3] = request.first, now
        row[4], row[5] = request.prompt, request.output
        clock.recorded = place + 1
    count_system(clock, -1)
