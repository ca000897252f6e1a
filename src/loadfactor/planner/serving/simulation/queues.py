"""Queues of requests as heaps of requests: in order of arrival, shortest first, or by the time they are ready."""

from loadfactor.base.compiled import inner
from loadfactor.planner.serving.simulation.state import BY_TIME, SHORTEST_FIRST, Pool, Replicas


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
    """Put a request in the queue of `row`; False when it is full."""
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
