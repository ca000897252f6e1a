"""Counts of what is no measurement: one per input and kind, however many lines there are."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from loadfactor.sources.base import Gap

_KINDS_MAX: Final = 200  # an input of garbage must not make a list as long as itself


class Gaps:
    """Counts gaps; `take` hands them over and starts again."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, where: str, what: str, count: int = 1) -> None:
        """`count` more of this kind; nothing when it is 0."""
        if count:
            key = (where, what)
            if key not in self._counts and len(self._counts) >= _KINDS_MAX:
                key = (where, "of other kinds")
            self._counts[key] += int(count)

    def take(self) -> Iterator[Gap]:
        """Every kind once, in the order first seen."""
        counts, self._counts = self._counts, Counter()
        for (where, what), count in counts.items():
            yield Gap(where, what, count)
