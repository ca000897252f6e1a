"""Decoder of a metric stream whose objects are read as they come: their points, late ones too, and what outlasts a restart.

An event is [when it was read (ms), kind, said]. Kinds: `series` (a list of labels and points: [ms since 1970 UTC, value]), and
`aside` (a list of why objects could not be read).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.remote_write import NOT_UNDERSTOOD, Points

METRIC_STREAM: Final = "metric-stream"
"""The first word of such origins."""
SERIES, ASIDE = "series", "aside"
SET_ASIDE: Final = "objects of the metric stream that cannot be read"
_NUMBER_BYTES: Final = 8


class LiveMetricStreamDecoder:
    """The rows of one metric stream, and its state."""

    def __init__(self, name: str, state: bytes = b"") -> None:
        """`name`: of the account. `state`: as `state()` gave it; empty for a new one."""
        self._label = f"cloudwatch:{name}" if name else "cloudwatch"
        self._bodies = int.from_bytes(state[:_NUMBER_BYTES], "little")
        self._decoder = PrometheusDecoder(state[_NUMBER_BYTES:])
        self._aside = 0

    def put(self, events: Sequence[Sequence[Any]]) -> None:
        """Events in the order in which they came."""
        for _, kind, said in events:
            if kind == ASIDE:
                self._aside += len(said)
                continue
            points: list[tuple[int, int, float]] = []
            for labels, some in said:
                number = self._decoder.identify(labels)
                if number != NOT_UNDERSTOOD:
                    points += ((number, at_ms, value) for at_ms, value in some)
            if not points:
                continue
            series, at_ms, values = zip(*sorted(set(points), key=lambda point: point[:2]), strict=True)
            self._bodies += 1
            kept = Points(np.array(series, np.int32), np.array(at_ms, np.int64), np.array(values, np.float64))
            self._decoder.put(kept, self._bodies, 0.0)

    def take(self) -> Iterator[Rows | Gap]:
        """The rows that are new."""
        yield from self._decoder.take(None)
        if self._aside:
            yield Gap(self._label, SET_ASIDE, self._aside)
            self._aside = 0
        if self._decoder.is_large:  # series come and go: what is not seen any more is forgotten
            self._decoder = PrometheusDecoder(self._decoder.state())

    def state(self) -> bytes:
        """All of it, to go on from here in another process."""
        return self._bodies.to_bytes(_NUMBER_BYTES, "little") + self._decoder.state()
