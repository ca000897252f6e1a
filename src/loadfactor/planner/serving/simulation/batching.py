"""What does a replica do in its next step, and what has happened when it ends? Continuous batching over a paged cache.

A step decodes one token for every running sequence and, within the token budget, computes prompts. Blocks for a whole prompt are
reserved at admission; each 16th token of a sequence takes one more. When none is left the sequence admitted last is preempted:
it loses its blocks, waits at the head of the queue, and its tokens are computed again.

Finishing is not searched for: a sequence knows the decode step at which it ends and waits in that step's list (`due`), and how
many sequences need a block in this step is counted by phase. A step costs a handful of operations however large the batch.
"""

import numpy as np

from loadfactor.planner.serving.simulation.accounting import count_system, observe, settle
from loadfactor.planner.serving.simulation.compiling import inner
from loadfactor.planner.serving.simulation.queues import pop, push
from loadfactor.planner.serving.simulation.state import (
    ADMITTED_ONCE,
    DECODE,
    END_TO_END,
    FINISHED,
    FLOPS,
    IN_SLO,
    MOVED_BYTES,
    NEVER,
    NEXT_FREE,
    NONE,
    NOW,
    OUTPUT_DONE,
    OUTPUT_MADE,
    PREEMPTED,
    PREFILL,
    PROMPT_COMPUTED,
    PROMPT_DONE,
    QUEUE,
    RECORDED,
    SOJOURN_NS,
    STEPS,
    TPOT,
    TTFT,
    Clock,
    Costs,
    Pool,
    Replicas,
    Rules,
)
from loadfactor.units import NS_PER_S


@inner
def _link_running(pool: Pool, replicas: Replicas, r: int, q: int) -> None:
    last = replicas.each[r].last_run
    pool.prev_run[q] = last
    pool.next_run[q] = NONE
    if last == NONE:
        replicas.each[r].first_run = q
    else:
        pool.next_run[last] = q
    replicas.each[r].last_run = q


@inner
def _unlink_running(pool: Pool, replicas: Replicas, r: int, q: int) -> None:
    before, after = pool.prev_run[q], pool.next_run[q]
    if before == NONE:
        replicas.each[r].first_run = after
    else:
        pool.next_run[before] = after
    if after == NONE:
        replicas.each[r].last_run = before
    else:
        pool.prev_run[after] = before


@inner
def _join_batch(pool: Pool, replicas: Replicas, rules: Rules, r: int, q: int) -> None:
    """From now on `q` gets a token in every decode step."""
    context = pool.prompt[q] + pool.produced[q] - 1  # its newest token is not in the cache yet
    pool.context_at[q] = context
    pool.joined_at[q] = replicas.each[r].decodes
    pool.finish_at[q] = replicas.each[r].decodes + pool.output[q] - pool.produced[q]
    pool.running[q] = 1
    place = pool.finish_at[q] % replicas.due.shape[1]
    head = replicas.due[r, place]
    pool.next_due[q] = head
    pool.prev_due[q] = NONE
    if head != NONE:
        pool.prev_due[head] = q
    replicas.due[r, place] = q
    replicas.phase[r, (context - replicas.each[r].decodes) % rules.block_tokens] += 1
    replicas.each[r].batch += 1
    replicas.each[r].context += context


@inner
def leave_batch(pool: Pool, replicas: Replicas, rules: Rules, r: int, q: int) -> None:
    """`q` stops decoding: out of the lists and sums of the batch."""
    ran = replicas.each[r].decodes - pool.joined_at[q]
    place = pool.finish_at[q] % replicas.due.shape[1]
    if pool.prev_due[q] == NONE:
        replicas.due[r, place] = pool.next_due[q]
    else:
        pool.next_due[pool.prev_due[q]] = pool.next_due[q]
    if pool.next_due[q] != NONE:
        pool.prev_due[pool.next_due[q]] = pool.prev_due[q]
    replicas.phase[r, (pool.context_at[q] - pool.joined_at[q]) % rules.block_tokens] -= 1
    replicas.each[r].batch -= 1
    replicas.each[r].context -= pool.context_at[q] + ran
    pool.produced[q] += ran
    pool.running[q] = 0


@inner
def blocks_held(pool: Pool, replicas: Replicas, rules: Rules, r: int, q: int) -> int:
    """Blocks a sequence occupies now."""
    if pool.running[q] == 0:
        return int(pool.held[q])
    context = pool.context_at[q] + replicas.each[r].decodes - pool.joined_at[q]
    return max(int(pool.held[q]), int((context + rules.block_tokens - 1) // rules.block_tokens))


@inner
def release(pool: Pool, replicas: Replicas, rules: Rules, r: int, q: int) -> None:
    """Take a request off its replica, wherever it stands there: blocks free, lists and sums without it."""
    replicas.each[r].free += blocks_held(pool, replicas, rules, r, q)
    if pool.running[q]:
        leave_batch(pool, replicas, rules, r, q)
    if replicas.each[r].partial == q:
        replicas.each[r].partial = NONE
    _unlink_running(pool, replicas, r, q)
    replicas.each[r].present -= 1


@inner
def _preempt_last(pool: Pool, replicas: Replicas, rules: Rules, clock: Clock, r: int) -> None:
    q = replicas.each[r].last_run
    release(pool, replicas, rules, r, q)
    pool.progress[q] = 0
    pool.cached[q] = 0
    clock.counters[PREEMPTED] += 1
    push(pool, replicas, rules.order, r, q)


@inner
def _blocks_needed(pool: Pool, rules: Rules, q: int) -> int:
    tokens = (
        pool.prompt[q] + pool.produced[q] - (1 if pool.progress[q] < 0 else 0)
    )  # a transfer's last token is not cached yet
    return int((tokens + rules.block_tokens - 1) // rules.block_tokens)


@inner
def start_step(pool: Pool, replicas: Replicas, rules: Rules, costs: Costs, clock: Clock, r: int) -> None:
    """Compose the next step of an idle replica and set when it ends; leaves it idle when there is nothing to do."""
    settle(replicas, clock, rules, r)
    now = clock.scalars[NOW]
    # every sequence whose context fills its last block needs another one for the token of this step
    crossing = replicas.phase[r, (-replicas.each[r].decodes) % rules.block_tokens]
    while replicas.each[r].free < crossing and replicas.each[r].last_run != replicas.each[r].first_run:
        _preempt_last(pool, replicas, rules, clock, r)
        crossing = replicas.phase[r, (-replicas.each[r].decodes) % rules.block_tokens]
    budget = rules.chunk_tokens
    if rules.mixed:
        budget -= replicas.each[r].batch * costs.rates.decode_tokens
    tokens, pairs, window_pairs = 0, 0.0, 0.0
    replicas.each[r].done = NONE
    line = r if replicas.each[r].role == DECODE else replicas.each.size
    while budget > 0:
        q = replicas.each[r].partial
        if q == NONE:
            row = r
            if replicas.queued[r] == 0:
                row = line
            if replicas.queued[row] == 0 or replicas.each[r].present >= rules.max_sequences:
                break
            q = replicas.queue[row, 0]
            needed = _blocks_needed(pool, rules, q)
            if replicas.each[r].free - crossing < needed:
                break
            pop(pool, replicas, rules.order, row)
            if row != r:
                replicas.each[r].outstanding += 1
            replicas.each[r].free -= needed
            pool.held[q] = needed
            replicas.each[r].present += 1
            _link_running(pool, replicas, r, q)
            if pool.admitted[q] == NONE:
                pool.admitted[q] = now
                clock.counters[ADMITTED_ONCE] += 1
                observe(clock, QUEUE, now - pool.arrival[q])
            if replicas.each[r].role == DECODE and pool.progress[q] < 0:  # its cache came over the link
                pool.progress[q] = 0
                _join_batch(pool, replicas, rules, r, q)
                continue
            pool.progress[q] = min(pool.cached[q], pool.prompt[q] + pool.produced[q] - 1)
            replicas.each[r].partial = q
        whole = pool.prompt[q] + pool.produced[q]
        part = min(whole - pool.progress[q], budget)
        done = pool.progress[q]
        inside = part * done + part * (part + 1) / 2.0
        pairs += inside
        window_pairs += min(inside, part * costs.rates.window)
        pool.progress[q] += part
        tokens += part
        budget -= part
        if pool.progress[q] < whole:
            break
        replicas.each[r].partial = NONE
        pool.next_done[q] = replicas.each[r].done
        replicas.each[r].done = q
    batch = replicas.each[r].batch
    if tokens > 0 and not rules.mixed:
        batch = 0
    if batch == 0 and tokens == 0:
        return
    replicas.each[r].step_batch = batch
    replicas.each[r].step_prompt = tokens
    seconds = step_seconds(costs, batch, float(replicas.each[r].context), tokens, pairs, window_pairs)
    replicas.each[r].step_end = now + max(np.int64(np.rint(seconds * NS_PER_S)), np.int64(1))
    counters = clock.counters
    counters[STEPS] += 1
    counters[PROMPT_COMPUTED] += tokens
    work = batch * costs.rates.decode_tokens + tokens
    context = replicas.each[r].context if batch else 0
    clock.sums[MOVED_BYTES] += (
        costs.tokens_bytes[min(work, costs.tokens_bytes.size - 1)] + context * costs.rates.context_bytes
    )
    clock.sums[FLOPS] += (
        work * costs.rates.token_flops + (pairs + context * costs.rates.decode_tokens) * costs.rates.pair_flops
    )


@inner
def step_seconds(costs: Costs, batch: int, context: float, tokens: int, pairs: float, window_pairs: float) -> float:
    """Length of a step of `batch` decodes over `context` cached tokens and `tokens` of prompts: the tables of `Costs`."""
    attention = (
        pairs * costs.rates.pair_s + window_pairs * costs.rates.pair_window_s + tokens * costs.rates.prompt_token_s
    )
    prompt = 0.0
    if tokens > 0:
        prompt = _by_tokens(costs, tokens) + attention
        if batch == 0:
            return float(prompt + costs.head_s[1])
    both = _by_tokens(costs, tokens + batch * costs.rates.decode_tokens) + attention
    rows = batch * costs.rates.decode_tokens + (1 if tokens > 0 else 0)
    both += costs.head_s[min(rows, costs.head_s.size - 1)]
    both += (
        costs.rates.context_s * context
        + costs.rates.window_s * min(context, costs.rates.window * batch)
        + costs.rates.sequence_s * batch
    )
    # a speculative step is worth `accepted` plain ones: its decode part is spread over them
    return float(prompt + (both - prompt) / costs.rates.accepted)


@inner
def _by_tokens(costs: Costs, tokens: int) -> float:
    last = costs.tokens_s.size - 1
    if tokens <= last:
        return float(costs.tokens_s[tokens])
    return float(costs.tokens_s[last] + (tokens - last) * costs.rates.token_slope_s)


@inner
def end_step(pool: Pool, replicas: Replicas, rules: Rules, clock: Clock, r: int, leaving: np.ndarray) -> int:
    """Book a step that has just ended; requests that finished, and prompts ready to move on, are put in `leaving`.

    Returns how many; a transfer is marked by its complement (~request).
    """
    settle(replicas, clock, rules, r)
    now = clock.scalars[NOW]
    replicas.each[r].step_end = NEVER
    left = 0
    batch = replicas.each[r].step_batch
    if batch > 0:
        crossing = replicas.phase[r, (-replicas.each[r].decodes) % rules.block_tokens]
        replicas.each[r].free -= crossing
        replicas.each[r].decodes += 1
        replicas.each[r].context += batch
        clock.counters[OUTPUT_MADE] += batch
        q = replicas.due[r, replicas.each[r].decodes % replicas.due.shape[1]]
        while q != NONE:
            after = pool.next_due[q]
            release(pool, replicas, rules, r, q)
            finish(pool, clock, rules, now, q)
            replicas.each[r].outstanding -= 1
            leaving[left] = q
            left += 1
            q = after
    q = replicas.each[r].done
    replicas.each[r].done = NONE
    while q != NONE:
        after = pool.next_done[q]
        pool.produced[q] += 1
        clock.counters[OUTPUT_MADE] += 1
        if pool.first[q] == NONE:
            pool.first[q] = now
            observe(clock, TTFT, now - pool.arrival[q])
        if pool.produced[q] >= pool.output[q]:
            release(pool, replicas, rules, r, q)
            finish(pool, clock, rules, now, q)
            replicas.each[r].outstanding -= 1
            leaving[left] = q
            left += 1
        elif replicas.each[r].role == PREFILL:
            release(pool, replicas, rules, r, q)
            replicas.each[r].outstanding -= 1
            pool.progress[q] = NONE
            leaving[left] = ~q
            left += 1
        else:
            _join_batch(pool, replicas, rules, r, q)
        q = after
    return left


@inner
def finish(pool: Pool, clock: Clock, rules: Rules, now: int, q: int) -> None:
    """Everything that is known about a request that has got its last token."""
    counters = clock.counters
    counters[FINISHED] += 1
    counters[PROMPT_DONE] += pool.prompt[q]
    counters[OUTPUT_DONE] += pool.output[q]
    counters[SOJOURN_NS] += now - pool.arrival[q]
    observe(clock, END_TO_END, now - pool.arrival[q])
    first = pool.first[q] - pool.arrival[q]
    each = 0.0
    if pool.output[q] > 1:
        each = (now - pool.first[q]) / (pool.output[q] - 1)
        observe(clock, TPOT, each)
    if first <= rules.slo_ttft_ns and each <= rules.slo_tpot_ns:
        counters[IN_SLO] += 1
    place = clock.scalars[RECORDED]
    if place < clock.records.shape[0]:
        row = clock.records[place]
        row[0], row[1], row[2], row[3] = pool.arrival[q], pool.admitted[q], pool.first[q], now
        row[4], row[5] = pool.prompt[q], pool.output[q]
        clock.scalars[RECORDED] = place + 1
    count_system(clock, -1)


@inner
def forget(pool: Pool, clock: Clock, q: int) -> None:
    """Give a request's place in the pool back."""
    pool.next_run[q] = clock.scalars[NEXT_FREE]
    clock.scalars[NEXT_FREE] = q
