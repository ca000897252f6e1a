"""The request rate of each client, as buckets that fill evenly and are emptied one request at a time."""

from collections import OrderedDict


class Rates:
    """Buckets of the last `clients` clients. For one thread."""

    def __init__(self, per_s: float, burst: int, clients: int) -> None:
        self._per_s, self._burst, self._clients = per_s, burst, clients
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, now_s: float) -> bool:
        """Count a request; False where it is one too many."""
        left, at_s = self._buckets.pop(client, (float(self._burst), now_s))
        left = min(float(self._burst), left + (now_s - at_s) * self._per_s)
        passes = left >= 1
        self._buckets[client] = (left - passes, now_s)
        if len(self._buckets) > self._clients:
            self._buckets.popitem(last=False)
        return passes
