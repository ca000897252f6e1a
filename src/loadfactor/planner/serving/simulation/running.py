"""The running batch of a replica: who is in it, which cache blocks each sequence holds, and when each ends.

Finishing is not searched for: a sequence knows the decode step at which it ends and waits in that step's list (`due`), and how
many sequences need a block in a step is counted by phase. A step costs a handful of operations however large the batch.
"""

from loadfactor.base.compiled import inner
from loadfactor.planner.serving.simulation.state import NEXT_FREE, NONE, Clock, Pool, Replicas, Rules


@inner
def link_running(pool: Pool, replicas: Replicas, r: int, q: int) -> None:
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
def join_batch(pool: Pool, replicas: Replicas, rules: Rules, r: int, q: int) -> None:
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
def forget(pool: Pool, clock: Clock, q: int) -> None:
    """Give a request's place in the pool back."""
    pool.next_run[q] = clock.scalars[NEXT_FREE]
    clock.scalars[NEXT_FREE] = q
