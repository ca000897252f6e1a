"""Samples of a stream that came and are not kept: how many by reason, an example of each, and whether anybody misses them."""

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from loadfactor.base.clock import now_ms
from loadfactor.base.units import S_PER_MIN
from loadfactor.sources.base import Skip
from loadfactor.store.source_status import Skipped

MISSED_S: Final = 15 * S_PER_MIN
"""For so long after a sample was not kept that a decoder reads, or a request was refused, `/health` says so."""
_NAME: Final = re.compile(r"[^A-Za-z0-9_:].*")  # all but the name with which it begins


class Shortfall(NamedTuple):
    """One thing of a stream that is not in the books as it was sent, and since when (ms UTC)."""

    cause: str
    since_ms: int


class SkippedCounts:
    """Counts since the process began. One thread at a time may add; any may read."""

    def __init__(self, hides_labels: bool) -> None:
        """`hides_labels`: only the names of metrics are shown."""
        self._hides_labels = hides_labels
        self._of: dict[str, Skipped] = {}
        self._missed: dict[str, tuple[int, float]] = {}
        """By reason: since when samples are missed (ms UTC), and when the last one was (monotonic, s)."""

    def add(self, skip: Skip) -> None:
        """Some more were not kept."""
        example = skip.example if not self._hides_labels else _NAME.sub("", skip.example)
        before = self._of.get(skip.reason) or Skipped(skip.reason, 0, now_ms(), example)
        self._of[skip.reason] = replace(before, count=before.count + skip.count, example=example or before.example)
        if skip.is_read:
            since_ms, last_s = self._missed.get(skip.reason, (0, -MISSED_S))
            now_s = time.monotonic()
            self._missed[skip.reason] = (since_ms if now_s - last_s < MISSED_S else now_ms(), now_s)

    def list(self) -> tuple[Skipped, ...]:
        """Each reason once."""
        return tuple(self._of.copy().values())

    def list_missed(self) -> Sequence[Shortfall]:
        """List what was not kept lately although a decoder reads such samples."""
        return [
            Shortfall(self._of[reason].words, since_ms)
            for reason, (since_ms, last_s) in self._missed.copy().items()
            if time.monotonic() - last_s < MISSED_S
        ]
