"""Samples of a stream that came and are not kept: how many by reason, an example of each, and whether anybody misses them."""

import re
import time
from dataclasses import replace
from typing import Final

from loadfactor.base.clock import now_ms
from loadfactor.base.units import S_PER_MIN
from loadfactor.sources.base import Skip
from loadfactor.store.source_status import Skipped

MISSED_S: Final = 15 * S_PER_MIN
"""For so long after a sample was not kept that a decoder reads, its source is degraded."""
_NAME: Final = re.compile(r"[^A-Za-z0-9_:].*")  # all but the name with which it begins


class SkippedCounts:
    """Counts since the process began. One thread at a time may add; any may read."""

    def __init__(self, hides_labels: bool) -> None:
        """`hides_labels`: only the names of metrics are shown."""
        self._hides_labels = hides_labels
        self._of: dict[str, Skipped] = {}
        self._missed_s: dict[str, float] = {}

    def add(self, skip: Skip) -> None:
        """Some more were not kept."""
        example = skip.example if not self._hides_labels else _NAME.sub("", skip.example)
        before = self._of.get(skip.reason) or Skipped(skip.reason, 0, now_ms(), example)
        self._of[skip.reason] = replace(before, count=before.count + skip.count, example=example or before.example)
        if skip.is_read:
            self._missed_s[skip.reason] = time.monotonic()

    def list(self) -> tuple[Skipped, ...]:
        """Each reason once."""
        return tuple(self._of.copy().values())

    def describe_missed(self) -> str:
        """In words, what was not kept lately though a decoder reads such samples; empty where there was nothing."""
        recent = [r for r, at_s in self._missed_s.copy().items() if time.monotonic() - at_s < MISSED_S]
        return "; ".join(self._of[reason].words for reason in recent)
